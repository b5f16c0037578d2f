"""Schema evolution beside other writers."""

import threading

import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError, InvalidInput
from tests.table.operations.evolve.columns import (
    column,
    field_id,
    ids,
    row,
)


class TestBeside:
    """Another writer at the same time: the rows are mapped, or refused; never misread."""

    @pytest.mark.parametrize(
        "change",
        [
            lambda t: t.add_column("n", pa.int64()),
            lambda t: t.move_column("id", after="s"),
            lambda t: t.set_properties({"a": "b"}),
        ],
    )
    def test_append_that_fits(self, table, change):
        with table.transaction() as tx:
            tx.append([row(4), row(5, "new")])
            change(phalanx.open(table.uri))
        assert column(table, "f") == {1: 1.5, 2: 2.5, 3: None, 4: 4.5, 5: 5.5}
        assert table.check().ok

    @pytest.mark.parametrize(
        "change",
        [
            lambda t: t.add_column("n", pa.int64(), default=5),
            lambda t: t.drop_column("f"),
            lambda t: t.rename_column("f", "g"),
            lambda t: t.change_type("f", pa.float64()),
            lambda t: t.drop_column("f").add_column("f", pa.float32()),
            lambda t: t.add_column("s.z", pa.int64()),
        ],
    )
    def test_append_that_does_not(self, table, change):
        tx = table.transaction()
        tx.append([row(4), row(5, "new")])
        change(phalanx.open(table.uri))
        with pytest.raises(ConflictError, match="schema"):
            tx.commit()
        assert ids(table) == [1, 2, 3]
        table.refresh()
        assert table.check().ok

    @pytest.mark.parametrize(
        "change",
        [
            lambda tx: tx._delete("f > 2"),
            lambda tx: tx._update({"f": "0"}, "id = 1"),
            lambda tx: tx._merge([row(1)], ["id"], "update", "insert"),
            lambda tx: tx.count(),
        ],
    )
    def test_other_changes(self, table, change):
        tx = table.transaction()
        change(tx)
        phalanx.open(table.uri).rename_column("f", "g")
        with pytest.raises(ConflictError, match="schema"):
            tx.commit()
        assert ids(table) == [1, 2, 3]

    def test_two_columns_at_once_get_two_ids(self, table):
        other = phalanx.open(table.uri)
        other.add_column("theirs", pa.int64())
        table.add_column("ours", pa.int64())
        assert field_id(table, "ours") == field_id(table, "theirs") + 1
        again = phalanx.open(table.uri, version=2)
        with pytest.raises(InvalidInput, match="already"):
            again.add_column("ours", pa.int64())

    def test_rows_for_a_column_whose_id_went_to_another(self, table):
        tx = table.transaction()
        tx.append([row(4, mine=4)], merge_schema=True)
        phalanx.open(table.uri).add_column("yours", pa.int64())
        with pytest.raises(ConflictError):
            tx.commit()
        assert column(table, "yours") == {1: None, 2: None, 3: None}

    def test_the_same_new_column_twice(self, table):
        with table.transaction() as tx:
            tx.append([row(4, n=4)], merge_schema=True)
            phalanx.open(table.uri).append([row(5, n=5)], merge_schema=True)
        assert column(table, "n") == {1: None, 2: None, 3: None, 4: 4, 5: 5}

    def test_rows_and_columns_behind_another(self, table):
        """What is done before a column comes, and after, is done so again."""
        with table.transaction() as tx:
            tx.append([row(4)])
            tx.drop_column("f")
            tx.add_column("n", pa.int64(), default=1)
            tx.append([{"id": 5, "part": "a", "n": 2}])
            phalanx.open(table.uri).append([row(6), row(7, "new")])
        assert column(table, "n") == {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 1, 7: 1}
        assert "f" not in table.schema.names
        assert table.check().ok

    def test_schema_change_behind_an_append(self, table):
        phalanx.open(table.uri).append([row(4)])
        table.rename_column("f", "g")
        assert column(table, "g")[4] == 4.5

    def test_many_at_once(self, table):
        refused, errors = [], []

        def evolve():
            for number in range(4):
                phalanx.open(table.uri).add_column(f"n{number}", pa.int64(), default=number)
                phalanx.open(table.uri).rename_column(f"n{number}", f"m{number}")

        def append(first):
            for id in range(first, first + 6):
                try:
                    phalanx.open(table.uri).append(
                        pa.table({"id": pa.array([id], pa.int32()), "part": ["a"]})
                    )
                except ConflictError:
                    refused.append(id)
                except BaseException as error:
                    errors.append(error)

        threads = [threading.Thread(target=append, args=(n,)) for n in (10, 20)]
        threads.append(threading.Thread(target=evolve))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        wanted = {1, 2, 3, *range(10, 16), *range(20, 26)} - set(refused)
        assert set(ids(table)) == wanted
        for number in range(4):
            assert set(column(table, f"m{number}").values()) == {number}
        assert phalanx.open(table.uri).check().ok
