"""Schema evolution: one snapshot each, no leaf is touched, nothing is misread."""

import datetime as dt
from decimal import Decimal

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError, InvalidInput
from phalanx.storage.field_ids import ids_of
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from tests.table.operations.evolve.columns import (
    ROWS,
    SCHEMA,
    column,
    field_id,
    highest,
    ids,
    leaves,
    row,
)


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
        written = old.writer(place.read_version).write(rows)
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
