import datetime as dt
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

import phalanx
from phalanx.model import statistics
from phalanx.model.schema import TableSchema
from phalanx.storage.files import DETACHED, RANDOM
from phalanx.storage.manifest import ManifestVersion
from phalanx.transaction import view

VERSIONS = "object_type = 'table_version'"
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string())])


@pytest.fixture(autouse=True)
def forgetful(monkeypatch):
    """No test profits from what another has read."""
    monkeypatch.setattr(view, "_kept_statistics", view._KeptStatistics(100))


@pytest.fixture
def table(root):
    table = phalanx.create(root, SCHEMA, ["k"])
    table.append([{"id": 5, "k": "a"}, {"id": 7, "k": "b"}])
    return table


@pytest.fixture
def reads(monkeypatch):
    """The columns of every look into the manifest."""
    found = []
    read = ManifestVersion._read

    def recording(self, columns, filter):
        found.append(list(columns))
        return read(self, columns, filter)

    monkeypatch.setattr(ManifestVersion, "_read", recording)
    return found


def bounds(table, key="a"):
    """The bounds of the ids of a leaf, as the manifest has them."""
    snapshot = phalanx.open(table.uri)._snapshot
    (row,) = [
        row
        for index in range(len(snapshot.leaves))
        if (row := snapshot.leaves.row(index)).keys == (key,)
    ]
    cells = snapshot.manifest._read(["column_stats"], f"object_id = '{row.object_id}'").to_pylist()
    found = statistics.from_rows(cells[0]["column_stats"], snapshot.head.schema)[0]
    return found.low, found.high, found.exact


class TestStatistics:
    def test_the_next_change_need_not_read_them(self, table, reads):
        for id in (9, 1, 3):
            reads.clear()
            table.append([{"id": id, "k": "a"}])
            assert not any("column_stats" in columns for columns in reads)
        assert bounds(table) == (1, 9, True)
        table.delete("id = 9")
        table.append([{"id": 2, "k": "a"}])
        assert bounds(table) == (1, 9, False)

    def test_a_process_that_knows_none_reads_them(self, table, reads):
        view._kept_statistics = view._KeptStatistics(100)
        table.append([{"id": 9, "k": "a"}])
        assert any("column_stats" in columns for columns in reads)
        assert bounds(table) == (5, 9, True)

    def test_what_others_have_written_counts(self, table):
        other = phalanx.open(table.uri)
        for id in (100, -100):
            table.append([{"id": id, "k": "a"}])
            view._kept_statistics = view._KeptStatistics(100)
            other.append([{"id": id * 2, "k": "a"}])
            view._kept_statistics = view._KeptStatistics(100)
        assert bounds(table) == (-200, 200, True)

    def test_they_come_with_what_others_have_written(self, table, reads):
        """Whoever is overtaken reads what has changed once, statistics included."""
        phalanx.open(table.uri).append([{"id": 100, "k": "a"}])
        table._snapshot.statistics = {}
        view._kept_statistics = view._KeptStatistics(100)
        table.refresh()
        reads.clear()
        table.append([{"id": 3, "k": "a"}])
        assert not any("column_stats" in columns for columns in reads)
        assert bounds(table) == (3, 100, True)

    def test_one_version_after_a_rollback(self, table):
        before = table.version
        table.append([{"id": 50, "k": "a"}])
        table.rollback(before)
        table.append([{"id": 6, "k": "a"}])
        assert bounds(table) == (5, 6, True)


class TestRemembering:
    @pytest.fixture
    def row(self, table):
        return table._snapshot.leaves.row(0)

    def test_another_schema_reads_them_anew(self, table, row):
        remembered, snapshot = view._KeptStatistics(10), table._snapshot
        remembered.put(snapshot, row, {})
        assert remembered.get(snapshot, row) == {}
        wider = TableSchema.assign(pa.schema([*SCHEMA, ("more", pa.int64())]))
        snapshot.head = replace(snapshot.head, schema=wider)
        assert remembered.get(snapshot, row) is None

    def test_another_version_or_leaf(self, table, row):
        remembered, snapshot = view._KeptStatistics(10), table._snapshot
        remembered.put(snapshot, row, {})
        assert remembered.get(snapshot, replace(row, read_version=DETACHED + 1)) is None
        assert remembered.get(snapshot, snapshot.leaves.row(1)) is None

    @pytest.mark.parametrize("version", [None, 1, RANDOM - 1])
    def test_versions_that_may_come_again_are_not(self, table, row, version):
        remembered = view._KeptStatistics(10)
        remembered.put(table._snapshot, replace(row, read_version=version), {})
        assert not len(remembered._kept)

    def test_it_is_bounded(self, table, row):
        remembered = view._KeptStatistics(3)
        rows = [replace(row, read_version=DETACHED + n) for n in range(5)]
        for each in rows:
            remembered.put(table._snapshot, each, {})
        known = [remembered.get(table._snapshot, each) is not None for each in rows]
        assert known == [False, False, True, True, True]


@pytest.mark.parametrize("short", [2, 64], ids=["long", "short"])
def test_a_leaf_goes_with_its_timeline(table, monkeypatch, short):
    """Of a long one only the rows that are there are named: most have expired."""
    monkeypatch.setattr(view, "_SHORT_TIMELINE", short)
    for id in range(4):
        table.append([{"id": id, "k": "a"}, {"id": id, "k": "a2"}])
    age = dt.timedelta(0)
    table.expire_snapshots(age)
    table.append([{"id": 9, "k": "a"}])

    def timelines():
        rows = ManifestVersion(table._snapshot.location)._read(["object_id"], VERSIONS)
        return Counter(id.rpartition("$")[0] for id in rows["object_id"].to_pylist())

    (leaf,) = [row for row in table._snapshot.leaves.rows() if row.keys == ("a",)]
    before = timelines()
    assert before[leaf.object_id] < leaf.version_number, "some have expired"
    named, swap = [], ManifestVersion.swap

    def recording(self, update):
        named.extend(update.removed)
        return swap(self, update)

    monkeypatch.setattr(ManifestVersion, "swap", recording)
    table.delete("k = 'a'")
    del before[leaf.object_id]
    assert timelines() == before
    own = [id for id in named if id.startswith(f"{leaf.object_id}$")]
    assert len(own) == (2 if short == 2 else leaf.version_number)
    assert table.check().ok
