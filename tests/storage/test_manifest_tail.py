"""Swaps that replace the fragments of the newest rows: what they may do, and what they must refuse.

Every change of the head must be lost by the second of two writers that start from one version,
whether it replaces fragments or merges rows. What others do to the manifest meanwhile is random.
"""

import contextlib
import datetime as dt
import os
import random
import shutil
import uuid

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation
from lance.fragment import write_fragments

import phalanx
from phalanx.storage import manifest as manifests
from phalanx.storage import notes
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion, SwapLost
from phalanx.storage.manifest_update import ManifestUpdate
from phalanx.storage.records import TransactionRecord
from tests.transaction import sabotage
from tests.transaction.processes import start

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string())])


@pytest.fixture
def table(root):
    table = phalanx.create(root, SCHEMA, ["k"])
    for id in range(4):
        table.append([{"id": id, "k": f"{id % 2}"}])
    return table


@pytest.fixture
def location(table):
    return Location(table.uri)


@pytest.fixture
def merges(monkeypatch):
    """The swaps that Lance had to look for rows for."""
    seen, swap = [], ManifestVersion._swap

    def counted(self, *given):
        seen.append(given)
        return swap(self, *given)

    monkeypatch.setattr(ManifestVersion, "_swap", counted)
    return seen


def change(manifest, new=True):
    """The next head with its transaction."""
    head = manifest.head().after(dt.datetime.now(dt.UTC), uuid.uuid4().hex)
    update = ManifestUpdate(head.specs)
    update.put_head(head)
    record = TransactionRecord.of(head, "append", rows_added=0, rows_removed=0, leaves=0)
    update.put_transaction(record, new=new)
    return update


def check(location):
    """There is one head, each row is there once, and the note says what its fragments hold."""
    manifest = ManifestVersion(location)
    ids = manifest.dataset.to_table(columns=["object_id"]).column(0).to_pylist()
    assert len(ids) == len(set(ids))
    assert manifest.head().sequence == len([id for id in ids if id.startswith("__transaction")])
    tail = notes.read(location, manifest.identity)
    if tail is not None and tail.held:
        fragments = [manifest.dataset.get_fragment(id) for id in tail.fragments]
        columns = tail.rows.schema.names
        held = manifest.dataset.scanner(columns=columns, fragments=fragments).to_table()
        noted = tail.rows.slice(len(tail.rows) - tail.held)
        assert sorted(held.to_pylist(), key=str) == sorted(noted.to_pylist(), key=str)
    for id in ids[:: max(1, len(ids) // 5)]:  # through the index
        assert manifest.leaves(["object_id"], ids=[id]).num_rows == 1


class TestSwaps:
    def test_lance_looks_for_no_rows(self, table, location, merges):
        for id in range(200):
            table.append([{"id": id, "k": f"{id % 2}"}])
        assert not merges
        check(location)
        assert table.count() == 204
        assert len(lance.dataset(location.manifest).get_fragments()) < 12

    def test_writers_of_different_partitions(self, table, root, location, merges):
        handles = [phalanx.open(root) for _ in range(12)]
        for step in range(10):
            for n, handle in enumerate(handles):
                if step == 4:
                    merges.clear()
                handle.append([{"id": n, "k": f"w{n}"}])
        assert len(merges) < 12  # the one after an index was updated, perhaps
        check(location)
        assert phalanx.open(root).count() == 124

    def test_old_rows_keep_a_fragment_of_their_own(self, table, location, monkeypatch):
        monkeypatch.setattr(manifests, "_MANY_ROWS", 12)
        monkeypatch.setattr(manifests, "_FEW_ROWS", 6)
        for id in range(60):
            table.append([{"id": id, "k": f"{id % 3}"}])
            check(location)
        assert table.count() == 64
        assert phalanx.open(table.uri, version=20).count() == 19

    def test_a_row_that_may_exist_is_merged(self, location, merges):
        manifest = ManifestVersion(location)
        update = change(manifest, new=False)
        manifest.swap(update)
        assert len(merges) == 1
        check(location)

    def test_a_column_of_another_client_keeps_its_values(self, table, location, merges):
        dataset = lance.dataset(location.manifest)
        dataset.add_columns(pa.field("extra", pa.string()))
        dataset.update({"extra": "object_id"})
        table.append([{"id": 9, "k": "0"}])
        table.append([{"id": 9, "k": "0"}])
        assert len(merges) == 2
        extra = lance.dataset(location.manifest).to_table(columns=["object_id", "extra"])
        rows = {row["object_id"]: row["extra"] for row in extra.to_pylist()}
        assert sum(id == value for id, value in rows.items()) > 5

    def test_a_version_that_is_gone(self, table, location):
        manifest = ManifestVersion(location)
        assert notes.read(location, manifest.identity).held
        update = change(manifest)
        table.append([{"id": 9, "k": "0"}])
        name = f"{2**64 - 1 - manifest.version}.manifest"
        os.unlink(os.path.join(location.manifest, "_versions", name))
        with pytest.raises(SwapLost):
            manifest.swap(update)
        check(location)

    def test_another_table_in_its_place(self, table, root, location, monkeypatch):
        """A writer sleeps between its swap and its look at the file that this has made."""
        seen = ManifestVersion._at

        def sleep(self, dataset):
            monkeypatch.setattr(ManifestVersion, "_at", seen)
            shutil.rmtree(root)
            other = phalanx.create(root, SCHEMA, ["k"])
            for id in range(100, 105):
                other.append([{"id": id, "k": f"{id % 2}"}])
            assert ManifestVersion(location).version == dataset.version
            return seen(self, dataset)

        monkeypatch.setattr(ManifestVersion, "_at", sleep)
        table.append([{"id": 9, "k": "0"}])
        newest = ManifestVersion(location)
        assert notes.read(location, newest.identity).held
        assert newest.gather().same_file(newest)
        other = phalanx.open(root).set_properties({"owner": "me"})
        check(location)
        assert sorted(other.to_arrow()["id"].to_pylist()) == [*range(100, 105)]
        assert other.check().ok

    def test_a_named_transaction_that_is_repeated(self, table, root):
        for _ in range(3):
            phalanx.open(root).append([{"id": 9, "k": "0"}], transaction_id="one")
            table.append([{"id": 8, "k": "0"}])
        assert phalanx.open(root).count("id = 9") == 1


def _merge(manifest):
    """A swap of a writer that has no note."""
    manifest._swap(change(manifest).to_table(), [], True)


def _removal(manifest):
    manifest._swap(change(manifest).to_table(), ["__transaction$gone"], False)


def _overwrite(manifest):
    rows = manifest.dataset.to_table()
    uri = manifest.location.manifest
    fragments = write_fragments(rows, uri, schema=rows.schema, mode="overwrite")
    operation = LanceOperation.Overwrite(rows.schema, fragments)
    lance.LanceDataset.commit(
        manifest.dataset, operation, read_version=manifest.version, max_retries=0
    )


def _metadata(manifest):
    updates = LanceOperation.UpdateMap({"note": str(random.random())})
    operation = LanceOperation.UpdateConfig(table_metadata_updates=updates)
    lance.LanceDataset.commit(manifest.dataset, operation, read_version=manifest.version)


def _compaction_of_all(manifest):
    lance.dataset(manifest.location.manifest).optimize.compact_files()


#: What changes the head.
SWAPS = [lambda m: m.swap(change(m)), _merge, _removal]
#: What does not, and whether a swap that replaces fragments must then be lost.
OTHERS = [
    (lambda m: m.gather(), False),
    (lambda m: m.compact(False), False),
    (lambda m: m.compact(True), False),
    (_compaction_of_all, False),
    (lambda m: m.dataset.add_columns(pa.field(f"x{uuid.uuid4().hex}", pa.int64())), True),
    (_metadata, False),
    (_overwrite, True),
]


def _contest(location, rng):
    """One round of two writers that start from the same version; returns who met whom."""
    first, second = ManifestVersion(location), ManifestVersion(location)
    in_tail = bool((tail := notes.read(location, second.identity)) and tail.held)
    update = change(second)
    others = rng.sample(OTHERS, rng.choice([0, 0, 1]))
    for other, _ in others:
        other(ManifestVersion(location))
    late = SWAPS[0] if rng.random() < 0.6 else rng.choice(SWAPS[1:])
    comes_first = rng.choice(SWAPS)
    comes_first(first if not others else ManifestVersion(location))
    with pytest.raises(SwapLost):
        second.swap(update) if late is SWAPS[0] else late(second)
    added = set(ManifestVersion(location).schema.names) - set(first.schema.names)
    if added:  # with them, no swap replaces fragments
        lance.dataset(location.manifest).drop_columns(sorted(added))
    return in_tail


def _contests(location, count, seed):
    rng, in_tail = random.Random(seed), 0
    for number in range(count):
        in_tail += _contest(location, rng)
        for _ in range(rng.choice([0, 1, 2])):
            newest = ManifestVersion(location)
            newest.swap(change(newest))
        if number % 10 == 0:
            check(location)
    check(location)
    assert in_tail > count // 4


class TestConflicts:
    def test_the_second_of_two_swaps_is_lost(self, location):
        _contests(location, 40, seed=1)

    @pytest.mark.soak
    def test_the_second_of_two_swaps_is_always_lost(self, location):
        _contests(location, 1_500, seed=2)

    @pytest.mark.parametrize("number", range(len(OTHERS)))
    def test_what_leaves_the_head_alone(self, location, number):
        """A swap after it either lands on top of it, or is lost as a whole."""
        other, must_lose = OTHERS[number]
        for _ in range(6):
            manifest = ManifestVersion(location)
            update = change(manifest)
            other(ManifestVersion(location))
            try:
                manifest.swap(update)
            except SwapLost:
                pass
            else:
                assert not must_lose
            check(location)
            for _ in range(2):
                newest = ManifestVersion(location)
                newest.swap(change(newest))


def _append(uri):
    phalanx.open(uri).append([{"id": 9, "k": "0"}])


def _append_and_die(uri, step):
    with sabotage.failing(step, "kill"):
        _append(uri)


class TestFailures:
    def test_a_writer_stops_at_any_step(self, table, root, location, merges):
        found = sabotage.steps(lambda: _append(root))
        assert {"lance.write-manifest.after", "commit.after-swap"} <= set(found)
        assert not merges
        rows = table.refresh().count()
        for step in found:
            for how in ("raise", "kill"):
                if how == "kill":
                    start(_append_and_die, str(root), step).join(60)
                else:
                    failures = contextlib.suppress(OSError, phalanx.PhalanxError)
                    with failures, sabotage.failing(step, "raise"):
                        _append(root)
                check(location)
                now = phalanx.open(root).count()
                assert rows <= now <= rows + 1
                _append(root)
                _append(root)
                check(location)
                rows = phalanx.open(root).count()
                assert rows == now + 2
