"""The expiry of snapshots, and how long they are kept."""

import datetime as dt

import pytest

import phalanx
from phalanx import InvalidInput, TableNotFound
from phalanx.table.retention import expire_snapshots
from tests.table.aging import (
    DAY,
    NOTHING,
    SCHEMA,
    age,
    changed_table,
    files,
    ids,
    row,
    vacuum,
    versions,
)


@pytest.fixture
def table(root):
    return changed_table(root)


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

    def test_those_before_a_time(self, table):
        times = table.snapshots()["committed_at"].to_pylist()
        later = dt.datetime.now(dt.UTC) + DAY
        # Version 2 was replaced when version 3 was committed, a little before its files show.
        before = expire_snapshots(table._snapshot, times[1], dry_run=True)
        assert before.snapshots == ()
        naive = times[3].astimezone(dt.UTC).replace(tzinfo=None)
        assert 3 not in expire_snapshots(table._snapshot, naive, dry_run=True).snapshots
        assert expire_snapshots(table._snapshot, later, dry_run=True).snapshots == (1, 2, 3)

    def test_the_last_ones_are_retained(self, table):
        table.set_properties({"retention.min_snapshots": "4"})
        kept = [
            table.expire_snapshots(NOTHING, True, retain_last=number).oldest
            for number in (None, 1, 3, 9)
        ]
        assert kept == [2, 5, 3, 1]
        with pytest.raises(InvalidInput, match="retain_last is a whole number from 1, not 0"):
            table.expire_snapshots(retain_last=0)

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
            ("retention.snapshots", "a while", "not a span of time"),
            ("retention.snapshots", "-1 days", "not a span of time"),
            ("retention.snapshots", "7", "not a span of time"),
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


class TestDryRun:
    def test_of_an_expiry(self, table, root):
        age(root, 8)
        said = expire_snapshots(table._snapshot, 7 * DAY, dry_run=True)
        assert versions(table) == [1, 2, 3, 4]
        done = expire_snapshots(table._snapshot, 7 * DAY)
        assert (said.snapshots, said.rows, said.oldest) == (done.snapshots, done.rows, done.oldest)
        assert (
            str(done) == "expired 3 snapshots and 5 rows of the manifest; the oldest version is 4"
        )
