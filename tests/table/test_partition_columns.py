"""Tables whose files do not hold the columns that partitions give."""

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import ClassVar

import lance
import pyarrow as pa
import pyarrow.dataset
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

import phalanx
from phalanx import ConflictError, InvalidInput, UnsupportedTable
from phalanx.storage import head
from tests.table import test_evolve_machine, test_machine
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


def rows_at(table, version):
    found = phalanx.open(table.uri, version=version).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda found: found["id"])


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
        # The column is a literal in these filters.
        for number, value in enumerate(self.VALUES[type]):
            test = "IS NULL" if value is None else "IS NOT NULL"
            where = f"(p {test} AND id = {number}) OR (p = p AND id < 0)"
            assert table.scan(["id"], where).to_arrow()["id"].to_pylist() == [number]
        assert table.count("p = p AND id >= 0") == len(held) - 1

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
        assert rows(table) == [*ROWS, row(5)]
        with pytest.raises(ConflictError, match="none for 'part'"), table.transaction() as second:  # noqa: PT012
            second.append([row(6)])
            phalanx.open(table.uri).set_properties(ON)
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


class TestOptimize:
    def test_brings_all_files_up(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], properties=OFF).append(ROWS)
        table.set_properties(ON).optimize()
        assert columns(table)["a"] == ["id", "n"]
        report = table.rewrite("part = 'a'")
        assert (report.columns, report.rows, len(report.versions)) == (1, 0, 1)
        assert columns(table) == {"a": ["id", "n", "part"], "b": ["id", "n"], None: ["id", "n"]}
        table.rewrite()
        assert columns(table) == {part: ["id", "n", "part"] for part in ("a", "b", None)}
        for leaf in table.scan().plan().leaves:
            parts = leaf.open().to_table()["part"].to_pylist()
            assert parts == [leaf.values["part"]] * leaf.rows
        assert table.rewrite().columns == 0
        table.set_properties(OFF).rewrite()
        assert columns(table)["a"] == ["id", "n"]
        assert rows(table) == ROWS
        assert table.check().ok


class TestEvolution:
    @pytest.fixture
    def table(self, root):
        schema = pa.schema([("p", pa.int32()), ("id", pa.int64())])
        table = phalanx.create(root, schema, ["p"], properties=OFF)
        return table.append([{"p": 1, "id": 1}, {"p": None, "id": 2}])

    @staticmethod
    def found(table, **names):
        return phalanx.open(table.uri).scan().to_arrow().sort_by("id").to_pylist()

    def test_rename(self, table):
        table.rename_column("p", "q").append([{"q": 1, "id": 3}])
        assert self.found(table) == [{"q": 1, "id": 1}, {"q": None, "id": 2}, {"q": 1, "id": 3}]
        assert table.count("q = 1 AND id > 1") == 1

    def test_wider_and_back(self, table):
        before = table.version
        table.change_type("p", pa.int64()).append([{"p": 2**40, "id": 3}, {"p": 1, "id": 4}])
        assert [row["p"] for row in self.found(table)] == [1, None, 2**40, 1]
        table.rollback(before).append([{"p": 1, "id": 5}])
        assert [row["p"] for row in self.found(table)] == [1, None, 1]
        assert table.scan().to_arrow().schema.field("p").type == pa.int32()

    def test_wider_where_files_hold_the_column(self, root):
        """The files keep the narrow type, and the schema of the leaf leaves the column out."""
        schema = pa.schema([("p", pa.int32()), ("id", pa.int64())])
        table = phalanx.create(root, schema, ["p"]).append([{"p": 1, "id": 1}])
        table.set_properties(OFF).set_properties(ON)
        table.change_type("p", pa.int64()).append([{"p": 1, "id": 2}])
        (leaf,) = table.scan().plan().leaves
        assert leaf.open().schema.names == ["id"]
        assert self.found(table) == [{"p": 1, "id": 1}, {"p": 1, "id": 2}]
        table.optimize()
        (leaf,) = table.scan().plan().leaves
        assert leaf.open().to_table().to_pylist() == [{"id": 1, "p": 1}, {"id": 2, "p": 1}]

    def test_another_partitioning(self, table):
        table.evolve_partitioning(["bucket(2, p)"]).append([{"p": 1, "id": 3}])
        names = [leaf.open().schema.names for leaf in table.scan().plan().leaves]
        assert names == [["id"], ["id"], ["p", "id"]]
        assert [row["p"] for row in self.found(table)] == [1, None, 1]
        table.update({"id": "id + 10"}, "p = 1")
        assert [row["p"] for row in self.found(table)] == [None, 1, 1]
        table.rewrite()
        assert [row["p"] for row in self.found(table)] == [None, 1, 1]
        table.evolve_partitioning(["p"]).rewrite()
        assert [row["p"] for row in self.found(table)] == [None, 1, 1]
        assert {tuple(x.open().schema.names) for x in table.scan().plan().leaves} == {("id",)}

    def test_the_last_other_column_is_dropped(self, table):
        table.drop_column("id")
        assert sorted(phalanx.open(table.uri).scan().to_arrow()["p"].to_pylist(), key=str) == [
            1,
            None,
        ]
        table.append([{"p": 1}])
        assert phalanx.open(table.uri).count("p = 1") == 2
        table.optimize()
        found = phalanx.open(table.uri).scan().to_arrow()["p"].to_pylist()
        assert sorted(found, key=str) == [1, 1, None]

    def test_only_a_wider_column_is_left(self, root):
        """The first file holds it with the narrow type, and the schema of the leaf lacks it."""
        schema = pa.schema([("p", pa.int32()), ("id", pa.int64())])
        table = phalanx.create(root, schema, ["p"]).append([{"p": 1, "id": 1}])
        table.set_properties(OFF).append([{"p": 1, "id": 2}])
        table.delete("id = 2")
        table.change_type("p", pa.int64()).drop_column("id").append([{"p": 1}])
        assert phalanx.open(root).scan().to_arrow()["p"].to_pylist() == [1, 1]
        (leaf,) = table.scan().plan().leaves
        assert leaf.open().to_table()["p"].to_pylist() == [1, 1]

    def test_the_column_itself_is_dropped(self, table):
        table.drop_column("p").append([{"id": 3}])
        assert self.found(table) == [{"id": 1}, {"id": 2}, {"id": 3}]
        table.add_column("p", pa.int32())
        assert [row["p"] for row in self.found(table)] == [None] * 3

    def test_a_column_that_must_not_be_null(self, root):
        schema = pa.schema([pa.field("p", pa.string(), nullable=False), ("id", pa.int64())])
        table = phalanx.create(root, schema, ["p"], properties=OFF)
        table.append(pa.table({"p": ["x", "y"], "id": [1, 2]}, schema))
        assert self.found(table) == [{"p": "x", "id": 1}, {"p": "y", "id": 2}]
        assert table.scan().to_arrow().schema.field("p").nullable is False

    def test_replace(self, table):
        """A table that takes the place of another has columns of its own."""
        table.overwrite(pa.table({"p": pa.array([7], pa.int32()), "id": [7]}))
        assert self.found(table) == [{"p": 7, "id": 7}]


class TestManySmallLeaves:
    """They are read together as one dataset."""

    def test_columns_by_fragment(self, root):
        schema = pa.schema([("p", pa.int32()), ("q", pa.string()), ("id", pa.int64())])
        table = phalanx.create(root, schema, ["p", "q"], properties=OFF)
        held = [
            {"p": n if n % 5 else None, "q": f"q{n % 3}", "id": 2 * n + more}
            for n in range(80)
            for more in range(2)
        ]
        table.append(pa.Table.from_pylist(held, schema))
        table.append(pa.Table.from_pylist(held[:60], schema))
        # Other specs and settings in between.
        table.set_properties(ON).evolve_partitioning(["q"])
        table.append(pa.Table.from_pylist(held[:7], schema))
        expected = sorted([*held, *held[:60], *held[:7]], key=str)
        table = phalanx.open(root)
        assert sorted(table.scan().to_arrow().to_pylist(), key=str) == expected
        only = table.scan(["q", "p"]).to_arrow().to_pylist()
        assert sorted(only, key=str) == sorted(
            ({"q": row["q"], "p": row["p"]} for row in expected), key=str
        )
        found = table.scan(where="id % 2 = 1").to_arrow().to_pylist()
        assert sorted(found, key=str) == [row for row in expected if row["id"] % 2]
        found = table.scan(where="p > 10 AND q <> 'q1' AND id % 4 = 1").to_arrow().to_pylist()
        wanted = [r for r in expected if (r["p"] or 0) > 10 and r["q"] != "q1" and r["id"] % 4 == 1]
        assert sorted(found, key=str) == wanted
        assert table.count("p > 10 AND q <> 'q1' AND id % 4 = 1") == len(wanted)


class _Switching:
    """A table in which new files hold partition columns, or not, by turns."""

    @rule(value=st.sampled_from(["true", "false", "false", None]))
    def switch(self, value):
        table = phalanx.open(self.uri)
        table.set_properties({"materialize_partition_columns": value})
        self.switched(table)
        for handle in self.tables:
            handle.refresh()

    @rule()
    def bring_up(self):
        table = phalanx.open(self.uri)
        before = max(self.at)
        table.rewrite()
        for version in range(before + 1, table.version + 1):
            self.at[version] = self.at[before]


class RowsMachine(_Switching, test_machine.StrongMachine):
    def switched(self, table):
        self.landed(table, self.rows)


class ShapesMachine(_Switching, test_evolve_machine.Machine):
    def switched(self, table):
        self.landed(table, self.now.copy())


@pytest.mark.parametrize(
    "size",
    [test_machine.SMALL, pytest.param(test_machine.LARGE, marks=pytest.mark.soak)],
)
@pytest.mark.parametrize("machine", [RowsMachine, ShapesMachine])
def test_a_table_holds_what_a_plain_list_would(machine, size):
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    options = settings(
        size,
        deadline=None,
        suppress_health_check=slow,
        print_blob=True,
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(machine, settings=options)


class TestWeak:
    def test_many_writers_create_the_same_leaves(self, root):
        """The first version of a leaf numbers its fields from 0: one of them numbers them again."""
        phalanx.create(root, SCHEMA, ["part"], "weak", properties=OFF)
        start = threading.Barrier(6)

        def write(number):
            table = phalanx.open(root)
            start.wait()
            table.append([row(number, part, number) for part in ("a", None)])

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(write, range(6)))
        table = phalanx.open(root)
        expected = [row(number, part, number) for number in range(6) for part in ("a", None)]
        found = table.scan().to_arrow().to_pylist()
        assert sorted(found, key=str) == sorted(expected, key=str)
        assert columns(table) == {"a": ["id", "n"], None: ["id", "n"]}
        assert table.check().ok

    def test_made_strong(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], "weak", properties=OFF).append(ROWS)
        table.make_strong()
        table.set_properties(ON).append([row(5)])
        assert rows(table) == [*ROWS, row(5)]


class TestOthers:
    def test_rows_of_another_client(self, root):
        """Rows on main that lack the column are of the leaf's partition; others say theirs."""
        table = phalanx.create(root, SCHEMA, ["part"], properties={**OFF, "anchor": "commit"})
        table.append(ROWS)
        uris = {leaf.values["part"]: leaf.uri for leaf in table.scan().plan().leaves}
        lance.write_dataset(pa.table({"id": [8], "n": [0]}), uris["a"], mode="append")
        table.set_properties(ON).append([row(5, "c")])
        uris = {leaf.values["part"]: leaf.uri for leaf in table.scan().plan().leaves}
        other = pa.table({"id": [9], "n": [0], "part": ["b"]})
        lance.write_dataset(other, uris["c"], mode="append")
        assert rows(table) == [*ROWS, row(5, "c")]
        table.repair(stray="take")
        table = phalanx.open(root)
        assert rows(table) == [*ROWS, row(5, "c"), row(8), row(9, "b")]
        assert table.check().ok

    def test_a_manifest_that_is_rebuilt(self, root):
        """The values are in no file: the manifest has them twice."""
        table = phalanx.create(root, SCHEMA, ["part"], properties=OFF).append(ROWS)
        manifest = lance.dataset(f"{root}/__manifest")
        manifest.update({"partition_field_part": "NULL"}, "object_type = 'table'")
        assert not phalanx.check(root).ok
        phalanx.repair(root)
        assert rows(phalanx.open(table.uri)) == ROWS

    def test_export(self, root, tmp_path):
        table = phalanx.create(root, SCHEMA, ["part"], properties=OFF).append(ROWS)
        phalanx.interop.parquet.export(table, tmp_path / "out")
        found = pa.dataset.dataset(tmp_path / "out", partitioning="hive").to_table()
        assert sorted(found.select(SCHEMA.names).to_pylist(), key=lambda r: r["id"]) == ROWS
