"""Writes that create very many leaves."""

import logging

import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput
from phalanx.transaction import tiny_leaves

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
LIMIT = {"write.max_new_leaves": "3"}
ADVICE = (
    "the partition field 'id', id, has {} values in them. Bucket or truncate that column, cut time "
    "more coarsely, or leave the field out, with evolve_partitioning; advise() makes a suggestion"
)


def rows(count, first=0):
    ids = range(first, first + count)
    return pa.table({"id": ids, "part": [f"p{id % 2}" for id in ids]}, schema=SCHEMA)


@pytest.fixture(params=["strong", "weak"])
def table(root, request):
    """A table that may get 3 new leaves in one write."""
    return phalanx.create(root, SCHEMA, ["part", "id"], request.param, properties=LIMIT)


class TestWarning:
    @pytest.mark.parametrize("transactions", ["strong", "weak"])
    def test_very_many_tiny_leaves(self, root, caplog, monkeypatch, transactions):
        monkeypatch.setattr(tiny_leaves, "_MANY", 20)
        table = phalanx.create(root, SCHEMA, ["part", "id"], transactions).append(rows(20))
        (record,) = caplog.records
        assert (record.name, record.levelno) == ("phalanx", logging.WARNING)
        assert record.getMessage() == (
            f"a write to {table.uri} creates 20 new leaves for 20 rows, and many tiny leaves make "
            f"every read slow: {ADVICE.format(20)}. The property write.max_new_leaves turns this "
            "warning into an error."
        )
        caplog.clear()
        table.append(rows(39)).append(rows(20))
        assert not caplog.records, "19 are new, and then none"
        assert table.count() == 79

    def test_from_a_thousand_on(self, root, caplog):
        table = phalanx.create(root, SCHEMA, ["id"])
        table.append(rows(999)).append(rows(1000, 999))
        (record,) = caplog.records
        assert "creates 1,000 new leaves for 1,000 rows" in record.getMessage()

    def test_leaves_that_are_not_tiny(self, root, caplog, monkeypatch):
        monkeypatch.setattr(tiny_leaves, "_MANY", 2)
        table = phalanx.create(root, SCHEMA, ["part"]).append(rows(400))
        assert table.partitions().num_rows == 2
        assert not caplog.records

    def test_a_table_of_one_leaf(self, root, caplog, monkeypatch):
        monkeypatch.setattr(tiny_leaves, "_MANY", 1)
        phalanx.create(root, SCHEMA).append(rows(1))
        (record,) = caplog.records
        assert "every read slow: partition the table by something else. The" in record.getMessage()


class TestLimit:
    def test_nothing_is_visible(self, table):
        table.append(rows(3))
        with pytest.raises(InvalidInput) as error:
            table.append(rows(7))
        assert str(error.value) == (
            f"a write to {table.uri} would create more than 3 new leaves, the most that its "
            f"property write.max_new_leaves allows, and the table is unchanged: {ADVICE.format(4)}"
        )
        assert (table.refresh().version, table.count()) == (2, 3)
        assert phalanx.open(table.uri).append(rows(6)).count() == 9
        assert table.refresh().check().ok

    def test_several_changes_together(self, table):
        tx = table.transaction()
        tx.append(rows(2))
        tx.append(rows(2, 2))
        with pytest.raises(InvalidInput, match="more than 3 new leaves"):
            tx.commit()
        assert table.refresh().count() == 0

    @pytest.mark.parametrize("change", ["update", "merge", "overwrite"])
    def test_other_changes(self, table, change):
        table.append(rows(3)).append(rows(3, 3))
        changes = {
            "update": lambda: table.update({"id": "id + 100"}),
            "merge": lambda: table.merge(rows(7, 3), on=["id"]),
            "overwrite": lambda: table.overwrite(rows(4, 10)),
        }
        with pytest.raises(InvalidInput, match="more than 3 new leaves"):
            changes[change]()
        found = table.refresh().scan().to_arrow()
        assert sorted(found["id"].to_pylist()) == list(range(6))

    def test_rows_that_move_to_a_new_spec(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], properties=LIMIT).append(rows(5))
        table.evolve_partitioning(["id"])
        with pytest.raises(InvalidInput, match="more than 3 new leaves"):
            table.rewrite()
        assert table.refresh().count() == 5
        assert set(table.partitions()["spec"].to_pylist()) == {1}

    def test_it_can_be_lifted_and_set(self, table):
        with pytest.raises(InvalidInput, match="a whole number from 1, not '0'"):
            table.set_properties({"write.max_new_leaves": "0"})
        table.set_properties({"write.max_new_leaves": None})
        assert table.append(rows(10)).count() == 10
