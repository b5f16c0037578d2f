"""An append is one transaction: all of it is visible afterwards, or none."""

import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError, InvalidInput, TableNotFound
from phalanx.storage import cache
from phalanx.storage.leaf import Leaf, LeafWriter
from phalanx.storage.manifest import ManifestVersion, SwapLost
from phalanx.transaction import commit

SCHEMA = pa.schema([("id", pa.int64()), ("country", pa.string())])
SRC = Path(phalanx.__file__).parent.parent


@pytest.fixture
def table(root):
    return phalanx.create(root, SCHEMA, ["country"])


def rows(*pairs):
    return [{"id": id, "country": country} for id, country in pairs]


def ids(root):
    return sorted(phalanx.open(root).scan().to_arrow()["id"].to_pylist())


def workers():
    """The threads of pools."""
    return {thread for thread in threading.enumerate() if "ThreadPool" in thread.name}


def fail_at(monkeypatch, owner, name, call, *, after=False, error=OSError):
    """Let the `call`-th call of a method fail, before or after it has done its work."""
    real = getattr(owner, name)
    count = iter(range(1, 1_000))
    lock = threading.Lock()

    def failing(*args, **options):
        with lock:
            now = next(count) == call
        if now and not after:
            raise error("it broke")
        result = real(*args, **options)
        if now:
            raise error("it broke")
        return result

    monkeypatch.setattr(owner, name, failing)


class TestAllOrNothing:
    """Whatever fails before the swap, the table is as it was, and can be written again."""

    @pytest.mark.parametrize(
        ("owner", "step", "visit"),
        # The rows of new leaves are one write, and a commit for each.
        [(LeafWriter, "write", 2), (Leaf, "commit", 3)],
        ids=["write", "commit"],
    )
    @pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
    def test_a_leaf_fails(self, root, table, monkeypatch, owner, step, visit, after):
        table.append(rows((1, "US")))
        with monkeypatch.context() as patch:
            fail_at(patch, owner, step, visit, after=after)
            with pytest.raises(OSError, match="it broke"):
                table.append(rows((2, "US"), (3, "CA"), (4, "DE"), (5, "FR")))
        assert table.version == 2
        assert phalanx.open(root).version == 2
        assert ids(root) == [1]
        assert phalanx.open(root).partitions().num_rows == 1
        table.append(rows((2, "US"), (3, "CA"), (4, "DE"), (5, "FR")))
        assert ids(root) == [1, 2, 3, 4, 5]
        assert table.version == 3

    def test_the_swap_fails(self, root, table, monkeypatch):
        with monkeypatch.context() as patch:
            fail_at(patch, ManifestVersion, "swap", 1)
            with pytest.raises(OSError, match="it broke"):
                table.append(rows((1, "US"), (2, "CA")))
        assert (table.version, ids(root)) == (1, [])
        table.append(rows((1, "US"), (2, "CA")))
        assert (table.version, ids(root)) == (2, [1, 2])

    def test_the_input_fails(self, root, table):
        def batches():
            yield pa.RecordBatch.from_pylist(rows((1, "US")), schema=SCHEMA)
            raise ConnectionError("the source went away")

        with pytest.raises(Exception, match="the source went away"):
            table.append(pa.RecordBatchReader.from_batches(SCHEMA, batches()), buffer_bytes=1)
        assert (phalanx.open(root).version, ids(root)) == (1, [])

    def test_a_later_batch_does_not_fit(self, root):
        schema = pa.schema([("id", pa.int8()), ("country", pa.string())])
        table = phalanx.create(root, schema, ["country"])
        wide = pa.schema([("id", pa.int64()), ("country", pa.string())])

        def batches():
            for id in (1, 2, 300):
                yield pa.RecordBatch.from_pylist(rows((id, "US")), schema=wide)

        with pytest.raises(InvalidInput, match="'id' does not fit int8"):
            table.append(pa.RecordBatchReader.from_batches(wide, batches()), buffer_bytes=1)
        assert (phalanx.open(root).version, ids(root)) == (1, [])

    def test_threads_end_with_a_failure(self, table, monkeypatch):
        fail_at(monkeypatch, LeafWriter, "write", 1)
        before = workers()
        with pytest.raises(OSError, match="it broke"):
            table.append(rows((1, "US"), (2, "CA")))
        assert workers() == before


class TestLostReplies:
    """The swap landed, and the answer did not arrive."""

    def test_the_append_succeeds(self, root, table, monkeypatch):
        fail_at(monkeypatch, ManifestVersion, "swap", 1, after=True)
        table.append(rows((1, "US"), (2, "CA")))
        assert table.version == 2
        assert ids(root) == [1, 2]

    def test_it_was_taken_for_a_lost_race(self, root, table, monkeypatch):
        """An object store that is asked again finds its own first answer in the way."""
        fail_at(monkeypatch, ManifestVersion, "swap", 1, after=True, error=SwapLost)
        table.append(rows((1, "US"), (2, "CA")))
        assert ids(root) == [1, 2]
        assert phalanx.open(root).version == 2

    def test_others_came_in_between(self, root, table, monkeypatch):
        monkeypatch.setattr(cache, "SMALLEST", 1)
        monkeypatch.setattr("phalanx.transaction.lock.fcntl", None)
        table.append(rows((0, "US")))
        real = ManifestVersion.swap

        def swap(self, *args, **options):
            monkeypatch.setattr(ManifestVersion, "swap", real)
            real(self, *args, **options)
            phalanx.open(root).append(rows((9, "FR")))
            for file in cache.folder().iterdir():
                file.unlink()
            phalanx.open(root).count()  # keeps a snapshot that is newer than this transaction
            raise OSError("it broke")

        monkeypatch.setattr(ManifestVersion, "swap", swap)
        table.append(rows((1, "US")))
        assert ids(root) == [0, 1, 9]


class TestTransactionIds:
    def test_the_second_time_does_nothing(self, root, table):
        table.append(rows((1, "US")), transaction_id="nightly-2025-12-10")
        table.append(rows((1, "US")), transaction_id="nightly-2025-12-10")
        assert (table.version, ids(root)) == (2, [1])

    def test_nor_from_a_stale_handle(self, root, table):
        stale = phalanx.open(root)
        table.append(rows((1, "US")), transaction_id="a")
        table.append(rows((2, "US")))
        stale.append(rows((1, "US")), transaction_id="a")
        assert stale.version == 3
        assert ids(root) == [1, 2]

    def test_the_data_is_not_read(self, table):
        table.append(rows((1, "US")), transaction_id="a")

        def batches():
            raise AssertionError("the data was read")
            yield

        table.append(pa.RecordBatchReader.from_batches(SCHEMA, batches()), transaction_id="a")

    def test_after_a_failure_it_is_free(self, root, table, monkeypatch):
        with monkeypatch.context() as patch:
            fail_at(patch, ManifestVersion, "swap", 1)
            with pytest.raises(OSError, match="it broke"):
                table.append(rows((1, "US")), transaction_id="a")
        table.append(rows((1, "US")), transaction_id="a")
        assert ids(root) == [1]

    def test_one_lands_while_the_same_is_under_way(self, root, table, monkeypatch):
        """A job that was thought dead comes back, and others have gone on since."""
        monkeypatch.setattr(cache, "SMALLEST", 1)
        table.append(rows((0, "US")))
        late = phalanx.open(root).transaction(transaction_id="a")
        with late:
            late.append(rows((1, "US")))
            phalanx.open(root).append(rows((1, "US")), transaction_id="a")
            phalanx.open(root).append(rows((2, "FR")))
            for file in cache.folder().iterdir():
                file.unlink()
            phalanx.open(root).count()
        assert ids(root) == [0, 1, 2]

    @pytest.mark.parametrize("id", ["'", "a$b", "a/b\n", "😀", "x" * 512])
    def test_any_string_will_do(self, root, table, id):
        for _ in range(2):
            table.append(rows((1, "US")), transaction_id=id)
        assert ids(root) == [1]
        assert table.snapshots()["transaction_id"].to_pylist()[-1] == id

    @pytest.mark.parametrize("id", ["", "x" * 513, 5])
    def test_what_is_none(self, root, table, id):
        with pytest.raises(InvalidInput, match="transaction_id is a string"):
            table.append(rows((1, "US")), transaction_id=id)
        assert phalanx.open(root).version == 1


class TestStaleHandles:
    def test_they_append_to_the_newest(self, root, table):
        stale = phalanx.open(root)
        old = phalanx.open(root, version=1)
        table.append(rows((1, "US")))
        stale.append(rows((2, "US"), (3, "CA")))
        old.append(rows((4, "CA")))
        assert (table.version, stale.version, old.version) == (2, 3, 4)
        assert ids(root) == [1, 2, 3, 4]
        assert phalanx.open(root).partitions().num_rows == 2

    def test_a_handle_sees_its_own_changes_only(self, root, table):
        other = phalanx.open(root)
        other.append(rows((1, "US")))
        assert table.count() == 0
        assert table.refresh().count() == 1

    def test_a_table_that_was_made_again_is_another(self, root, table):
        assert table.count() == 0
        shutil.rmtree(root)
        phalanx.create(root, SCHEMA, ["country"])
        with pytest.raises(ConflictError, match="dropped and made again"):
            table.append(rows((1, "US")))
        assert (phalanx.open(root).version, ids(root)) == (1, [])

    def test_a_table_that_was_dropped(self, root, table):
        shutil.rmtree(root)
        with pytest.raises(TableNotFound, match="no longer exists as it was opened"):
            table.append(rows((1, "US")))
        assert not root.exists()


class TestRetries:
    def test_a_lost_race_writes_no_rows_again(self, root, table, monkeypatch):
        """Whoever loses commits the same files on top of the winner's."""
        table.append(rows((1, "US")))
        written = Counter()
        write = LeafWriter.write

        def counting(self, *args, **options):
            written["files"] += 1
            return write(self, *args, **options)

        real = ManifestVersion.swap

        def swap(self, *args, **options):
            monkeypatch.setattr(ManifestVersion, "swap", real)
            phalanx.open(root).append(rows((2, "US"), (3, "CA")))
            written.clear()
            return real(self, *args, **options)

        stale = phalanx.open(root)
        monkeypatch.setattr(LeafWriter, "write", counting)
        monkeypatch.setattr(ManifestVersion, "swap", swap)
        # Without the lock both come to the swap at once.
        monkeypatch.setattr("phalanx.transaction.lock.fcntl", None)
        stale.append(rows((4, "US"), (5, "CA")))
        assert ids(root) == [1, 2, 3, 4, 5]
        assert written["files"] == 0
        assert phalanx.open(root).partitions().num_rows == 2

    def test_a_swap_that_never_wins_gives_up(self, root, table, monkeypatch):
        def lose(*_):
            raise SwapLost

        monkeypatch.setattr(ManifestVersion, "swap", lose)
        monkeypatch.setattr("phalanx.transaction.swap.PATIENCE_SECONDS", 0.05)
        with pytest.raises(ConflictError, match="nothing was written"):
            table.append(rows((1, "US")))
        assert table.version == 1


WRITER = """
import sys, phalanx
root, worker, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
table = phalanx.open(root)
for i in range(count):
    first = worker * 1000 + i * 3
    table.append([
        {"id": first, "country": "same"},
        {"id": first + 1, "country": f"shared {i}"},
        {"id": first + 2, "country": f"own {worker}"},
    ])
"""


class TestManyWriters:
    WRITERS, APPENDS = 3, 4

    def check(self, root):
        table = phalanx.open(root)
        total = self.WRITERS * self.APPENDS
        expected = [w * 1000 + i for w in range(self.WRITERS) for i in range(self.APPENDS * 3)]
        assert ids(root) == sorted(expected)
        assert table.count() == total * 3
        assert table.version == total + 1
        assert table.snapshots()["version"].to_pylist() == list(range(1, total + 2))
        countries = table.partitions()["country"].to_pylist()
        assert len(countries) == len(set(countries)) == 1 + self.APPENDS + self.WRITERS
        for version in (1, 2, total // 2, total):
            assert phalanx.open(root, version=version).count() == (version - 1) * 3
        folders = {path.name for path in root.iterdir() if path.is_dir()} - {"__manifest"}
        assert len(folders) == len(countries), "two creators of a partition use one folder"

    def test_processes(self, root, table):
        command = [sys.executable, "-c", WRITER, str(root)]
        workers = [
            subprocess.Popen(
                [*command, str(worker), str(self.APPENDS)],
                env={"PYTHONPATH": str(SRC), "PHALANX_CACHE": "off", "PATH": ""},
                stderr=subprocess.PIPE,
                text=True,
            )
            for worker in range(self.WRITERS)
        ]
        for worker in workers:
            _, errors = worker.communicate(timeout=120)
            assert worker.returncode == 0, errors
        self.check(root)

    @pytest.mark.parametrize("locked", [True, False], ids=["locked", "unlocked"])
    def test_threads(self, root, table, monkeypatch, locked):
        if not locked:
            monkeypatch.setattr("phalanx.transaction.lock.fcntl", None)
        failures = []

        def work(worker):
            try:
                handle = phalanx.open(root)
                for i in range(self.APPENDS):
                    first = worker * 1000 + i * 3
                    names = ("same", f"shared {i}", f"own {worker}")
                    handle.append(rows(*zip(range(first, first + 3), names, strict=True)))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(self.WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        self.check(root)


def test_main_of_a_leaf_is_not_touched_after_the_first_rows(root, table):
    """Rows are committed detached: only the manifest makes them visible."""
    table.append(rows((1, "US")))
    (folder,) = root.glob("*_v1$*")
    first = lance.dataset(folder).version
    table.append(rows((2, "US")))
    assert (lance.dataset(folder).version, lance.dataset(folder).count_rows()) == (first, 1)


@pytest.mark.parametrize("rows", [1, 30])
def test_a_commit_that_writes_many_rows_of_the_manifest_makes_its_indexes(root, monkeypatch, rows):
    """The commits after it would read all of those rows without the indexes."""
    monkeypatch.setattr(commit, "_REINDEX_ROWS", 50)
    table = phalanx.create(root, pa.schema([("k", pa.int64())]), ["k"])
    table.append([{"k": k} for k in range(rows)])
    manifest = lance.dataset(root / "__manifest")
    indexes = [index.name for index in manifest.describe_indices()]
    assert len(indexes) == (2 if rows == 30 else 0)
    for name in indexes:
        assert manifest.stats.index_stats(name)["num_unindexed_rows"] == 0
    table.append([{"k": 5}])
    assert phalanx.open(root).count("k = 5") == table.count("k = 5") == 1 + (rows > 5)
    assert table.check().ok
