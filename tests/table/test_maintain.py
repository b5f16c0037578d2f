"""Vacuum and the expiry of snapshots: what goes, what stays, and what a crash leaves behind."""

import contextlib
import datetime as dt
import logging
import os
import time
from urllib.request import Request, urlopen

import lance
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

import phalanx
from phalanx.storage.manifest_update import ManifestUpdate
from phalanx import ConflictError, InvalidInput, TableNotFound
from phalanx.storage.files import DatasetFolder
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion, SwapLost
from phalanx.table import retention
from phalanx.table import vacuum as vacuuming
from phalanx.table.check import check_table
from phalanx.table.repair import repair_table
from phalanx.table.retention import expire_snapshots
from phalanx.transaction import commit
from phalanx.transaction.snapshot import Snapshot
from tests.transaction import sabotage

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
DAY = dt.timedelta(days=1)
NOTHING = dt.timedelta(0)


@pytest.fixture
def table(root):
    """Version 2 has the partitions a and b, version 3 a changed and b gone, 4 a new row."""
    table = phalanx.create(root, SCHEMA, ["part"])
    table.append([row(1), row(2), row(3, "b")])
    table.overwrite([row(4)])
    table.append([row(5)])
    return table


def row(id, part="a"):
    return {"id": id, "part": part}


def age(root, days, newer_than=None):
    """Make every file older than it is, or those that are younger than some others."""
    then = time.time() - days * 86_400
    for path in files(root, absolute=True):
        if newer_than is None or path not in newer_than:
            os.utime(path, (then, then))


def files(root, absolute=False):
    found = {os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names}
    return found if absolute else {os.path.relpath(path, root) for path in found}


def vacuum(table, *arguments, **options):
    report = vacuuming.vacuum(table._snapshot, *arguments, **options)
    table.refresh()
    return report


def ids(table):
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def versions(table):
    """The versions that can be opened."""
    found = []
    for version in range(1, table.version + 1):
        with contextlib.suppress(TableNotFound):
            phalanx.open(table.uri, version=version)
            found.append(version)
    return found


def leaf_of(table, part):
    (found,) = [leaf for leaf in table.partitions().to_pylist() if leaf["part"] == part]
    return found


def rows_of(table, type):
    found = ManifestVersion(Location(table.uri)).read(["object_id"], f"object_type = '{type}'")
    return sorted(found["object_id"].to_pylist())


class TestWhatGoes:
    def test_nothing_that_is_young(self, table, root):
        before = files(root)
        report = vacuum(table)
        assert (report.files, report.bytes, report.snapshots, report.rows) == (0, 0, (), 0)
        assert files(root) >= before
        assert versions(table) == [1, 2, 3, 4]

    def test_old_snapshots_with_their_files(self, table, root):
        age(root, 8)
        size = sum(os.path.getsize(path) for path in files(root, absolute=True))
        report = vacuum(table)
        assert report.snapshots == (1, 2, 3)
        assert versions(table) == [4, 5]
        assert ids(table) == [4, 5]
        assert table.snapshots()["version"].to_pylist() == [4, 5]
        assert 0 < report.bytes < size
        assert not set(report.paths) & files(root)
        assert check_table(table._snapshot).problems == []

    def test_a_version_that_is_gone_says_so(self, table, root):
        age(root, 8)
        vacuum(table)
        with pytest.raises(TableNotFound, match=r"version 2 of the table .* has expired"):
            phalanx.open(root, version=2)
        with pytest.raises(TableNotFound, match="has expired"):
            phalanx.open(root, version=dt.datetime(2020, 1, 1))
        with pytest.raises(TableNotFound, match="has expired"):
            table.rollback(2)

    def test_a_leaf_that_no_snapshot_has(self, table, root):
        gone = leaf_of(phalanx.open(root, version=2), "b")["uri"]
        age(root, 8)
        report = vacuum(table)
        assert report.folders == (os.path.basename(gone),)
        assert not os.path.exists(gone)

    def test_what_a_failed_writer_left_behind(self, table, root):
        known = files(root, absolute=True)
        with (
            sabotage.failing("commit.before-swap", "raise"),
            pytest.raises(OSError, match="failpoint"),
        ):
            table.append([row(6), row(7, "new")])
        left = {os.path.relpath(path, root) for path in files(root, absolute=True) - known}
        age(root, 2, newer_than=known)
        assert set(vacuum(table).paths) == set()
        age(root, 8, newer_than=known)
        report = vacuum(table)
        assert set(report.paths) == left
        assert len(report.folders) == 1
        # The last is the vacuum's own: before files go, whoever is about to swap must look again.
        assert versions(table) == [1, 2, 3, 4, 5]

    def test_rows_of_the_manifest_that_nobody_needs(self, table, root):
        table.append([row(6)])
        age(root, 8)
        assert len(rows_of(table, "table_version")) == 4
        report = vacuum(table)
        assert len(rows_of(table, "table_version")) == 1
        assert len(rows_of(table, "transaction")) == 2
        assert report.rows == 7
        assert table.append([row(7)]).count() == 4

    def test_old_versions_of_the_manifest(self, table, root):
        age(root, 8)
        before = ManifestVersion(Location(root)).version
        report = vacuum(table)
        assert report.manifest_versions == tuple(range(1, before))
        assert ManifestVersion(Location(root)).versions() == [before, before + 1]

    def test_half_written_files(self, table, root):
        path = leaf_of(table, "a")["uri"] + "/data/0101.lance#1"
        with open(path, "wb") as file:
            file.write(b"half")
        age(root, 8, newer_than=files(root, absolute=True) - {path})
        assert vacuum(table).paths == (os.path.relpath(path, root),)

    def test_indexes_of_versions_that_are_gone(self, table, root):
        """An index that a detached version lists stays, one that none lists goes."""
        leaf = leaf_of(table, "a")
        handle = lance.dataset(leaf["uri"], version=leaf["version"])
        pieces = [fragment.fragment_id for fragment in handle.get_fragments()]
        built = handle.create_index_uncommitted("id", "BTREE", name="i", fragment_ids=pieces)
        change = lance.LanceOperation.CreateIndex([built], [])
        made = lance.LanceDataset.commit(handle, change, read_version=handle.version, detached=True)
        spare = handle.create_index_uncommitted("id", "BTREE", name="j", fragment_ids=pieces)
        age(root, 8)
        folder = DatasetFolder(Location(root), os.path.basename(leaf["uri"]))
        live = vacuuming.live_files(folder, {made.version}, dt.datetime.now(dt.UTC))
        found = {
            path.split("/")[1]: live.holds(path) for path in files(leaf["uri"]) if "_ind" in path
        }
        assert found == {built.uuid: True, spare.uuid: False}
        assert {path.split("/")[2] for path in vacuum(table).paths if "_ind" in path} == set(found)


class TestWhatStays:
    def test_the_newest_however_old(self, table, root):
        age(root, 1000)
        vacuum(table)
        assert ids(table) == [4, 5]

    def test_what_was_the_newest_within_the_time(self, table, root):
        """Who opened the table a minute ago may still read what has been replaced since."""
        age(root, 8)
        reader = phalanx.open(root)
        table.overwrite([row(9)])
        report = vacuum(table)
        assert report.snapshots == (1, 2, 3)
        assert ids(reader) == [4, 5]
        assert ids(phalanx.open(root, version=4)) == [4, 5]

    def test_what_a_tag_holds(self, table, root):
        table.tag("kept", 2)
        age(root, 8)
        report = vacuum(table)
        assert report.snapshots == (1, 3, 4)
        assert ids(phalanx.open(root, version="kept")) == [1, 2, 3]
        assert ids(phalanx.open(root, version=2)) == [1, 2, 3]
        assert versions(table) == [2, 5, 6]
        assert check_table(table._snapshot).problems == []

    def test_until_the_tag_is_dropped(self, table, root):
        table.tag("kept", 2)
        age(root, 8)
        vacuum(table)
        table.drop_tag("kept")
        age(root, 8)
        vacuum(table)
        assert 2 not in versions(table)
        assert len(table.partitions()) == 1

    def test_what_a_running_writer_owns(self, table, root):
        """Its files are young, whatever happens to the snapshot it started from."""
        age(root, 8)
        with table.transaction() as tx:
            tx.append([row(6), row(7, "new")])
            vacuum(phalanx.open(root))
        assert ids(phalanx.open(root)) == [4, 5, 6, 7]
        assert check_table(table._snapshot).ok

    def test_what_plain_lance_reads(self, table, root):
        """Its newest version, and what its tags and branches hold."""
        leaf = leaf_of(phalanx.open(root, version=2), "a")
        lance.dataset(leaf["uri"], version=leaf["version"]).restore()
        main = lance.dataset(leaf["uri"])
        main.tags.create("mine", main.version)
        main.create_branch("dev")
        now = leaf_of(table, "a")
        lance.dataset(now["uri"], version=now["version"]).restore()
        age(root, 8)
        vacuum(table)
        tagged = lance.dataset(leaf["uri"], version="mine")
        assert sorted(tagged.to_table()["id"].to_pylist()) == [1, 2]
        branch = lance.dataset(leaf["uri"]).checkout_version(("dev", None))
        assert branch.count_rows() == 2
        assert lance.dataset(leaf["uri"]).count_rows() == 2
        assert check_table(table._snapshot).problems == []

    def test_main_is_trimmed_like_the_rest(self, table, root):
        """What was published only for plain readers does not keep files forever."""
        leaf = leaf_of(phalanx.open(root, version=2), "a")
        lance.dataset(leaf["uri"], version=leaf["version"]).restore()
        old = {path for path in files(leaf["uri"]) if path.startswith("data/")}
        now = leaf_of(table, "a")
        lance.dataset(now["uri"], version=now["version"]).restore()
        age(root, 8)
        vacuum(table)
        assert len(lance.dataset(leaf["uri"]).versions()) == 1
        assert lance.dataset(leaf["uri"]).count_rows() == 2
        assert len(old - files(leaf["uri"])) == 1

    def test_other_things_in_the_root(self, table, root):
        (root / "notes").mkdir()
        (root / "notes" / "todo.txt").write_text("keep me")
        (root / "0123abcd_v1$x$other").mkdir()
        (root / "0123abcd_v1$x$other" / "file").write_text("me too")
        (root / "readme.txt").write_text("and me")
        age(root, 1000)
        vacuum(table, NOTHING, force=True)
        assert (root / "notes" / "todo.txt").exists()
        assert (root / "0123abcd_v1$x$other" / "file").exists()
        assert (root / "readme.txt").exists()

    def test_what_lies_behind_a_link(self, table, root, tmp_path):
        """A folder that is a link leads out of the table: nothing in it is touched."""
        elsewhere = tmp_path / "elsewhere"
        gone = leaf_of(phalanx.open(root, version=2), "b")["uri"]
        os.rename(gone, elsewhere)
        os.symlink(elsewhere, gone)
        used = leaf_of(table, "a")["uri"]
        os.rename(used, tmp_path / "used")
        os.symlink(tmp_path / "used", used)
        before = files(elsewhere), files(tmp_path / "used")
        age(elsewhere, 8)
        age(tmp_path / "used", 8)
        age(root, 8)
        report = vacuum(table)
        assert (files(elsewhere), files(tmp_path / "used") & before[1]) == before
        assert "is a link" in report.notes[0]
        assert ids(table) == [4, 5]

    def test_a_leaf_that_is_damaged(self, table, root):
        """Where it is not known what is needed, nothing goes."""
        leaf = leaf_of(table, "a")
        os.unlink(f"{leaf['uri']}/_versions/d{leaf['version']}.manifest")
        before = files(leaf["uri"])
        age(root, 8)
        report = vacuum(table)
        assert files(leaf["uri"]) == before
        assert "run check()" in report.notes[0]


class TestAge:
    @pytest.mark.parametrize("older_than", [dt.timedelta(hours=23), NOTHING])
    def test_less_than_a_day_must_be_forced(self, table, older_than):
        with pytest.raises(InvalidInput, match="less than 24 hours"):
            vacuum(table, older_than)
        assert table.version == 4

    @pytest.mark.parametrize("older_than", [-DAY, 7, "7 days"])
    def test_what_is_no_age(self, table, older_than):
        with pytest.raises(InvalidInput, match="older_than is a timedelta"):
            vacuum(table, older_than, force=True)
        with pytest.raises(InvalidInput, match="older_than is a timedelta"):
            expire_snapshots(table._snapshot, older_than)

    def test_it_can_be_chosen(self, table, root):
        age(root, 3)
        assert vacuum(table, 4 * DAY).files == 0
        assert vacuum(table, 2 * DAY).snapshots == (1, 2, 3)

    def test_force_takes_what_is_young(self, table, root):
        report = vacuum(table, NOTHING, force=True)
        assert report.snapshots == (1, 2, 3)
        assert versions(table) == [4, 5]
        assert ids(table) == [4, 5]
        assert len(report.folders) == 1
        assert table.append([row(6)]).count() == 3

    def test_even_force_leaves_the_manifest_what_a_swap_may_start_from(self, table, root):
        """Without the versions in between, Lance would accept the swap of a stale handle."""
        stale = ManifestVersion(Location(root))
        table.append([row(6)])
        report = vacuum(table, NOTHING, force=True)
        assert report.manifest_versions == ()
        rows = Rows(table._snapshot.head.specs)
        rows.add_head(stale.head())
        with pytest.raises(SwapLost):
            stale.swap(rows.to_table())
        assert ids(table) == [4, 5, 6]

    def test_a_swap_from_a_version_that_is_gone_is_refused(self, table, root):
        stale = ManifestVersion(Location(root))
        table.append([row(6)])
        lance.dataset(root / "__manifest").cleanup_old_versions(
            NOTHING, retain_versions=1, delete_unverified=True
        )
        rows = Rows(table._snapshot.head.specs)
        rows.add_head(stale.head())
        with pytest.raises(SwapLost):
            stale.swap(rows.to_table())
        assert ids(phalanx.open(root)) == [4, 5, 6]


class TestDryRun:
    def test_it_says_exactly_what_would_go(self, table, root):
        table.tag("kept", 2)
        table.append([row(6, "c")])
        table.delete("part = 'c'")
        age(root, 8)
        before = files(root)
        said = vacuum(table, dry_run=True)
        assert files(root) == before
        assert table.version == 7
        done = vacuum(table)
        assert said.paths == done.paths
        assert (said.bytes, said.rows) == (done.bytes, done.rows)
        assert (said.snapshots, said.folders) == (done.snapshots, done.folders)
        assert said.manifest_versions == done.manifest_versions
        assert before - files(root) == set(done.paths)
        assert str(said) == str(done).replace("removed", "would remove")

    def test_of_an_expiry(self, table, root):
        age(root, 8)
        said = expire_snapshots(table._snapshot, 7 * DAY, dry_run=True)
        assert versions(table) == [1, 2, 3, 4]
        done = expire_snapshots(table._snapshot, 7 * DAY)
        assert (said.snapshots, said.rows, said.oldest) == (done.snapshots, done.rows, done.oldest)
        assert (
            str(done) == "expired 3 snapshots and 5 rows of the manifest; the oldest version is 4"
        )


class TestExpire:
    def test_snapshots_go_and_files_stay(self, table, root):
        before = files(root)
        report = expire_snapshots(table._snapshot, NOTHING)
        assert report.snapshots == (1, 2, 3)
        assert files(root) >= before
        assert versions(table.refresh()) == [4, 5]
        assert ids(table) == [4, 5]

    def test_files_are_kept_for_who_still_reads_them(self, table, root):
        """A snapshot that was given up a moment ago is still read by who had opened it."""
        age(root, 30)
        reader = phalanx.open(root)
        table.overwrite([row(9)])
        expire_snapshots(table._snapshot, NOTHING)
        vacuum(table)
        assert ids(reader) == [4, 5]
        with pytest.raises(TableNotFound):
            phalanx.open(root, version=4)

    def test_nothing_to_expire_writes_nothing(self, table):
        expire_snapshots(table._snapshot, DAY)
        assert table.refresh().version == 4

    def test_tags_are_kept(self, table, root):
        table.tag("kept", 2)
        expire_snapshots(table._snapshot, NOTHING)
        assert ids(phalanx.open(root, version="kept")) == [1, 2, 3]
        assert versions(table.refresh()) == [2, 5, 6]

    def test_the_first_that_is_open_never_goes_back(self, table, root):
        expire_snapshots(table._snapshot, NOTHING)
        expire_snapshots(table._snapshot, 100 * DAY)
        assert versions(table.refresh()) == [4, 5]

    def test_a_tagged_version_does_not_stand_for_those_after_it(self, table, root):
        times = phalanx.open(root).snapshots()["committed_at"].to_pylist()
        table.tag("kept", 2)
        expire_snapshots(table._snapshot, NOTHING)
        with pytest.raises(TableNotFound, match="has expired"):
            phalanx.open(root, version=times[2])

    def test_time_travel_into_what_is_left(self, table, root):
        expire_snapshots(table._snapshot, NOTHING)
        now = dt.datetime.now(dt.UTC)
        assert phalanx.open(root, version=now).version == 5


class TestRetention:
    def test_the_property_says_how_long(self, table, root):
        age(root, 3)
        assert table.expire_snapshots().snapshots == ()
        table.set_properties({"retention.snapshots": "2 days"})
        assert table.expire_snapshots(dry_run=True).snapshots == (1, 2, 3)
        assert table.expire_snapshots().snapshots == (1, 2, 3)
        assert versions(table) == [4, 5, 6]

    def test_without_it_seven_days(self, table, root):
        age(root, 6)
        assert table.expire_snapshots().snapshots == ()
        age(root, 8)
        assert table.expire_snapshots().snapshots == (1, 2, 3)

    def test_an_age_that_is_given_goes_before_it(self, table, root):
        table.set_properties({"retention.snapshots": "99999999 weeks"})
        assert table.expire_snapshots().snapshots == ()
        assert table.expire_snapshots(NOTHING).snapshots == (1, 2, 3, 4)

    def test_a_number_of_them_is_kept_however_old(self, table, root):
        table.set_properties({"retention.min_snapshots": "3"})
        age(root, 30)
        first = table.expire_snapshots()
        assert (first.snapshots, first.oldest) == ((1, 2), 3)
        assert versions(table) == [3, 4, 5, 6]
        assert ids(phalanx.open(root, version=3)) == [4]
        assert table.expire_snapshots(NOTHING).snapshots == (3,)

    def test_more_than_there_are(self, table, root):
        table.set_properties({"retention.min_snapshots": "100"})
        age(root, 30)
        assert vacuum(table).snapshots == ()
        assert versions(table) == [1, 2, 3, 4, 5]

    def test_vacuum_keeps_them_with_their_files(self, table, root):
        table.set_properties({"retention.min_snapshots": "4"})
        age(root, 30)
        report = vacuum(table)
        assert (report.snapshots, report.files > 0) == ((1,), True)
        assert ids(phalanx.open(root, version=2)) == [1, 2, 3]
        assert table.check().ok
        table.set_properties({"retention.min_snapshots": None})
        assert vacuum(table, NOTHING, force=True).snapshots == (2, 3, 4, 5, 6)
        assert ids(table) == [4, 5]
        assert table.check().ok

    def test_vacuum_keeps_what_is_kept_for_longer_than_files_are(self, table, root):
        table.set_properties({"retention.snapshots": "60 days"})
        age(root, 30)
        report = vacuum(table)
        assert (report.snapshots, report.files) == ((), 0)
        assert ids(phalanx.open(root, version=2)) == [1, 2, 3]

    def test_files_of_what_expires_early_stay_for_who_still_reads(self, table, root):
        age(root, 30)
        reader = phalanx.open(root)
        table.set_properties({"retention.snapshots": "0 seconds"})
        table.overwrite([row(9)])
        assert vacuum(table).snapshots == (1, 2, 3, 4, 5)
        assert ids(reader) == [4, 5]
        with pytest.raises(TableNotFound):
            phalanx.open(root, version=4)

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("retention.snapshots", "a while", "no span of time"),
            ("retention.snapshots", "-1 days", "no span of time"),
            ("retention.snapshots", "7", "no span of time"),
            ("retention.snapshots", "999999999 weeks", "too long"),
            ("retention.min_snapshots", "0", "whole number from 1"),
            ("retention.min_snapshots", "three", "whole number from 1"),
            ("retention.snapshot", "7 days", "retention.snapshots"),
        ],
    )
    def test_what_it_cannot_be(self, table, root, key, value, message):
        with pytest.raises(InvalidInput, match=message):
            table.set_properties({key: value})
        with pytest.raises(InvalidInput, match=message):
            phalanx.create(root / "other", SCHEMA, properties={key: value})
        assert table.refresh().version == 4


class TestOthersMeanwhile:
    def test_a_commit_in_between(self, table, root, monkeypatch):
        """The expiry is worked out on one snapshot and lands on another."""
        real = retention._versions_without

        def with_a_commit(*arguments):
            if phalanx.open(root).version == 4:
                phalanx.open(root).append([row(6, "c")])
            return real(*arguments)

        monkeypatch.setattr(retention, "_versions_without", with_a_commit)
        age(root, 8)
        report = vacuum(table)
        assert report.snapshots == (1, 2, 3)
        assert versions(table) == [4, 5, 6]
        assert ids(table) == [4, 5, 6]
        assert check_table(table._snapshot).problems == []

    def test_a_tag_in_between(self, table, root, monkeypatch):
        real = retention._versions_without

        def with_a_tag(*arguments):
            if not phalanx.open(root).tags():
                phalanx.open(root).tag("late", 2)
            return real(*arguments)

        monkeypatch.setattr(retention, "_versions_without", with_a_tag)
        age(root, 8)
        assert vacuum(table).snapshots == (1, 3)
        assert ids(phalanx.open(root, version="late")) == [1, 2, 3]

    def test_a_tag_after_the_rows_have_gone(self, root, monkeypatch):
        """Of the manifest versions of a snapshot vacuum keeps the last, and a tag holds that."""
        table = phalanx.create(root, SCHEMA, ["part"])
        for id in range(7):
            table.append([row(id)])
        assert table.version % commit._COMPACT_EVERY == 0, (
            "several versions of the manifest have it"
        )
        age(root, 10)
        table.append([row(100)])
        real = vacuuming.reach

        def with_a_tag(name):
            if name == "vacuum.rows-expired":
                phalanx.open(root).tag("kept", 8)
            real(name)

        with monkeypatch.context() as patch:
            patch.setattr(vacuuming, "reach", with_a_tag)
            vacuum(phalanx.open(root))
        assert ids(phalanx.open(root, version="kept")) == list(range(7))
        # Now the tag alone holds it.
        phalanx.open(root).overwrite([row(5)])
        age(root, 10)
        vacuum(phalanx.open(root))
        for version in ("kept", 8):
            assert ids(phalanx.open(root, version=version)) == list(range(7))

    def test_a_swap_that_is_lost(self, table, root, monkeypatch):
        real, lost = ManifestVersion.swap, []

        def lose_once(self, *arguments):
            if not lost:
                lost.append(True)
                raise SwapLost
            return real(self, *arguments)

        monkeypatch.setattr(ManifestVersion, "swap", lose_once)
        age(root, 8)
        assert vacuum(table).snapshots == (1, 2, 3)

    def test_a_leaf_that_went_and_came_back(self, table, root, monkeypatch):
        """Its timeline starts again with the numbers of rows that were to go."""
        real = retention._versions_without

        def with_a_return(*arguments):
            found = real(*arguments)
            other = phalanx.open(root)
            if other.version == 4:
                other.overwrite([row(8, "c")])
                other.overwrite([row(9)])
            return found

        monkeypatch.setattr(retention, "_versions_without", with_a_return)
        age(root, 8)
        vacuum(table)
        assert ids(table) == [9]
        assert check_table(table._snapshot).problems == []

    def test_a_late_commit_of_old_files(self, table, root, monkeypatch):
        """A writer that took longer than the grace commits while its files are looked at."""
        with table.transaction() as tx:
            tx.append([row(6)])
            tx._transaction.view.settle()
            age(root, 8)
            real = vacuuming._Sweep._remove

            def with_a_commit(self, *arguments):
                if tx._open:
                    tx.commit()
                real(self, *arguments)

            monkeypatch.setattr(vacuuming._Sweep, "_remove", with_a_commit)
            vacuum(phalanx.open(root))
        assert ids(phalanx.open(root)) == [4, 5, 6]

    def test_a_leaf_that_comes_back_into_its_old_folder(self, table, root, monkeypatch):
        age(root, 8)
        real = vacuuming._Sweep._is_abandoned

        def with_a_return(self, folder):
            found = real(self, folder)
            if phalanx.open(root).version == 5:
                phalanx.open(root).append([row(6, "b")])
            return found

        monkeypatch.setattr(vacuuming._Sweep, "_is_abandoned", with_a_return)
        assert vacuum(table).folders == ()
        assert ids(table) == [4, 5, 6]

    def test_a_commit_that_took_too_long_looks_for_its_files(self, table, root, monkeypatch):
        monkeypatch.setattr(commit, "_VERIFY_AFTER", NOTHING)
        assert table.append([row(6)]).count() == 3
        tx = table.transaction()
        tx.append([row(7)])
        age(root, 8)
        vacuum(phalanx.open(root))
        with pytest.raises(ConflictError, match="a vacuum has removed files"):
            tx.commit()
        assert ids(phalanx.open(root)) == [4, 5, 6]

    def test_also_when_it_has_just_looked(self, table, root, monkeypatch):
        """Where the lock does not help, the swap is lost to the vacuum, and it looks again."""
        age(root, 8)
        vacuum(table)  # nothing is left to expire: the next one has files alone to remove
        monkeypatch.setattr("phalanx.transaction.lock.fcntl", None)
        monkeypatch.setattr(commit, "_VERIFY_AFTER", NOTHING)
        tx = phalanx.open(root).transaction()
        tx.append([row(6), row(7, "new")])
        real, removed = commit.reach, []

        def with_a_vacuum(name):
            if name == "commit.before-swap" and not removed:
                for leaf in root.glob("*$dataset"):
                    age(leaf, 2)
                removed.append(vacuum(phalanx.open(root), DAY).files)
            real(name)

        monkeypatch.setattr(commit, "reach", with_a_vacuum)
        with pytest.raises(ConflictError, match="a vacuum has removed files"):
            tx.commit()
        assert removed[0] > 0
        assert ids(phalanx.open(root)) == [4, 5]


class TestWeak:
    @pytest.fixture
    def weak(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], transactions="weak")
        table.append([row(1), row(2), row(3, "b")])
        table.overwrite([row(4)])
        return table

    def test_what_is_on_main_stays(self, weak, root):
        age(root, 8)
        report = vacuum(weak)
        assert report.snapshots == (1, 2)
        assert report.bytes > 0
        assert ids(weak) == [4]
        assert ids(weak.append([row(5, "b")])) == [4, 5]
        assert check_table(weak._snapshot).problems == []

    def test_a_table_that_became_strong(self, weak, root):
        weak.make_strong()
        weak.append([row(5)])
        age(root, 8)
        vacuum(weak)
        assert ids(weak) == [4, 5]
        assert check_table(weak._snapshot).problems == []


class TestCrashes:
    """Wherever it breaks off: nothing is missing, and the next one finishes the work."""

    @pytest.fixture
    def table(self, table):
        """With a tag, and with a leaf that no snapshot has for long."""
        table.tag("kept", 2)
        table.append([row(6, "c")])
        table.delete("part = 'c'")
        return table

    STEPS = (
        "vacuum.rows-expired",
        "vacuum.files-listed",
        "vacuum.file-deleted",
        "vacuum.folder-deleted",
        "vacuum.manifest-trimmed",
    )

    @pytest.mark.parametrize("step", STEPS)
    def test_every_step(self, table, root, step):
        age(root, 8)
        with sabotage.failing(step, "raise"), pytest.raises(OSError, match=step):
            vacuum(table)
        self.check_whole(root)
        age(root, 8)
        vacuum(phalanx.open(root))
        self.check_whole(root)
        assert check_table(Location(root)).problems == []

    @pytest.mark.parametrize("part", [0.1, 0.4, 0.7, 1])
    def test_after_some_files(self, table, root, part):
        age(root, 8)
        visit = max(1, int(part * vacuum(table, dry_run=True).files))
        with (
            sabotage.failing("vacuum.file-deleted", "raise", visit),
            pytest.raises(OSError, match="file-deleted"),
        ):
            vacuum(table)
        self.check_whole(root)

    def check_whole(self, root):
        assert ids(phalanx.open(root)) == [4, 5]
        assert ids(phalanx.open(root, version="kept")) == [1, 2, 3]
        found = check_table(Location(root))
        assert found.ok, str(found)


class TestAnchor:
    def test_vacuum_publishes_the_leaves_on_main(self, table, root):
        assert lance.dataset(leaf_of(table, "a")["uri"]).count_rows() == 0
        vacuum(table)
        assert lance.dataset(leaf_of(table, "a")["uri"]).count_rows() == 2

    def test_unless_it_is_not_wanted(self, table, root):
        table.set_properties({"anchor": "never"})
        vacuum(table)
        assert lance.dataset(leaf_of(table, "a")["uri"]).count_rows() == 0


class TestObjectStore:
    @pytest.fixture
    def options(self):
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server.start()
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        urlopen(Request(f"{endpoint}/lake", method="PUT")).close()
        options = {"access_key_id": "x", "secret_access_key": "y", "region": "us-east-1"}
        yield {**options, "endpoint": endpoint, "allow_http": "true"}
        server.stop()

    def test_it_goes_by_the_same_rules(self, options):
        uri = "s3://lake/db/t"
        table = phalanx.create(uri, SCHEMA, ["part"], storage_options=options)
        table.append([row(1), row(2), row(3, "b"), row(4, "c")])
        table.tag("kept", 2)
        table.overwrite([row(5), row(6, "d")])
        table.overwrite([row(7)])
        assert vacuum(table, 2 * DAY).files == 0
        said = vacuum(table, NOTHING, dry_run=True, force=True)
        done = vacuum(table, NOTHING, force=True)
        assert done.paths == said.paths
        assert done.snapshots == said.snapshots == (1, 3, 4)
        assert len(done.folders) == 1
        assert ids(phalanx.open(uri, storage_options=options)) == [7]
        kept = phalanx.open(uri, version="kept", storage_options=options)
        assert ids(kept) == [1, 2, 3, 4]
        found = check_table(Location(uri, options))
        assert found.problems == [], str(found)
        assert repair_table(Location(uri, options)).mended == []
        assert table.append([row(8, "d")]).count() == 2


def test_another_clients_table_is_left_alone(root):
    lance.write_dataset(pa.table({"a": [1]}), root / "__manifest")
    with pytest.raises(TableNotFound):
        vacuum(Snapshot.latest(Location(root)))


def test_a_report_for_people(table, root):
    age(root, 8)
    report = vacuum(table, dry_run=True)
    assert str(report).startswith(f"would remove {report.files} files (")
    assert "1 folder among them; 3 snapshots" in str(report)
