"""Tables whose files do not hold the columns that partitions give."""

import datetime as dt
from decimal import Decimal
from typing import ClassVar

import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput, UnsupportedTable
from phalanx.storage import head
from tests.table.rows import ROWS, SCHEMA, row, rows

OFF = {"materialize_partition_columns": "false"}
ON = {"materialize_partition_columns": "true"}


@pytest.fixture(params=["strong", "weak"])
def off(request, root):
    table = phalanx.create(
        root, SCHEMA, ["part"], request.param, materialize_partition_columns=False
    )
    return table.append(ROWS)


def columns(table):
    """The columns of each leaf, as a plain Lance reader sees them."""
    leaves = phalanx.open(table.uri).scan().plan().leaves
    return {leaf.values["part"]: leaf.open().schema.names for leaf in leaves}


def files(table, part):
    """The columns in each file of a leaf, by their number."""
    leaves = phalanx.open(table.uri).scan().plan().leaves
    (leaf,) = (leaf for leaf in leaves if leaf.values["part"] == part)
    return [len(f.metadata.files[0].fields) for f in leaf.open().get_fragments()]


class TestOff:
    def test_files_lack_the_column(self, off):
        assert columns(off) == {part: ["id", "n"] for part in ("a", "b", None)}

    def test_rows_have_it(self, off):
        assert rows(off) == ROWS

    def test_only_that_column(self, off):
        parts = off.scan(["part"]).to_arrow()["part"].to_pylist()
        assert sorted(parts, key=str) == [None, "a", "a", "b"]

    @pytest.mark.parametrize(
        ("where", "ids"),
        [
            ("part = 'a'", [1, 2]),
            ("part = 'a' AND id > 1", [2]),
            ("part = 'b' OR id = 4", [3, 4]),
            ("part IS NULL", [4]),
            ("part IS NULL OR id = 1", [1, 4]),
            ("part <> 'a' OR id = 2", [2, 3]),
            ("concat(part, 'x') = 'ax' AND id < 2", [1]),
            ("part LIKE 'a%' AND id < 3", [1, 2]),
            ("part IN ('a', 'b') AND n = 0 AND id <> 1", [2, 3]),
        ],
    )
    def test_filters(self, off, where, ids):
        found = off.scan(["id"], where).to_arrow()["id"].to_pylist()
        assert sorted(found) == ids
        assert off.count(where) == len(ids)

    def test_delete(self, off):
        off.delete("part = 'a' AND id = 1 OR part IS NULL AND n = 0")
        assert rows(off) == [row(2), row(3, "b")]

    def test_update_moves_a_row(self, off):
        off.update({"part": "'b'", "n": "7"}, "part = 'a' AND id = 1")
        assert rows(off) == [row(1, "b", 7), row(2), row(3, "b"), row(4, None)]
        assert columns(off)["b"] == ["id", "n"]

    def test_update_reads_the_column(self, off):
        off.update({"part": "concat(part, '!')"}, "id < 4")
        assert rows(off) == [row(1, "a!"), row(2, "a!"), row(3, "b!"), row(4, None)]

    def test_merge(self, off):
        off.merge(pa.Table.from_pylist([row(1, "b", 5), row(9, "c")], SCHEMA), on=["id"])
        assert rows(off) == [row(1, "b", 5), row(2), row(3, "b"), row(4, None), row(9, "c")]

    def test_merge_keeps_the_column(self, off):
        source = pa.table({"id": [2, 4], "n": [8, 9]})
        off.merge(source, on=["id"], when_not_matched="ignore")
        assert rows(off) == [row(1), row(2, n=8), row(3, "b"), row(4, None, 9)]

    def test_merge_on_the_column(self, off):
        source = pa.Table.from_pylist([row(1, "a", 3), row(3, "a", 4)], SCHEMA)
        off.merge(source, on=["part", "id"])
        expected = [row(1, n=3), row(2), row(3, "a", 4), row(3, "b"), row(4, None)]
        assert sorted(rows(off), key=str) == sorted(expected, key=str)

    def test_optimize(self, off):
        off.append(ROWS)
        off.optimize()
        assert rows(off) == sorted(ROWS * 2, key=lambda found: found["id"])
        assert columns(off)["a"] == ["id", "n"]

    def test_sorted_by_the_column(self, off):
        off.append(ROWS)
        off.optimize(sort_by=["part", "id"])
        assert rows(off) == sorted(ROWS * 2, key=lambda found: found["id"])

    def test_check(self, off):
        assert off.check().ok


class TestTypes:
    VALUES: ClassVar = {
        pa.int8(): [-128, 127, None],
        pa.uint64(): [0, 2**64 - 1, None],
        pa.int64(): [-(2**63), 2**63 - 1, None],
        pa.bool_(): [True, False, None],
        pa.string(): ["", "a/b=c%$'", "ü€", None],
        pa.large_string(): ["x", None],
        pa.date32(): [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31), None],
        pa.time64("us"): [dt.time(0), dt.time(23, 59, 59, 999999), None],
        pa.timestamp("us"): [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), None],
        pa.timestamp("ms", "Europe/Berlin"): [
            dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC),
            dt.datetime(2024, 10, 27, 1, 30, tzinfo=dt.UTC),
            None,
        ],
        pa.decimal128(38, 10): [Decimal("-0.0000000001"), Decimal(10) ** 27, None],
        pa.decimal256(60, 0): [Decimal(10) ** 59, None],
    }

    @pytest.mark.parametrize("type", VALUES, ids=str)
    def test_come_back_exactly(self, root, type):
        schema = pa.schema([("p", type), ("id", pa.int64())])
        held = pa.table(
            {"p": pa.array(self.VALUES[type], type), "id": range(len(self.VALUES[type]))}
        )
        table = phalanx.create(root, schema, ["p"], materialize_partition_columns=False)
        table.append(held)
        table = phalanx.open(root)
        assert table.scan().plan().leaves[0].open().schema.names == ["id"]
        assert table.scan().to_arrow().sort_by("id").cast(schema) == held
        for number, value in enumerate(self.VALUES[type]):
            sql = "p IS NULL" if value is None else f"p IS NOT NULL AND id = {number}"
            assert table.scan(where=f"({sql}) OR id < 0").to_arrow().slice(0, 1) is not None
        # One leaf at a time, in which the column is a literal in the filter.
        assert table.scan(where="p = p AND id >= 0").count() == len(held) - 1

    @pytest.mark.parametrize("type", [pa.float32(), pa.float64()], ids=str)
    def test_floats_stay_stored(self, root, type):
        schema = pa.schema([("p", type), ("id", pa.int64())])
        table = phalanx.create(root, schema, ["p"], materialize_partition_columns=False)
        table.append(pa.table({"p": pa.array([-0.0, 0.0], type), "id": [1, 2]}))
        found = table.scan().to_arrow().sort_by("id")["p"].to_pylist()
        assert [str(value) for value in found] == ["-0.0", "0.0"]

    def test_sources_of_other_transforms_stay_stored(self, root):
        schema = pa.schema([("ts", pa.timestamp("us")), ("id", pa.int64()), ("c", pa.string())])
        spec = ["day(ts)", "c", "bucket(4, id)", "truncate(1, c)"]
        table = phalanx.create(root, schema, spec, materialize_partition_columns=False)
        table.append([{"ts": dt.datetime(2024, 5, 6), "id": 1, "c": "xyz"}])
        (leaf,) = table.scan().plan().leaves
        assert leaf.open().schema.names == ["ts", "id"]
        assert table.scan().to_arrow().to_pylist() == [
            {"ts": dt.datetime(2024, 5, 6), "id": 1, "c": "xyz"}
        ]

    def test_nested_columns_stay_stored(self, root):
        schema = pa.schema([("s", pa.struct([("a", pa.string()), ("b", pa.int64())]))])
        table = phalanx.create(root, schema, ["s.a"], materialize_partition_columns=False)
        held = [{"s": {"a": "x", "b": 1}}, {"s": None}]
        table.append(held)
        assert sorted(table.scan().to_arrow().to_pylist(), key=str) == sorted(held, key=str)

    def test_a_table_of_partition_columns_only(self, root):
        schema = pa.schema([("p", pa.string()), ("q", pa.int32())])
        table = phalanx.create(root, schema, ["p", "q"], materialize_partition_columns=False)
        held = [{"p": "x", "q": 1}, {"p": "x", "q": 1}, {"p": None, "q": 2}]
        table.append(held)
        assert sorted(table.scan().to_arrow().to_pylist(), key=str) == sorted(held, key=str)
        table.delete("q = 2")
        assert table.scan(["q"]).to_arrow().to_pylist() == [{"q": 1}] * 2


class TestSwitching:
    @pytest.fixture
    def table(self, root):
        return phalanx.create(root, SCHEMA, ["part"]).append(ROWS)

    def test_a_table_that_never_was_off(self, table):
        manifest = phalanx.open(table.uri)._snapshot.head
        assert not manifest.reader_features
        assert columns(table)["a"] == ["id", "part", "n"]

    def test_to_off(self, table):
        table.set_properties(OFF)
        assert columns(table)["a"] == ["id", "part", "n"]
        table.append([row(5), row(6, "c")])
        assert columns(table) == {
            "a": ["id", "n"],
            "b": ["id", "part", "n"],
            "c": ["id", "n"],
            None: ["id", "part", "n"],
        }
        assert files(table, "a") == [3, 2]
        assert rows(table) == [*ROWS, row(5), row(6, "c")]

    def test_to_off_and_on_again(self, table):
        table.set_properties(OFF).append([row(5)])
        table.set_properties(ON).append([row(6), row(7, "c")])
        # A plain Lance reader would see NULL in the file that lacks the column.
        assert columns(table)["a"] == ["id", "n"]
        assert files(table, "a") == [3, 2, 3]
        assert columns(table)["c"] == ["id", "n", "part"]
        assert rows(table) == [*ROWS, row(5), row(6), row(7, "c")]
        table.optimize()
        assert columns(table)["a"] == ["id", "n", "part"]
        leaf = next(x for x in table.scan().plan().leaves if x.values["part"] == "a")
        assert leaf.open().to_table()["part"].to_pylist() == ["a"] * 4
        assert rows(table) == [*ROWS, row(5), row(6), row(7, "c")]

    def test_on_puts_it_last(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], properties=ON).append(ROWS)
        assert columns(table)["a"] == ["id", "n", "part"]
        assert rows(table) == ROWS

    def test_in_one_transaction(self, table):
        with table.transaction() as transaction:
            transaction.append([row(5)])
            transaction.set_properties(OFF)
            transaction.append([row(6)])
            transaction.set_properties(ON)
            transaction.append([row(7)])
        assert rows(table) == [*ROWS, row(5), row(6), row(7)]
        assert files(table, "a") == [3, 3, 2, 3]

    def test_old_readers_refuse(self, table, monkeypatch):
        table.set_properties(OFF)
        monkeypatch.setattr(head, "READER_FEATURES", frozenset())
        with pytest.raises(UnsupportedTable, match="unstored_partition_columns"):
            phalanx.open(table.uri, version=table.version)

    def test_weak_tables_do_not_switch(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], "weak").append(ROWS)
        with pytest.raises(InvalidInput, match="make_strong"):
            table.set_properties(OFF)

    def test_writers_that_began_before(self, table):
        """Files that were written for the other setting."""
        with table.transaction() as first:
            first.append([row(5)])
            phalanx.open(table.uri).set_properties(OFF)
        assert rows(phalanx.open(table.uri)) == [*ROWS, row(5)]

    @pytest.mark.parametrize("value", ["maybe", "", "1"])
    def test_other_values(self, table, value):
        with pytest.raises(InvalidInput, match="is 'true' or 'false'"):
            table.set_properties({"materialize_partition_columns": value})

    def test_rollback_and_time_travel(self, table):
        before = table.version
        table.set_properties(OFF).append([row(5)])
        after = table.version
        assert rows_at(table, before) == ROWS
        table.rollback(before)
        assert rows(table) == ROWS
        table.append([row(6)])
        assert rows(table) == [*ROWS, row(6)]
        table.rollback(after)
        assert rows(table) == [*ROWS, row(5)]


def rows_at(table, version):
    found = phalanx.open(table.uri, version=version).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda found: found["id"])
