"""Trees of key=value folders that become tables."""

import datetime as dt
import shutil

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.interop import hive
from phalanx.interop.hive_metadata import read_metadata
from phalanx.storage.manifest import ManifestVersion
from phalanx.transaction import lock
from tests.interop.trees import GOLDEN, golden, ids, paths_in, write_leaf

TREES = pytest.mark.parametrize("tree", GOLDEN, ids=[tree["name"] for tree in GOLDEN])
NOTHING = dt.timedelta(0)


class TestAdoption:
    @TREES
    @pytest.mark.parametrize("with_manifest", [True, False])
    def test_a_tree_becomes_a_table(self, root, tree, with_manifest):
        golden(root, tree, with_manifest)
        metadata = read_metadata(tree["properties"], "here")
        before = {path: _data(root / path) for path in paths_in(root)}
        if with_manifest:
            table = hive.adopt(root)
        else:
            table = hive.adopt(root, metadata.schema, metadata.partition_by)
        assert table.check().ok
        assert {path: _data(root / path) for path in paths_in(root)} == before
        for query in tree["queries"]:
            assert ids(table, query["where"]) == query["ids"]
        texts = lance.dataset(f"{root}/__manifest").metadata
        assert read_metadata(texts, "here").schema == metadata.schema

    def test_then_it_takes_everything(self, events):
        table = hive.adopt(events)
        day = dt.date(2025, 12, 10)
        table.append([{"id": 5, "event_date": day, "country": c} for c in ("US", "new")])
        table.update({"id": "id + 100"}, "country = 'US'")
        table.delete("country = 'FR'")
        table.optimize()
        assert ids(table) == [2, 5, 101, 103, 105]
        assert ids(phalanx.open(events, version=1)) == [1, 2, 3, 4]
        table.rollback(1)
        assert ids(table) == [1, 2, 3, 4]
        table.vacuum(NOTHING, force=True)
        assert ids(phalanx.open(events)) == [1, 2, 3, 4]
        assert table.check().ok

    def test_rows_that_were_deleted_do_not_come_back(self, events):
        """The first version of a leaf of others has rows."""
        table = hive.adopt(events)
        table.delete("country = 'CN'")
        table.append([{"id": 9, "event_date": dt.date(2025, 12, 10), "country": "CN"}])
        assert ids(table, "country = 'CN'") == [9]

    def test_leaves_of_others_are_never_deleted(self, events):
        table = hive.adopt(events)
        table.delete("TRUE")
        before = paths_in(events)
        report = table.vacuum(NOTHING, force=True)
        assert paths_in(events) == before
        assert len(report.notes) == 4

    def test_a_table_is_dropped_with_the_leaves_that_it_has_removed(self, events):
        table = hive.adopt(events)
        table.delete("country = 'CN'")
        write_leaf(events, "event_date=2025-12-10/country=XX.lance", [{"id": 1}])
        with pytest.raises(phalanx.InvalidInput, match=r"than the table: \S*country=XX.lance\."):
            table.drop()
        shutil.rmtree(events / "event_date=2025-12-10" / "country=XX.lance")
        table.drop()
        assert not events.exists()

    def test_a_declared_schema(self, events):
        fields = [("country", pa.string()), ("id", pa.int64()), ("event_date", pa.string())]
        table = hive.adopt(events, pa.schema(fields))
        assert table.schema == pa.schema(fields)
        assert ids(table, "event_date = '2025-12-11'") == [3, 4]
        assert table.check().ok

    def test_it_is_done_once(self, events):
        hive.adopt(events)
        with pytest.raises(phalanx.TableExists):
            hive.adopt(events)

    def test_what_is_no_tree(self, root):
        with pytest.raises(phalanx.TableNotFound):
            hive.adopt(root)

    def test_two_folders_with_one_value(self, root):
        for text in ("1", "01"):
            write_leaf(root, f"month={text}.lance", [{"id": int(text)}])
        schema = pa.schema([("id", pa.int64()), ("month", pa.int32())])
        assert ids(phalanx.open(root, schema=schema), "month = 1") == [1, 1]
        with pytest.raises(phalanx.UnsupportedTable, match="are one partition"):
            hive.adopt(root, schema)

    def test_floats_that_are_only_in_the_path(self, root):
        """A table takes floats from its files, for there are two zeros."""
        write_leaf(root, "x=0.5.lance", [{"id": 1}])
        schema = pa.schema([("id", pa.int64()), ("x", pa.float64())])
        assert phalanx.open(root, schema=schema).scan().to_arrow()["x"].to_pylist() == [0.5]
        with pytest.raises(phalanx.UnsupportedTable, match="see 'x'"):
            hive.adopt(root, schema)

    @pytest.mark.parametrize("step", ["adopt.leaves-checked", "adopt.before-commit"])
    def test_a_failure_leaves_the_tree_as_it_was(self, events, monkeypatch, step):
        monkeypatch.setenv("PHALANX_FAILPOINT", f"{step}:raise")
        with pytest.raises(OSError, match="failpoint"):
            hive.adopt(events)
        monkeypatch.delenv("PHALANX_FAILPOINT")
        assert not (events / "__manifest").exists()
        assert ids(phalanx.open(events)) == [1, 2, 3, 4]
        assert ids(hive.adopt(events)) == [1, 2, 3, 4]


class TestAdoptionOfANamespace:
    """The manifest of another client becomes the table's, and nobody may come in between."""

    @pytest.fixture
    def namespace(self, root):
        return golden(root, GOLDEN[0])

    def test_two_at_once(self, namespace, monkeypatch):
        whole, others = hive.reach, []

        def reach(step):
            whole(step)
            if step == "adopt.before-commit" and not others:
                others.append(step)
                others.append(hive.adopt(namespace))

        monkeypatch.setattr(hive, "reach", reach)
        monkeypatch.setattr(lock, "_PATIENCE_SECONDS", 0.1)
        with pytest.raises(phalanx.TableExists):
            hive.adopt(namespace)
        table = phalanx.open(namespace)
        assert table.check().ok
        assert ids(table) == ids(others[1]) == [1, 2, 3, 4]
        assert len(table.append([{"id": 9, "country": "US"}])) == 5

    def test_another_client_that_writes_meanwhile(self, namespace, monkeypatch):
        whole, rows = hive.reach, []

        def reach(step):
            whole(step)
            if step == "adopt.before-commit" and not rows:
                manifest = lance.dataset(f"{namespace}/__manifest")
                rows.append({"object_id": "theirs", "object_type": "namespace"})
                manifest.insert(pa.Table.from_pylist(rows, manifest.schema))

        monkeypatch.setattr(hive, "reach", reach)
        with pytest.raises(phalanx.ConflictError, match="try again"):
            hive.adopt(namespace)
        assert ids(phalanx.open(namespace)) == [1, 2, 3, 4]
        table = hive.adopt(namespace)
        names = lance.dataset(f"{namespace}/__manifest").to_table()["object_id"].to_pylist()
        assert "theirs" in names
        assert table.check().ok

    def test_cut_off_before_its_schema_is_published(self, namespace, monkeypatch):
        monkeypatch.setenv("PHALANX_FAILPOINT", "adopt.rows-replaced:raise")
        with pytest.raises(OSError, match="failpoint"):
            hive.adopt(namespace)
        monkeypatch.delenv("PHALANX_FAILPOINT")
        table = phalanx.open(namespace)
        assert (table.version, ids(table)) == (1, [1, 2, 3, 4])
        with pytest.raises(phalanx.TableExists):
            hive.adopt(namespace)
        table.append([{"id": 9, "country": "US"}])
        assert ids(phalanx.open(namespace)) == [1, 2, 3, 4, 9]
        assert phalanx.open(namespace).check().ok

    def test_a_reply_that_is_lost(self, namespace, monkeypatch):
        whole = ManifestVersion.replace

        def replace(self, *arguments):
            whole(self, *arguments)
            raise OSError("the reply is lost")

        monkeypatch.setattr(ManifestVersion, "replace", replace)
        assert ids(hive.adopt(namespace)) == [1, 2, 3, 4]


def _data(leaf):
    return sorted(path.name for path in (leaf / "data").iterdir())
