"""Defaults that change, that are SQL, and that are lists, maps and structs."""

import datetime as dt
import getpass

import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError, InvalidInput
from phalanx.model.defaults import Default
from tests.table.operations.evolve.columns import column, ids, row


class TestSetDefault:
    def test_existing_rows_keep_theirs(self, table):
        table.add_column("n", pa.int64(), default=1)
        table.append([row(4)])
        table.set_default("n", 2)
        table.append([row(5), row(6, n=None)])
        table.append(pa.table({"id": pa.array([7], pa.int32())}))
        assert column(table, "n") == {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: None, 7: 2}
        assert ids(table, "n = 1") == [1, 2, 3, 4]
        table.optimize()
        assert column(table, "n") == {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: None, 7: 2}
        assert table.check().ok

    def test_of_a_column_that_had_none(self, table):
        table.set_default("f", 9.5)
        table.append([{"id": 4}])
        assert column(table, "f") == {1: 1.5, 2: 2.5, 3: None, 4: 9.5}

    def test_none(self, table):
        table.add_column("n", pa.int64(), default=1, nullable=False)
        table.set_default("n", None)
        assert ids(table, "n = 1") == [1, 2, 3]
        with pytest.raises(InvalidInput, match="'n' is missing, and it must not be NULL"):
            table.append(pa.table({"id": pa.array([4], pa.int32())}))
        table.make_nullable("n").append([{"id": 4}])
        assert column(table, "n") == {1: 1, 2: 1, 3: 1, 4: None}

    def test_history(self, table):
        table.set_default("f", 9.5)
        assert table.snapshots().to_pylist()[-1]["operation"] == "set default"
        table.rollback(table.version - 1)
        table.append([{"id": 4}])
        assert column(table, "f")[4] is None

    def test_beside_an_append(self, table):
        """Rows that were prepared with the earlier default do not land under the new one."""
        other = phalanx.open(table.uri)
        tx = table.transaction()
        tx.append([row(4)])
        other.set_default("f", 9.5)
        with pytest.raises(ConflictError):
            tx.commit()
        table.refresh().append([{"id": 4}])
        assert column(table, "f")[4] == 9.5

    def test_merged_rows(self, table):
        table.add_column("n", pa.int64(), default=1).set_default("n", 2)
        table.merge([{"id": 1, "f": 0.5}, {"id": 8, "f": 0.5}, {"id": 9, "n": 5}], on=["id"])
        assert column(table, "n") == {1: 1, 2: 1, 3: 1, 8: 2, 9: 5}
        table.merge(pa.table({"id": pa.array([10], pa.int32())}), on=["id"])
        assert column(table, "n")[10] == 2


def with_sql(table, name, type, sql):
    """Add a column with SQL as its default, as Spark does."""
    with table.transaction() as tx:
        tx.add_column(name, type)
        tx.set_default(name, Default(None, sql))
    return table.refresh()


class TestSql:
    """Defaults that have another value in every statement."""

    def test_the_time_of_the_statement(self, table):
        with_sql(table, "at", pa.timestamp("us", "UTC"), "current_timestamp()")
        before = dt.datetime.now(dt.UTC)
        table.append([row(4), row(5), row(6, at=None)])
        table.append(pa.table({"id": pa.array([7], pa.int32())}))
        table.merge([{"id": 1, "f": 0.5}, {"id": 8}], on=["id"])
        found = column(table, "at")
        assert [found[id] for id in (1, 2, 3, 6)] == [None] * 4
        assert before <= found[4] == found[5] <= found[7] <= found[8] <= dt.datetime.now(dt.UTC)

    def test_all_chunks_of_a_statement_have_one(self, table):
        with_sql(table, "at", pa.timestamp("us"), "localtimestamp()")
        rows = pa.table({"id": pa.array(range(4, 2004), pa.int32())})
        table.append(rows.to_reader(max_chunksize=100), buffer_bytes=1024)
        assert len({value for id, value in column(table, "at").items() if id > 3}) == 1

    def test_the_user(self, table):
        with_sql(table, "by", pa.string(), "current_user()")
        table.append([row(4)])
        assert column(table, "by")[4] == getpass.getuser()

    def test_what_only_spark_knows(self, table):
        with_sql(table, "m", pa.date32(), "trunc(current_date(), 'MM')")
        version = table.version
        said = r"'m' is missing, and its default trunc\(current_date\(\), 'MM'\) is known only"
        without = pa.table({"id": pa.array([4], pa.int32())})
        for rows in ([row(4)], [row(4), row(5, m=None)], without):
            with pytest.raises(InvalidInput, match=said):
                table.append(rows)
        with pytest.raises(InvalidInput, match=said):
            table.merge([row(1), row(4)], on=["id"])
        assert phalanx.open(table.uri).version == version
        table.merge([{"id": 1, "f": 0.25}], on=["id"])
        table.append([row(4, m=dt.date(2026, 1, 1))])
        assert column(table, "f")[1] == 0.25
        assert column(table, "m") == {1: None, 2: None, 3: None, 4: dt.date(2026, 1, 1)}


NESTED = [
    (pa.list_(pa.int64()), [1, None, 3], "n IS NOT NULL"),
    (pa.list_(pa.string()), [], "n IS NOT NULL"),
    (pa.list_(pa.float32(), 2), [0.5, 1.5], "n IS NOT NULL"),
    (pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", None)], "n IS NOT NULL"),
    (pa.map_(pa.string(), pa.int32()), [], "n IS NOT NULL"),
    (
        pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))]),
        {"a": 1, "b": {"c": "x"}},
        "n.a = 1 AND n.b.c = 'x'",
    ),
    (pa.struct([("a", pa.int32()), ("b", pa.date32())]), {"a": None, "b": None}, "n.a IS NULL"),
]


class TestNested:
    @pytest.mark.parametrize(("type", "value", "where"), NESTED, ids=str)
    def test_rows_before_and_after(self, table, type, value, where):
        table.add_column("n", type, default=value)
        assert ids(table, where) == [1, 2, 3]
        assert ids(table, "n IS NULL") == []
        table.append([row(4), row(5, n=None)])
        table.append(pa.table({"id": pa.array([6], pa.int32())}))
        expected = {id: None if id == 5 else value for id in range(1, 7)}
        assert column(table, "n") == expected
        assert ids(table, "n IS NULL") == [5]
        assert ids(table, f"{where} AND n IS NOT NULL") == [1, 2, 3, 4, 6]
        table.optimize()
        assert column(table, "n") == expected
        assert table.check().ok

    def test_fields_that_change(self, table):
        table.add_column("n", pa.struct([("a", pa.int32()), ("b", pa.string())]))
        table.set_default("n", {"a": 1, "b": "x"})
        table.rename_column("n.a", "z").add_column("n.c", pa.int64()).change_type("n.z", "int64")
        table.append([row(4)])
        assert column(table, "n")[4] == {"z": 1, "b": "x", "c": None}

    def test_fields_of_existing_rows_that_change(self, table):
        table.add_column(
            "n", pa.struct([("a", pa.int32()), ("b", pa.string())]), {"a": 1, "b": "x"}
        )
        table.drop_column("n.b").add_column("n.b", pa.string()).move_column("n.b", first=True)
        assert column(table, "n")[1] == {"b": None, "a": 1}
        assert ids(table, "n.a = 1 AND n.b IS NULL") == [1, 2, 3]
