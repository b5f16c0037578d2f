"""Schema evolution: one snapshot each, no leaf is touched, nothing is misread."""

import datetime as dt
import threading
from decimal import Decimal

import lance
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError, InvalidInput
from phalanx.storage.field_ids import ids_of
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.transaction import commit
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import read_statistics

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("part", pa.string()),
        ("f", pa.float32()),
        ("day", pa.date32()),
        ("price", pa.decimal128(5, 2)),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)


def row(id, part="a", **others):
    found = {
        "id": id,
        "part": part,
        "f": id + 0.5,
        "day": dt.date(2025, 1, id),
        "price": Decimal(id),
        "s": {"x": id, "y": f"y{id}"},
    }
    return found | others


ROWS = [row(1), row(2, "b"), row(3, None, s=None, f=None)]


@pytest.fixture
def table(root):
    return phalanx.create(root, SCHEMA, ["part"]).append(ROWS)


def column(table, name, where=None):
    """Values of a column by id."""
    found = phalanx.open(table.uri).scan(["id", name], where).to_arrow()
    return dict(zip(found["id"].to_pylist(), found[name].to_pylist(), strict=True))


def ids(table, where=None):
    return sorted(phalanx.open(table.uri).scan(["id"], where).to_arrow()["id"].to_pylist())


def leaves(table):
    return table.partitions().select(["uri", "version"]).to_pylist()


def field_id(table, name):
    return table._snapshot.head.schema.column((name,)).field_id


def highest(table, name):
    """The greatest value that statistics know, as a number."""
    snapshot = phalanx.open(table.uri)._snapshot
    rows = [snapshot.leaves.row(index) for index in range(len(snapshot.leaves))]
    id = snapshot.head.schema.column((name,)).field_id
    found = [stats[id] for stats in read_statistics(snapshot, rows).values() if id in stats]
    return max((stats.high for stats in found if stats.high is not None), default=None)


class TestOneSnapshot:
    @pytest.mark.parametrize(
        ("change", "operation"),
        [
            (lambda t: t.add_column("n", pa.int64()), "add column"),
            (lambda t: t.add_column("n", "int64", 5, nullable=False), "add column"),
            (lambda t: t.drop_column("f"), "drop column"),
            (lambda t: t.rename_column("part", "land"), "rename column"),
            (lambda t: t.change_type("id", pa.int64()), "change type"),
            (lambda t: t.move_column("id", after="f"), "move column"),
            (lambda t: t.reorder_columns(SCHEMA.names[::-1]), "reorder columns"),
            (lambda t: t.evolve_partitioning(["id"]), "evolve partitioning"),
        ],
    )
    def test_no_leaf_is_touched(self, table, change, operation):
        before = leaves(table)
        assert change(table) is table
        assert table.version == 3
        assert leaves(table) == before
        last = table.snapshots().to_pylist()[-1]
        assert (last["operation"], last["leaves"]) == (operation, 0)
        assert phalanx.open(table.uri).schema == table.schema
        assert phalanx.open(table.uri, version=2).schema == SCHEMA
        assert phalanx.open(table.uri, version=2).scan().to_arrow().num_rows == 3
        assert table.check().ok

    def test_the_copy_for_other_clients(self, table):
        table.rename_column("part", "land")
        said = lance.dataset(f"{table.uri}/__manifest").metadata["schema"]
        assert '"land"' in said
        assert '"part"' not in said

    def test_several_in_one_transaction(self, table):
        with table.transaction() as tx:
            tx.rename_column("f", "g")
            tx.add_column("f", pa.string(), default="new")
            tx.append([row(4, f="given") | {"g": 1.0}])
            tx.drop_column("g")
            assert tx.scan(["f"]).to_arrow()["f"].to_pylist().count("new") == 3
            tx.delete("f = 'given' AND id = 4")
        assert table.version == 3
        assert column(table, "f") == {1: "new", 2: "new", 3: "new"}
        assert table.check().ok

    def test_given_up_with_the_transaction(self, table):
        tx = table.transaction()
        tx.add_column("n", pa.int64())
        with pytest.raises(InvalidInput), tx:
            tx.drop_column("none")
        assert phalanx.open(table.uri).schema == SCHEMA

    def test_refused(self, table):
        for change in (
            lambda: table.add_column("id", pa.int64()),
            lambda: table.drop_column("none"),
            lambda: table.rename_column("id", "part"),
            lambda: table.change_type("id", pa.int8()),
            lambda: table.add_column("v", pa.string_view()),
        ):
            with pytest.raises(InvalidInput):
                change()
        assert phalanx.open(table.uri).version == 2

    def test_a_weak_table(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], transactions="weak").append(ROWS)
        with pytest.raises(InvalidInput, match="make_strong"):
            table.add_column("n", pa.int64())
        table.make_strong().add_column("n", pa.int64(), default=1)
        assert column(table, "n") == {1: 1, 2: 1, 3: 1}


class TestAdd:
    def test_null(self, table):
        table.add_column("n", pa.int64())
        assert column(table, "n") == {1: None, 2: None, 3: None}
        assert ids(table, "n IS NULL") == [1, 2, 3]
        assert ids(table, "n = 1 OR id = 1") == [1]
        assert ids(table, "NOT (n = 1)") == []
        table.append([row(4, n=9), row(5, "c", n=None)])
        assert column(table, "n") == {1: None, 2: None, 3: None, 4: 9, 5: None}
        assert ids(table, "n = 9") == [4]
        assert table.check().ok

    def test_a_default_is_for_rows_without_the_column(self, table):
        """Before it was added, or given without it; NULL that is given is NULL."""
        table.add_column("n", pa.int64(), default=7)
        assert ids(table, "n = 7") == [1, 2, 3]
        table.append([row(4), row(5, n=None), row(6, n=8)])
        table.append(pa.table({"id": pa.array([7], pa.int32()), "part": ["a"]}))
        assert column(table, "n") == {1: 7, 2: 7, 3: 7, 4: 7, 5: None, 6: 8, 7: 7}
        assert ids(table, "n = 7") == [1, 2, 3, 4, 7]
        assert ids(table, "n IS NULL") == [5]
        assert table.count("n > 7") == 1
        assert table.check().ok

    def test_rows_that_have_nothing_but_defaults(self, root):
        table = phalanx.create(root, pa.schema([("id", pa.int32())]))
        moment = pa.scalar(1_700_000_000_000_000_001, pa.timestamp("ns"))
        table.add_column("at", pa.timestamp("ns"), default=moment).drop_column("id")
        table.append([{}, {"at": None}, {}])
        assert table.count("at IS NULL") == 1
        found = table.scan().to_arrow()["at"].drop_null().combine_chunks()
        assert found.cast(pa.int64()).to_pylist() == [1_700_000_000_000_000_001] * 2

    def test_a_default_of_a_column_that_must_not_be_null(self, table):
        table.add_column("n", pa.string(), default="x", nullable=False)
        table.append([row(4)])
        assert set(column(table, "n").values()) == {"x"}
        with pytest.raises(InvalidInput, match="NULL"):
            table.append([row(5, n=None)])

    @pytest.mark.parametrize(
        ("type", "value", "where"),
        [
            (pa.float32(), 0.5, "n > 0.25"),
            (pa.decimal128(5, 1), Decimal("2.5"), "n = 2.5"),
            (pa.bool_(), True, "n"),
            (pa.date32(), dt.date(2025, 1, 1), "n < DATE '2025-02-01'"),
            (pa.timestamp("us", "UTC"), dt.datetime(2025, 1, 1, tzinfo=dt.UTC), "n IS NOT NULL"),
            (pa.string(), "it's", "n LIKE 'it%'"),
            (pa.binary(), b"\x01", "n = X'01'"),
        ],
        ids=str,
    )
    def test_filters_on_defaults(self, table, type, value, where):
        table.add_column("n", type, default=value)
        assert ids(table, where) == [1, 2, 3]
        assert ids(table, "n IS NULL") == []
        assert set(column(table, "n").values()) == {value}
        assert table.delete(f"{where} AND id < 3") == 2
        assert ids(table) == [3]

    def test_nested_types(self, table):
        table.add_column("n", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]))
        assert ids(table, "n IS NULL") == [1, 2, 3]
        assert ids(table, "n.a IS NULL") == [1, 2, 3]
        table.append([row(4, n={"a": 1, "b": ["x"]})])
        assert column(table, "n")[4] == {"a": 1, "b": ["x"]}
        assert ids(table, "n.a = 1") == [4]

    def test_only_columns_that_leaves_do_not_have(self, table):
        table.add_column("n", pa.int64(), default=3)
        found = table.scan(["n"]).to_arrow()
        assert found["n"].to_pylist() == [3, 3, 3]
        assert table.scan(["n"], limit=2).to_arrow().num_rows == 2
        assert table.scan(["n"], "n = 4").to_arrow().num_rows == 0


class TestRenameAndDrop:
    def test_rename(self, table):
        table.rename_column("f", "g")
        assert column(table, "g") == {1: 1.5, 2: 2.5, 3: None}
        assert ids(table, "g > 2") == [2]
        table.append([{"id": 4, "g": 9.0}])
        assert column(table, "g")[4] == 9.0
        assert table.update({"g": "g + 1"}, "g > 2") == 2
        assert column(table, "g") == {1: 1.5, 2: 3.5, 3: None, 4: 10.0}
        assert table.check().ok

    def test_names_that_change_places(self, table):
        table.rename_column("id", "x").rename_column("part", "id").rename_column("x", "part")
        found = table.scan(where="part = 2").to_arrow().to_pylist()
        assert [(r["part"], r["id"]) for r in found] == [(2, "b")]
        assert table.scan(where="id = 'b'").plan().selected == 1

    def test_dropped_and_added_again(self, table):
        before = field_id(table, "f")
        table.drop_column("f")
        with pytest.raises(InvalidInput, match="unknown column"):
            table.scan(["f"])
        table.add_column("f", pa.float32())
        assert field_id(table, "f") > before
        assert column(table, "f") == {1: None, 2: None, 3: None}
        assert ids(table, "f IS NOT NULL") == []
        table.append([row(4)])
        assert column(table, "f") == {1: None, 2: None, 3: None, 4: 4.5}
        assert phalanx.open(table.uri, version=2).scan(["f"]).to_arrow()["f"].null_count == 1

    def test_ids_are_not_given_back_by_a_rollback(self, table):
        table.add_column("n", pa.int64())
        first = field_id(table, "n")
        table.append([row(4, n=1)])
        table.rollback(2)
        assert table.schema == SCHEMA
        table.add_column("n", pa.int64())
        assert field_id(table, "n") > first
        assert column(table, "n") == {1: None, 2: None, 3: None}
        table.rollback(4)
        assert column(table, "n")[4] == 1

    def test_statistics_survive_renames_and_are_not_another_columns(self, table):
        assert highest(table, "id") == 3
        table.rename_column("id", "key")
        assert highest(table, "key") == 3
        table.drop_column("key").add_column("key", pa.int32())
        assert highest(table, "key") is None


class TestPartitionSources:
    def test_rename(self, table):
        table.rename_column("part", "land")
        plan = table.scan(where="land = 'a'").plan()
        assert (plan.selected, plan.leaves[0].residual) == (1, None)
        table.append([{"id": 4, "land": "b"}])
        assert ids(table, "land = 'b'") == [2, 4]
        assert table.partitions().num_rows == 3
        assert table.count_by(["land"])["count"].to_pylist() == [1, 1, 2]
        assert table.spec.spell(table._snapshot.head.schema) == ["land"]

    def test_a_dropped_one_counts_as_null(self, table):
        table.drop_column("part")
        assert ids(table) == [1, 2, 3]
        table.append([{"id": 4}, {"id": 5}])
        found = {r["part"]: r["rows"] for r in table.partitions().to_pylist()}
        assert found == {None: 3, "a": 1, "b": 1}
        assert ids(table) == [1, 2, 3, 4, 5]
        assert table.delete("id IN (1, 4)") == 2
        assert table.update({"f": "0"}, "id = 2") == 1
        assert {r["part"]: r["rows"] for r in table.partitions().to_pylist()} == {None: 3}
        assert table.count_by(["part"]).to_pylist() == [{"part": None, "count": 3}]
        with pytest.raises(InvalidInput, match="was dropped"):
            table.count_by(["part"], "id > 2")
        assert "dropped column" in repr(table)
        assert table.check().ok

    def test_a_dropped_one_in_several_specs(self, root):
        table = phalanx.create(root, SCHEMA, ["multi_bucket(4, id, part)"])
        table.append(ROWS)
        table.evolve_partitioning([phalanx.expr("upper(col0)", ["part"], name="big"), "day"])
        table.append([row(4)])
        table.drop_column("part")
        table.append([{"id": 5, "day": dt.date(2025, 1, 4)}])
        assert ids(table) == [1, 2, 3, 4, 5]
        assert ids(table, "day = DATE '2025-01-04'") == [4, 5]
        assert table.partitions()["big"].to_pylist().count("A") == 1
        assert table.check().ok

    def test_another_by_its_name(self, table):
        table.drop_column("part").add_column("part", pa.string(), default="z")
        assert ids(table, "part = 'a'") == []
        assert ids(table, "part = 'z'") == [1, 2, 3]
        table.evolve_partitioning(["part"])
        assert [f.field_id for f in table.spec.fields] == ["part_2"]
        table.append([row(4, "a")])
        assert ids(table, "part = 'a'") == [4]
        assert table.check().ok

    @pytest.mark.parametrize("entry", ["id", "truncate(2, id)", "bucket(4, id)"])
    def test_wider(self, root, entry):
        table = phalanx.create(root, SCHEMA, [entry]).append(ROWS)
        before = leaves(table)
        table.change_type("id", pa.int64())
        assert leaves(table) == before
        table.append([row(1), row(2), {"id": 2**40}])
        assert len(leaves(table)) <= len(before) + 1, "values are where they were"
        for id in (1, 2, 3, 2**40):
            assert set(ids(table, f"id = {id}")) == {id}
            assert table.scan(where=f"id = {id}").plan().selected == 1
        if entry != "bucket(4, id)":
            name = table.spec.fields[0].column_name
            manifest = lance.dataset(f"{table.uri}/__manifest")
            assert manifest.schema.field(name).type == pa.int64()
        assert table.check().ok
        assert phalanx.open(root, version=2).count("id = 2") == 1

    @pytest.mark.parametrize("values", [[], [None], [None, 1]], ids=["none", "null", "some"])
    def test_wider_and_readable_all_the_time(self, root, monkeypatch, values):
        """Also where the manifest's column has no value: without the column nobody can read."""
        table = phalanx.create(root, SCHEMA, ["id"])
        if values:
            table.append([{"id": value, "part": "a"} for value in values])
        table.evolve_partitioning(["id", "bucket(4, part)"])
        dropped, seen, real, drop = [], [], commit.reach, lance.LanceDataset.drop_columns

        def recording(self, names):
            dropped.extend(names)
            return drop(self, names)

        monkeypatch.setattr(lance.LanceDataset, "drop_columns", recording)

        def with_a_reader(name):
            if name == "commit.columns-added":
                found = Snapshot(ManifestVersion(Location(root)))
                seen.append((found.head.schema.arrow.field("id").type, len(found.leaves)))
            real(name)

        monkeypatch.setattr(commit, "reach", with_a_reader)
        table.change_type("id", pa.int64())
        assert seen == [(pa.int32(), len(values))]
        assert not dropped
        table.append([{"id": 2**40, "part": "a"}])
        assert table.count() == len(values) + 1
        assert table.check().ok

    @pytest.mark.parametrize("version", [2, 4])
    def test_wider_floats_and_back(self, root, version):
        table = phalanx.create(root, SCHEMA, ["f"])
        table.append([row(1, f=0.1), row(2, f=float("nan")), row(3, f=None), row(4, f=-0.0)])
        table.change_type("f", pa.float64())
        table.append([row(1, f=0.1), row(6, f=0.0)])
        # A tenth in 32 bits is not a tenth in 64: two partitions.
        assert table.partitions().num_rows == 5
        assert ids(table, "f = 0.1") == [1]
        assert ids(table, "f = 0") == [4, 6]
        table.rollback(version)
        table.append([row(5, f=0.5)])
        assert ids(table, "f = 0") == ([4] if version == 2 else [4, 6])
        assert ids(table, "f = 0.5") == [5]
        assert table.scan(where="f = 0.5").plan().selected == 1
        table.append([row(7, f=0.5)])
        assert table.count("f = 0.5") == 2
        assert table.check().ok

    def test_wider_in_a_transaction_with_rows(self, root):
        table = phalanx.create(root, SCHEMA, ["f", "id"]).append([row(1, f=0.1)])
        with table.transaction() as tx:
            tx.append([row(1, f=0.1), row(2, f=0.1), row(3, f=None)])
            tx.change_type("f", pa.float64())
            tx.change_type("id", pa.int64())
            tx.append([row(1, f=0.1), {"id": 2**40, "f": 0.5}])
            assert tx.count("f = 0.5") == 1
        assert table.partitions().num_rows == 5
        assert sorted(r["rows"] for r in table.partitions().to_pylist()) == [1, 1, 1, 1, 2]
        assert ids(table, "f = 0.1") == [1]
        assert ids(table, "f > 0.1 AND f < 0.2") == [1, 1, 2]
        assert ids(table, "f = 0.5") == [2**40]
        assert table.check().ok

    def test_a_date_cannot_become_a_timestamp(self, root):
        table = phalanx.create(root, SCHEMA, ["day"])
        table.evolve_partitioning(["part"])
        with pytest.raises(InvalidInput, match="belong elsewhere"):
            table.change_type("day", pa.timestamp("us"))

    def test_evolve_after_a_rename(self, table):
        table.rename_column("part", "land")
        table.evolve_partitioning(["land", "id"])
        assert [f.field_id for f in table.spec.fields] == ["part", "id"]
        table.append([{"id": 4, "land": "a"}])
        assert table.scan(where="land = 'a'").plan().selected == 2


class TestWiden:
    @pytest.fixture
    def wide(self, table):
        table.change_type("id", pa.int64()).change_type("f", pa.float64())
        table.change_type("day", pa.timestamp("us")).change_type("price", pa.decimal128(20, 2))
        return table.change_type("s.x", pa.int64())

    def check(self, table):
        assert ids(table, "id = 2") == [2]
        assert ids(table, "id < 3000000000") == [1, 2, 3]
        assert ids(table, "f = 1.5") == [1]
        assert ids(table, "f IS NULL") == [3]
        assert ids(table, "day = TIMESTAMP '2025-01-02T00:00:00'") == [2]
        assert ids(table, "day < TIMESTAMP '2025-01-02T00:00:00.000001'") == [1, 2]
        assert ids(table, "price >= 2.00") == [2, 3]
        assert ids(table, "s.x = 1") == [1]
        assert ids(table, "s.x IS NULL") == [3]
        found = phalanx.open(table.uri).scan().to_arrow().sort_by("id").to_pylist()
        assert found[0]["day"] == dt.datetime(2025, 1, 1)
        assert found[0]["s"] == {"x": 1, "y": "y1"}
        assert found[2]["s"] is None

    def test_reading(self, wide):
        self.check(wide)

    def test_written_anew_with_the_next_rows(self, wide):
        big = {"id": 2**40 + 1, "part": "a", "s": {"x": 2**40}, "price": Decimal(10**12)}
        wide.append([big])
        assert ids(wide, "s.x > 5") == [2**40 + 1]
        assert ids(wide, "price > 1000") == [2**40 + 1]
        wide.delete("id > 1000")
        self.check(wide)
        assert wide.check().ok

    def test_changes(self, wide):
        assert wide.delete("f = 1.5") == 1
        assert wide.update({"f": "f * 2"}, "s.x = 2") == 1
        assert column(wide, "f") == {2: 5.0, 3: None}
        counts = wide.merge([{"id": 2, "part": "b", "f": 0.0}], ["id"])
        assert counts["updated"] == 1
        assert column(wide, "f") == {2: 0.0, 3: None}

    def test_statistics(self, wide):
        assert highest(wide, "id") == 3
        assert highest(wide, "price") == 300
        assert highest(wide, "day") is None, "days are no microseconds"
        noon = dt.datetime(1970, 1, 1, 0, 0, 0, 5)
        wide.append([{"id": 9, "part": "new", "day": noon}])
        assert highest(wide, "day") == 5

    def test_floats_are_compared_as_doubles(self, root):
        table = phalanx.create(root, pa.schema([("id", pa.int32()), ("f", pa.float32())]))
        table.append([{"id": 1, "f": 0.1}])
        table.change_type("f", pa.float64())
        assert ids(table, "f = 0.1") == []
        assert ids(table, "f > 0.1") == [1]

    def test_counts_after_rows_were_written_anew(self, table):
        table.append([row(4), row(5)])
        table.delete("id = 4")
        table.change_type("id", pa.int64())
        table.append([row(6)])
        found = {r["part"]: r for r in table.partitions().to_pylist()}["a"]
        assert (found["rows"], found["fragments"]) == (3, 2)
        assert ids(table, "part = 'a'") == [1, 5, 6]
        assert table.check().ok


class TestNested:
    def test_all_at_once(self, table):
        table.add_column("s.z", pa.int64(), first=True)
        table.rename_column("s.y", "w").drop_column("s.x")
        assert table.schema.field("s").type == pa.struct([("z", pa.int64()), ("w", pa.string())])
        assert column(table, "s") == {1: {"z": None, "w": "y1"}, 2: {"z": None, "w": "y2"}, 3: None}
        assert ids(table, "s.w = 'y2'") == [2]
        assert ids(table, "s.z IS NULL") == [1, 2, 3]
        assert ids(table, "s IS NULL") == [3]
        table.append([row(4, s={"z": 5, "w": "v"})])
        assert column(table, "s")[1] == {"z": None, "w": "y1"}
        assert ids(table, "s.z = 5") == [4]
        assert ids(table, "s IS NULL") == [3]
        assert table.check().ok

    def test_no_field_of_a_struct_is_left(self, table):
        """Files do not tell any more which structs are NULL, so rows are written anew."""
        table.add_column("s.z", pa.int64()).drop_column("s.x").drop_column("s.y")
        assert column(table, "s") == {1: {"z": None}, 2: {"z": None}, 3: None}
        table.append([row(4, None, s={"z": 1}), row(5, s=None)])
        assert column(table, "s") == {
            1: {"z": None},
            2: {"z": None},
            3: None,
            4: {"z": 1},
            5: None,
        }

    def test_lists_and_maps_have_no_fields_to_change(self, root):
        schema = pa.schema([("l", pa.list_(pa.struct([("a", pa.int32())])))])
        table = phalanx.create(root, schema)
        for path in ("l.item.a", "l.a"):
            with pytest.raises(InvalidInput):
                table.change_type(path, pa.int64())


class TestLeaves:
    def test_only_the_description_changes(self, table):
        """Files stay for what NULL, names and order can tell; the ids are the table's."""
        before = set(table.files()["path"].to_pylist())
        table.add_column("n", pa.int64()).rename_column("f", "g").drop_column("day")
        table.reorder_columns(["n", "s", "price", "g", "part", "id"])
        table.append([{"id": 4, "part": "a", "n": 1}])
        assert before < set(table.files()["path"].to_pylist())
        head = table._snapshot.head
        for leaf in table.scan(where="part = 'a'").plan().leaves:
            found = lance.dataset(leaf.uri, version=leaf.version)
            assert ids_of(found.lance_schema) == head.schema.field_ids
            assert found.schema.names == table.schema.names
        assert ids(table, "n = 1") == [4]
        assert column(table, "g")[1] == 1.5

    def test_rows_that_were_deleted_stay_so(self, table):
        table.append([row(4), row(5)])
        table.delete("id = 4")
        table.add_column("n", pa.int64(), default=1)
        table.append([row(6, n=2)])
        assert column(table, "n", "part = 'a'") == {1: 1, 5: 1, 6: 2}
        table.rename_column("n", "m")
        table.update({"m": "m + 1"}, "id = 5")
        assert column(table, "m", "part = 'a'") == {1: 1, 5: 2, 6: 2}

    def test_many_small_leaves_of_different_schemas(self, root):
        """They are read together as far as they are alike."""
        table = phalanx.create(root, pa.schema([("id", pa.int64()), ("v", pa.int32())]), ["id"])
        for start in range(0, 30, 6):
            rows = [{"id": i, table.schema.names[-1]: i} for i in range(start, start + 6)]
            table.append(rows)
            table.append([{"id": start, table.schema.names[-1]: -1}])
            if start % 12:
                table.drop_column(table.schema.names[-1])
                table.add_column(f"w{start}", pa.int32(), default=start)
            else:
                table.rename_column(table.schema.names[-1], f"v{start}")
        name = table.schema.names[-1]
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted(
            [*range(30), *range(0, 30, 6)]
        )
        found = column_by_id(table, name)
        assert found[5] == [18]
        assert found[24] == [-1, 24]
        assert table.count(f"{name} = 18") == table.scan(where=f"{name} = 18").to_arrow().num_rows
        assert table.check().ok

    def test_files_for_other_ids_are_refused(self, table):
        """Committed all the same, their rows would read as NULL."""
        head, place = table._snapshot.head, table._snapshot.leaves.row(0)
        old = Leaf(table._snapshot.location, place.location, head.schema)
        rows = pa.Table.from_pylist([row(9)], SCHEMA)
        written = old.write(rows, old.writable(place.read_version))
        table.drop_column("f").add_column("f", pa.float32())
        new = Leaf(old.location, old.folder, table._snapshot.head.schema)
        for change in (new.commit, new.commit_on_main):
            with pytest.raises(ConflictError, match="another schema"):
                change(place.read_version, LeafDelta(added=(written,)))
        table.drop_column("f").add_column("must", pa.int64(), default=1)
        missing = Leaf(old.location, old.folder, table._snapshot.head.schema)
        with pytest.raises(ConflictError):
            missing.commit(place.read_version, LeafDelta(added=(written,)))


def column_by_id(table, name):
    found = {}
    for r in table.scan(["id", name]).to_arrow().to_pylist():
        found.setdefault(r["id"], []).append(r[name])
    return {id: sorted(values, key=str) for id, values in found.items()}


class TestMergeSchema:
    def test_new_columns_come_with_the_rows(self, table):
        rows = pa.table({"id": pa.array([4], pa.int32()), "n": [7], "words": [["a", "b"]]})
        table.append(rows, merge_schema=True)
        assert table.version == 3
        assert table.snapshots()["operation"].to_pylist()[-1] == "append"
        assert table.schema.names == [*SCHEMA.names, "n", "words"]
        assert column(table, "n") == {1: None, 2: None, 3: None, 4: 7}
        assert column(table, "words")[4] == ["a", "b"]

    @pytest.mark.parametrize(
        "data",
        [
            [{"id": 4, "n": 1.5}, {"id": 5}],
            pd.DataFrame({"id": [4, 5], "n": [1.5, None]}),
            pa.table({"id": [4, 5], "n": [1.5, None]}).to_reader(),
            pa.table({"id": [4, 5], "n": [1.5, None]}).to_batches()[0],
            pa.dataset.dataset(pa.table({"id": [4, 5], "n": [1.5, None]})),
            pl.DataFrame({"id": [4, 5], "n": [1.5, None]}),
        ],
        ids=lambda data: f"{type(data).__module__}.{type(data).__name__}",
    )
    def test_whatever_rows_come_in(self, table, data):
        table.append(data, merge_schema=True)
        assert column(table, "n", "id > 3") == {4: 1.5, 5: None}

    def test_overwrite_and_merge(self, table):
        table.overwrite([{"id": 2, "part": "b", "n": 1}], "partitions", merge_schema=True)
        assert column(table, "n") == {1: None, 2: 1, 3: None}
        counts = table.merge([{"id": 2, "part": "b", "m": "x"}], ["id"], merge_schema=True)
        assert counts["updated"] == 1
        assert column(table, "m") == {1: None, 2: "x", 3: None}
        table.overwrite([{"id": 1, "k": 2}], where="id = 1", merge_schema=True)
        assert column(table, "k") == {1: 2, 2: None, 3: None}
        assert table.snapshots()["operation"].to_pylist()[2:4] == ["overwrite", "merge"]

    def test_nothing_new(self, table):
        table.append([row(4)], merge_schema=True)
        assert table.schema == SCHEMA
        assert ids(table) == [1, 2, 3, 4]

    def test_refused(self, table):
        with pytest.raises(InvalidInput, match="no column 'n'"):
            table.append([row(4, n=1)])
        with pytest.raises(InvalidInput, match="no type"):
            table.append([row(4, n=None)], merge_schema=True)
        with pytest.raises(InvalidInput):
            table.append([row(4, n=1), row(5, n="x")], merge_schema=True)
        with pytest.raises(InvalidInput):
            table.append(pa.table({"id": ["x"], "n": [1]}), merge_schema=True)
        assert phalanx.open(table.uri).version == 2


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


class TestHealth:
    def test_vacuum_keeps_what_old_schemas_need(self, table):
        table.tag("then")
        table.change_type("id", pa.int64()).append([row(4)])
        table.vacuum(dt.timedelta(0), force=True)
        assert table.check().ok
        then = phalanx.open(table.uri, version="then")
        assert then.schema == SCHEMA
        assert sorted(then.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
        assert ids(table) == [1, 2, 3, 4]

    def test_repair_leaves_a_good_table_alone(self, table):
        table.rename_column("part", "land").change_type("id", pa.int64())
        table.add_column("n", pa.int64(), default=1).append([{"id": 9, "land": "a"}])
        assert not table.repair(dry_run=True).mended
        assert ids(table) == [1, 2, 3, 9]

    def test_the_next_writer_tells_other_clients(self, table):
        """A copy that was not written, because somebody died before."""
        table.rename_column("part", "land")
        manifest = lance.dataset(f"{table.uri}/__manifest")
        operation = lance.LanceOperation.UpdateConfig(
            table_metadata_updates=lance.LanceOperation.UpdateMap({"schema": "old"})
        )
        lance.LanceDataset.commit(manifest, operation, read_version=manifest.version)
        assert not table.refresh().check().ok
        table.append([{"id": 4}])
        assert table.check().ok


def test_files_that_no_column_is_left_of_still_count(root):
    """Lance does not read a file that has none of the columns, not even to count its rows."""
    table = phalanx.create(root, pa.schema([("a", pa.int64())])).append([{"a": 1}])
    table.add_column("b", pa.int64())
    table.append([{"a": 2, "b": 2}])
    table.drop_column("a")
    table.append([{"b": 3}])
    assert [row["b"] for row in table.scan().to_arrow().to_pylist()] == [None, 2, 3]
    assert (table.count(), table.count("b IS NULL")) == (3, 1)
    assert table.optimize().files_after == 1
    assert [row["b"] for row in table.scan().to_arrow().to_pylist()] == [None, 2, 3]


class TestStatisticsOfDatesThatBecameTimestamps:
    """Days and microseconds are both numbers, and must not be taken for each other."""

    SCHEMA = pa.schema([("k", pa.int32()), ("d", pa.date32())])

    def known(self, table, version=None):
        snapshot = phalanx.open(table.uri, version=version)._snapshot
        rows = [snapshot.leaves.row(i) for i in range(len(snapshot.leaves))]
        return [found.get(1) for found in read_statistics(snapshot, rows).values()]

    @pytest.fixture
    def dated(self, tmp_path):
        table = phalanx.create(tmp_path / "dated", self.SCHEMA, ["k"])
        return table.append([{"k": 1, "d": dt.date(2020, 1, 1)}])

    def test_changed_and_added_to_at_once(self, dated):
        with dated.transaction() as tx:
            tx.change_type("d", pa.timestamp("us"))
            tx.append([{"k": 1, "d": dt.datetime(2021, 1, 1)}])
        assert all(found is None or not found.exact for found in self.known(dated))

    def test_added_to_and_changed_at_once(self, dated):
        with dated.transaction() as tx:
            tx.append([{"k": 2, "d": dt.date(2021, 1, 1)}])
            tx.change_type("d", pa.timestamp("us"))
        assert all(found is None or not found.exact for found in self.known(dated))

    def test_an_earlier_version_after_a_rollback(self, dated):
        dated.change_type("d", pa.timestamp("us"))
        version = dated.version
        dated.append([{"k": 1, "d": dt.datetime(2020, 1, 3)}])
        dated.rollback(2)
        assert self.known(dated, version) == [None]


def test_merge_by_a_column_that_has_become_nullable(tmp_path):
    schema = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int32())])
    table = phalanx.create(tmp_path / "t", schema, [])
    table.append([{"k": 1, "v": 1}])
    table.make_nullable("k")
    counts = table.merge([{"k": 1, "v": 2}, {"k": 3, "v": 3}], on=["k"])
    assert (counts.updated, counts.inserted) == (1, 1)


@pytest.mark.parametrize("type", [pa.date32(), pa.timestamp("us"), pa.decimal128(5, 2)])
def test_a_table_without_leaves(tmp_path, type):
    table = phalanx.create(tmp_path / "t", pa.schema([("p", type)]), ["p"])
    table.append(pa.table({"p": pa.nulls(2, type)}))
    table.delete("TRUE")
    assert table.count() == 0
    assert table.scan(where="p IS NULL").to_arrow().num_rows == 0
