"""Vacuum: what goes and what stays."""

import datetime as dt
import logging
import os
from urllib.request import Request, urlopen

import lance
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

import phalanx
from phalanx import InvalidInput, TableNotFound
from phalanx.storage.files import DatasetFolder
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion, SwapLost
from phalanx.storage.manifest_update import ManifestUpdate
from phalanx.table import vacuum as vacuuming
from phalanx.table.check import check_table
from phalanx.table.repair import repair_table
from phalanx.table.retention import expire_snapshots
from phalanx.transaction.snapshot import Snapshot
from tests.table.aging import (
    DAY,
    NOTHING,
    SCHEMA,
    age,
    changed_table,
    files,
    ids,
    leaf_of,
    row,
    rows_of,
    vacuum,
    versions,
)
from tests.transaction import sabotage


@pytest.fixture
def table(root):
    return changed_table(root)


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

    @pytest.mark.parametrize("older_than", [-DAY, 7, 1.5])
    def test_what_is_no_age(self, table, older_than):
        with pytest.raises(InvalidInput, match="older_than is a timedelta"):
            vacuum(table, older_than, force=True)
        with pytest.raises(InvalidInput, match="older_than is a timedelta"):
            expire_snapshots(table._snapshot, older_than)

    def test_it_may_be_text(self, table):
        assert expire_snapshots(table._snapshot, "7 days").snapshots == ()
        assert expire_snapshots(table._snapshot, "2w", dry_run=True).snapshots == ()
        with pytest.raises(InvalidInput, match="less than 24 hours"):
            vacuum(table, "12h")
        with pytest.raises(InvalidInput, match="'7 moons' is not a span of time"):
            vacuum(table, "7 moons")

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
        rows = ManifestUpdate(table._snapshot.head.specs)
        rows.put_head(stale.head())
        with pytest.raises(SwapLost):
            stale.swap(rows)
        assert ids(table) == [4, 5, 6]

    def test_a_swap_from_a_version_that_is_gone_is_refused(self, table, root):
        stale = ManifestVersion(Location(root))
        rows = ManifestUpdate(table._snapshot.head.specs)
        rows.put_head(stale.head())
        table.append([row(6)])
        lance.dataset(root / "__manifest").cleanup_old_versions(
            NOTHING, retain_versions=1, delete_unverified=True
        )
        with pytest.raises(SwapLost):
            stale.swap(rows)
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


def test_an_age_beyond_all_time_keeps_everything(table, root):
    age(root, 8)
    report = table.vacuum(dt.timedelta.max)
    assert (report.files, report.snapshots) == (0, ())
    assert table.expire_snapshots(dt.timedelta.max).snapshots == ()
