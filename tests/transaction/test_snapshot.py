import datetime as dt
from itertools import pairwise

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput, TableNotFound
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.notes import NOTES_FILE
from phalanx.transaction import snapshot
from phalanx.transaction.snapshot import Snapshot

SCHEMA = pa.schema([("id", pa.int64()), ("country", pa.string())])


@pytest.fixture
def table(root):
    """Version 1 is empty; each of the versions 2 to 6 has one row more."""
    table = phalanx.create(root, SCHEMA, ["country"])
    for id in range(5):
        table.append([{"id": id, "country": "US" if id % 2 else "CA"}])
    return table


def ids(found):
    return sorted(phalanx.Table(found).scan().to_arrow()["id"].to_pylist())


def at(root, version):
    return Snapshot.at(Location(root), version)


class TestByVersion:
    def test_each_has_its_rows(self, root, table):
        for version in range(1, 7):
            found = at(root, version)
            assert found.sequence == version
            assert ids(found) == list(range(version - 1))

    def test_compaction_of_the_manifest_makes_no_version(self, root, table):
        lance.dataset(root / "__manifest").optimize.compact_files()
        assert Snapshot.latest(Location(root)).sequence == 6
        assert ids(at(root, 6)) == [0, 1, 2, 3, 4]
        assert ids(at(root, 3)) == [0, 1]
        table.append([{"id": 5, "country": "US"}])
        assert table.version == 7
        assert ids(at(root, 6)) == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("version", [0, -1, 7, 10**30])
    def test_one_that_never_was(self, root, table, version):
        with pytest.raises(TableNotFound, match=f"no version {version}: its newest is 6"):
            at(root, version)

    @pytest.mark.parametrize("version", [1.0, True, dt.timedelta(1), None, [1]])
    def test_what_is_no_version(self, root, table, version):
        with pytest.raises(InvalidInput, match="a version is"):
            at(root, version)

    def test_one_whose_manifest_is_gone(self, root, table):
        dataset = lance.dataset(root / "__manifest")
        dataset.cleanup_old_versions(older_than=dt.timedelta(0), delete_unverified=True)
        with pytest.raises(TableNotFound, match=r"version 2 .* removed"):
            at(root, 2)
        assert ids(at(root, 6)) == [0, 1, 2, 3, 4]


class TestByTime:
    def test_the_last_one_then(self, root, table):
        history = table.snapshots().to_pylist()
        for before, after in pairwise(history):
            between = before["committed_at"] + (after["committed_at"] - before["committed_at"]) / 2
            assert at(root, between).sequence == before["version"]
            assert at(root, after["committed_at"]).sequence == after["version"]

    def test_now_is_the_newest(self, root, table):
        assert at(root, dt.datetime.now(dt.UTC)).sequence == 6

    def test_without_a_zone_it_is_utc(self, root, table):
        third = table.snapshots().to_pylist()[2]["committed_at"]
        assert at(root, third.astimezone(dt.UTC).replace(tzinfo=None)).sequence == 3
        zone = dt.timezone(dt.timedelta(hours=-7))
        assert at(root, third.astimezone(zone)).sequence == 3

    def test_before_the_table(self, root, table):
        with pytest.raises(TableNotFound, match="did not exist yet"):
            at(root, dt.datetime(2000, 1, 1))


class TestIsolation:
    def test_a_snapshot_stays_what_it_is(self, root, table):
        old = Snapshot.latest(Location(root))
        other = phalanx.open(root)
        other.append([{"id": 9, "country": "FR"}])
        assert ids(old) == [0, 1, 2, 3, 4]
        assert old.sequence == 6

    def test_also_where_its_leaves_are_read_late(self, root, table):
        """The leaves are those of the snapshot, not those of the moment they are asked for."""
        old = Snapshot.latest(Location(root))
        phalanx.open(root).append([{"id": 9, "country": "US"}])
        assert old.leaves.row_counts.tolist() == [3, 2]


def test_a_newer_snapshot_is_one_look_into_the_manifest_without_notes(root, monkeypatch):
    table = phalanx.create(root, pa.schema([("id", pa.int64()), ("k", pa.string())]), ["k"])
    table.append([{"id": 5, "k": "a"}, {"id": 7, "k": "b"}])
    phalanx.open(root).append([{"id": 1, "k": "a"}, {"id": 2, "k": "new"}])
    (root / NOTES_FILE).unlink()
    looks = []
    read = ManifestVersion._read

    def recording(self, columns, filter):
        looks.append(filter)
        return read(self, columns, filter)

    monkeypatch.setattr(ManifestVersion, "_read", recording)
    table.refresh()
    assert len(looks) == 1
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 5, 7]
    assert [leaf.values["k"] for leaf in table.scan().plan().leaves] == ["a", "b", "new"]


class TestRowsThatAreMissing:
    """Another client removed rows of leaves: the older versions of these are not the newest."""

    def test_a_leaf_that_has_changed(self, root, table):
        before = Snapshot.latest(Location(root))
        assert len(before.leaves) == 2
        phalanx.open(root).delete("id = 1")
        lost = "object_type = 'table' AND partition_field_country = 'US'"
        lance.dataset(Location(root).manifest).delete(lost)
        snapshot._recent.clear()
        assert 1 not in ids(Snapshot.latest(Location(root), before))
        table.append([{"id": 9, "country": "US"}])
        phalanx.repair(root, stray="take")
        assert phalanx.check(root).ok
        assert ids(Snapshot.latest(Location(root))) == [0, 2, 3, 4, 9]

    def test_a_leaf_that_comes_and_goes_in_one_transaction(self, root, table, monkeypatch):
        """It is counted, but has no row: the snapshot is read as a whole."""
        with phalanx.open(root).transaction() as changes:
            changes.append([{"id": 9, "country": "new"}, {"id": 8, "country": "US"}])
            changes.delete("country = 'new'")
        assert table.refresh().count("id = 8") == 1
        assert table.count("id = 9") == 0


class TestLasts:
    def test_a_version_of_a_strong_table(self, root, table):
        assert Snapshot.latest(Location(root)).lasts
        assert at(root, 3).lasts

    def test_a_weak_table_changes_under_its_version(self, root):
        phalanx.create(root, SCHEMA, ["country"], transactions="weak")
        assert not Snapshot.latest(Location(root)).lasts

    def test_a_table_that_is_not_created_yet_has_no_leaves(self, root, table):
        head = Snapshot.latest(Location(root)).head
        assert not Snapshot.unborn(Location(root), head).lasts
