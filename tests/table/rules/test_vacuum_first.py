"""Vacuum and expiry before a repair: what can be brought back is kept, and comes back once."""

import datetime as dt

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.lru import LruCache
from phalanx.table import strays
from phalanx.transaction import snapshot as snapshots

SCHEMA = pa.schema([("id", pa.int64()), ("c", pa.string())])
NOW = dt.timedelta(0)


def rows(*ids, c="FR"):
    return [{"id": id, "c": c} for id in ids]


def ids(uri):
    forget()
    return sorted(phalanx.open(uri).scan().to_arrow()["id"].to_pylist())


def forget():
    """Be another process: nothing is known of the table."""
    snapshots._recent = LruCache(16)


def lose(uri, where):
    manifest = lance.dataset(f"{uri}/__manifest")
    manifest.delete(f"object_type = 'table' AND {where}")
    forget()


def restore(uri, back=1):
    newest = lance.dataset(f"{uri}/__manifest").version
    lance.dataset(f"{uri}/__manifest", version=newest - back).restore()
    forget()


@pytest.fixture
def uri(root, monkeypatch):
    monkeypatch.setenv("PHALANX_CACHE", "off")
    table = phalanx.create(root, SCHEMA, ["c"])
    table.append(rows(1, 2) + rows(3, 4, c="DE"))
    return table.uri


FR = "partition_field_c = 'FR'"


def test_vacuum_keeps_what_repair_can_bring_back(uri):
    lose(uri, FR)
    report = phalanx.open(uri).vacuum(NOW, force=True)
    assert report.files == 0
    assert "leaf-lost" in report.notes[0]
    assert phalanx.repair(uri).ok
    assert ids(uri) == [1, 2, 3, 4]
    assert phalanx.open(uri).vacuum(NOW, force=True).notes == ()


def test_rows_that_were_deleted_do_not_come_back_when_the_delete_has_expired(uri):
    lose(uri, FR)
    phalanx.open(uri).delete("id = 1 OR id = 3")
    assert not phalanx.repair(uri).ok
    phalanx.open(uri).expire_snapshots(NOW)
    forget()
    report = phalanx.repair(uri)
    assert not report.ok
    assert "expired" in str(report)
    assert ids(uri) == [4]


def test_a_leaf_that_was_lost_twice_comes_back_once(uri):
    phalanx.open(uri).append(rows(5))
    lose(uri, FR)
    phalanx.open(uri).append(rows(6))
    lose(uri, FR)
    phalanx.repair(uri, stray="take")
    found = ids(uri)
    assert len(set(found)) == len(found)
    assert set(found) >= {1, 2, 3, 4, 5}


@pytest.mark.parametrize("notices", [True, False])
def test_only_the_rows_that_are_missing_are_taken(uri, monkeypatch, notices):
    """A process that knows an earlier version writes: on top of that, if it does not notice."""
    if not notices:
        monkeypatch.setattr(snapshots, "_are_complete", lambda *_: True)
    forget()
    phalanx.open(uri).count()
    seen = snapshots._recent
    forget()
    phalanx.open(uri).append(rows(5))
    lose(uri, FR)
    snapshots._recent = seen
    phalanx.open(uri).append(rows(6))
    assert ids(uri) == ([3, 4, 6] if notices else [1, 2, 3, 4, 6])
    assert "leaf-replaced" in str(phalanx.check(uri))
    assert phalanx.repair(uri, stray="take").ok
    assert ids(uri) == [1, 2, 3, 4, 5, 6]
    assert phalanx.check(uri).ok


def test_a_restored_manifest_is_not_merged_without_its_files(uri):
    phalanx.open(uri).append(rows(5))
    restore(uri)
    phalanx.open(uri).vacuum(NOW, force=True)
    assert ids(uri) == [1, 2, 3, 4]
    phalanx.repair(uri)
    assert ids(uri) == [1, 2, 3, 4]


def test_a_restore_across_an_expiry_is_undone(uri):
    table = phalanx.open(uri).append(rows(5))
    table.optimize()
    table.expire_snapshots(NOW)
    restore(uri)
    report = phalanx.repair(uri)
    assert report.ok, str(report)
    assert ids(uri) == [1, 2, 3, 4, 5]
    assert phalanx.check(uri).ok


@pytest.mark.parametrize("how", ["tag", "append"])
def test_a_folder_that_others_use_is_kept(uri, how):
    table = phalanx.open(uri).set_properties({"anchor": "commit"})
    leaf = next(r for r in table.partitions().to_pylist() if r["c"] == "FR")["uri"]
    if how == "tag":
        lance.dataset(leaf).tags.create("mine", lance.dataset(leaf).version)
    else:
        lance.write_dataset(pa.table({"id": [9], "c": ["FR"]}, SCHEMA), leaf, mode="append")
    table.delete("c = 'FR'")
    report = table.vacuum(NOW, force=True)
    assert any("another client" in note for note in report.notes), report
    assert lance.dataset(leaf).count_rows() == (2 if how == "tag" else 3)


def test_what_was_taken_is_not_taken_again_after_its_record_has_expired(uri):
    table = phalanx.open(uri).set_properties({"anchor": "commit"})
    leaf = next(r for r in table.partitions().to_pylist() if r["c"] == "FR")["uri"]
    lance.write_dataset(pa.table({"id": [9], "c": ["FR"]}, SCHEMA), leaf, mode="append")
    assert phalanx.repair(uri, stray="take").ok
    phalanx.open(uri).append(rows(10)).expire_snapshots(NOW)
    assert any(r.settled for r in phalanx.open(uri)._snapshot.manifest.transactions())
    assert phalanx.check(uri).ok
    assert ids(uri) == [1, 2, 3, 4, 9, 10]


def test_two_repairs_at_once_take_rows_once(uri, monkeypatch):
    table = phalanx.open(uri).set_properties({"anchor": "commit"})
    leaf = next(r for r in table.partitions().to_pylist() if r["c"] == "FR")["uri"]
    lance.write_dataset(pa.table({"id": [9], "c": ["FR"]}, SCHEMA), leaf, mode="append")
    rows_of_strays = strays._rows

    def come_second(*arguments):
        monkeypatch.setattr(strays, "_rows", rows_of_strays)
        assert phalanx.repair(uri, stray="take").ok
        return rows_of_strays(*arguments)

    monkeypatch.setattr(strays, "_rows", come_second)
    with pytest.raises(phalanx.ConflictError, match="another repair"):
        phalanx.repair(uri, stray="take")
    assert ids(uri) == [1, 2, 3, 4, 9]
    assert phalanx.check(uri).ok
