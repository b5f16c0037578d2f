"""A full disk, a folder that may not be written to, a forked process: one error that says so."""

import ctypes
import datetime as dt
import errno
import multiprocessing
import os
import resource
import stat
import types

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx import PhalanxError, StorageError
from phalanx.storage.manifest import ManifestVersion
from phalanx.table import vacuum as vacuuming
from phalanx.transaction import lock
from tests.table.aging import age, files
from tests.transaction.processes import together

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
ROWS = [{"id": n, "part": "abc"[n % 3]} for n in range(30)]

CHANGES = {
    "append": lambda t: t.append(ROWS),
    "append to a new partition": lambda t: t.append([{"id": 1, "part": "new"}]),
    "overwrite": lambda t: t.overwrite(ROWS),
    "delete": lambda t: t.delete("id = 1"),
    "delete of a partition": lambda t: t.delete("part = 'a'"),
    "update": lambda t: t.update({"id": "id + 1"}, "id = 1"),
    "merge": lambda t: t.merge(ROWS, ["id"]),
    "add_column": lambda t: t.add_column("more", "int64"),
    "rename_column": lambda t: t.rename_column("part", "region"),
    "evolve_partitioning": lambda t: t.evolve_partitioning(["bucket(4, id)"]),
    "tag": lambda t: t.tag("kept"),
    "rollback": lambda t: t.rollback(2),
    "set_properties": lambda t: t.set_properties({"owner": "me"}),
    "optimize": lambda t: t.optimize(),
    "rewrite": lambda t: t.rewrite(),
    "expire_snapshots": lambda t: t.expire_snapshots(dt.timedelta(0)),
    "vacuum": lambda t: t.vacuum(dt.timedelta(0), force=True),
    "create": lambda t: phalanx.create(f"{t.uri}/other", SCHEMA),
}


def made(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    table.append(ROWS).append(ROWS)
    table.evolve_partitioning(["part", "bucket(2, id)"])
    return table.append(ROWS)


def without_space(uri):
    """What each change raises in a process that may not write to any file."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    return errors_of(uri)


def without_rights(uri):
    """What each change raises in a process without the right to write."""
    if os.geteuid() == 0:
        _become_an_ordinary_user()
    return errors_of(uri)


def errors_of(uri):
    errors = {}
    for name, change in CHANGES.items():
        try:
            change(phalanx.open(uri))
            errors[name] = None
        except Exception as error:
            errors[name] = [kind.__name__ for kind in type(error).__mro__], str(error)
    return errors


def _become_an_ordinary_user():
    """Give up root's right to ignore permissions (Linux only)."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    ability = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capget(header, ability) == 0
    override, search = 1 << 1, 1 << 2
    ability[0] &= ~(override | search)
    assert libc.capset(header, ability) == 0


class TestWithoutSpace:
    @pytest.fixture(scope="class")
    @classmethod
    def errors(cls, tmp_path_factory):
        root = tmp_path_factory.mktemp("lake") / "t"
        made(root)
        before = phalanx.open(root).scan().to_arrow()
        (errors,) = together((without_space, str(root)))
        assert phalanx.open(root).scan().to_arrow().equals(before)
        assert phalanx.check(root).ok
        return errors

    @pytest.mark.parametrize("name", CHANGES)
    def test_every_change_says_so(self, errors, name):
        kinds, text = errors[name]
        assert "StorageError" in kinds, text
        assert "PhalanxError" in kinds
        assert "OSError" in kinds
        assert "/rust/" not in text
        assert "LanceError" not in text
        assert "\n" not in text

    def test_the_text(self, errors):
        _, text = errors["append"]
        assert "there is no space left for" in text
        assert "vacuum()" in text


class TestWithoutRights:
    @pytest.fixture(scope="class")
    @classmethod
    def errors(cls, tmp_path_factory):
        root = tmp_path_factory.mktemp("lake") / "t"
        made(root)
        folders = [folder for folder, _, _ in os.walk(root)]
        for folder in folders:
            os.chmod(folder, stat.S_IRUSR | stat.S_IXUSR)
        try:
            (errors,) = together((without_rights, str(root)))
        finally:
            for folder in folders:
                os.chmod(folder, stat.S_IRWXU)
        assert phalanx.check(root).ok
        return errors

    @pytest.mark.parametrize("name", CHANGES)
    def test_every_change_says_so(self, errors, name):
        kinds, text = errors[name]
        assert "StorageError" in kinds, text
        assert "/rust/" not in text
        assert "LanceError" not in text
        assert "\n" not in text

    def test_the_text(self, errors):
        _, text = errors["append"]
        assert "no right to read or write" in text


class TestErrorsOfOthers:
    def test_an_error_of_the_rows_passes(self, tmp_path):
        def batches():
            yield pa.record_batch({"id": [1], "part": ["a"]})
            raise FileNotFoundError(errno.ENOENT, "no such file", "/elsewhere/input.csv")

        table = phalanx.create(tmp_path / "t", SCHEMA, ["part"])
        rows = pa.RecordBatchReader.from_batches(SCHEMA, batches())
        with pytest.raises(FileNotFoundError) as caught:
            table.append(rows)
        assert not isinstance(caught.value, PhalanxError)
        assert table.refresh().version == 1


def published(root):
    """How many rows plain Lance readers see in each leaf."""
    return [
        lance.dataset(leaf["uri"]).count_rows()
        for leaf in phalanx.open(root).partitions().to_pylist()
    ]


class TestVacuumOfAFullDisk:
    """A disk on which nothing can be committed until enough is deleted."""

    @pytest.fixture
    def table(self, root):
        table = phalanx.create(root, SCHEMA, ["part"])
        table.append(ROWS).overwrite(ROWS)
        age(root, 8)
        return table

    def fill(self, monkeypatch, root, until):
        """Let swaps fail for lack of space as long as the table has more than `until` bytes."""
        swap = ManifestVersion.swap

        def swap_if_there_is_space(manifest, update):
            if sum(os.path.getsize(path) for path in files(root, absolute=True)) > until:
                raise OSError(errno.ENOSPC, "No space left on device")
            return swap(manifest, update)

        monkeypatch.setattr(ManifestVersion, "swap", swap_if_there_is_space)

    def size(self, root):
        return sum(os.path.getsize(path) for path in files(root, absolute=True))

    def test_files_that_nothing_refers_to_make_room(self, table, root, monkeypatch):
        leaf = next(p for p in root.iterdir() if p.name.endswith("dataset"))
        (leaf / "data" / "left.lance").write_bytes(bytes(1000))
        age(root, 8)
        self.fill(monkeypatch, root, self.size(root) - 1000)
        report = table.vacuum()
        assert report.snapshots == (1, 2)
        assert f"{leaf.name}/data/left.lance" in report.paths
        assert "the disk was full" in report.notes[0]
        assert len(set(report.paths)) == len(report.paths)
        assert table.count() == 30
        assert table.check().ok

    def test_files_of_old_snapshots_make_room(self, table, root, monkeypatch):
        self.fill(monkeypatch, root, self.size(root) - 1)
        with pytest.raises(StorageError, match="no space left"):
            table.vacuum()  # a limit of the process: the disk itself has space
        assert table.check().ok
        monkeypatch.setattr(vacuuming, "_free_bytes", lambda location: 0)
        report = table.vacuum()
        assert report.snapshots == (1, 2)
        assert report.bytes > 0
        assert table.count() == 30
        assert table.check().ok

    def test_what_was_freed_is_left_to_others(self, table, root, monkeypatch):
        """To publish a leaf for plain Lance readers takes two files."""
        table.append(ROWS)
        before = published(root)
        monkeypatch.setattr(vacuuming, "_free_bytes", lambda location: vacuuming._ENOUGH - 1)
        report = table.vacuum()
        assert report.snapshots == (1, 2)
        assert any("almost full" in note for note in report.notes)
        assert published(root) == before
        monkeypatch.setattr(vacuuming, "_free_bytes", lambda location: vacuuming._ENOUGH)
        assert not table.vacuum().notes
        assert published(root) == 3 * [20]

    def test_leaves_are_published_until_space_runs_out(self, table, root, monkeypatch):
        table.append(ROWS)
        (before,) = set(published(root))
        left = iter([vacuuming._ENOUGH] * 2)
        monkeypatch.setattr(vacuuming, "_free_bytes", lambda location: next(left, 0))
        assert "almost full" in table.vacuum().notes[0]
        assert sorted(published(root)) == [before, 20, 20]

    def test_files_may_run_out_as_well(self, table, root, monkeypatch):
        status = os.statvfs(root)
        rest = {name: getattr(status, name) for name in dir(status) if name.startswith("f_")}
        rest |= {"f_files": 10**6, "f_favail": 999}
        monkeypatch.setattr(os, "statvfs", lambda path: types.SimpleNamespace(**rest))
        assert "almost full" in table.vacuum().notes[0]
        table.set_properties({"anchor": "never"})
        assert not table.vacuum().notes

    def test_a_tagged_snapshot_is_kept(self, table, root, monkeypatch):
        table.tag("kept", 2)
        age(root, 8)
        self.fill(monkeypatch, root, self.size(root) - 1)
        monkeypatch.setattr(vacuuming, "_free_bytes", lambda location: 0)
        table.vacuum()
        assert phalanx.open(root, version="kept").count() == 30
        assert table.check().ok

    def test_without_anything_to_delete_the_error_is_raised(self, root, monkeypatch):
        table = phalanx.create(root, SCHEMA, ["part"]).append(ROWS)
        before = files(root)
        self.fill(monkeypatch, root, 0)
        with pytest.raises(StorageError, match="no space left"):
            table.vacuum(dt.timedelta(0), force=True)
        monkeypatch.undo()
        assert {path for path in before if not path.startswith(".")} <= files(root)
        assert table.refresh().count() == 30
        assert table.check().ok

    def test_nothing_is_deleted_while_another_holds_the_lock(self, table, root, monkeypatch):
        monkeypatch.setattr(lock, "_PATIENCE_SECONDS", 0.05)
        monkeypatch.setattr(vacuuming, "_free_bytes", lambda location: 0)
        self.fill(monkeypatch, root, 0)
        before = files(root)
        with (
            lock.held(table._snapshot.location),
            pytest.raises(StorageError, match="no space left"),
        ):
            table.vacuum()
        assert {p for p in before if "$dataset/" in p} <= files(root)


def read_and_write(uri, answers):
    outcomes = []
    for act in (
        lambda: phalanx.open(uri).count("id > 3"),
        lambda: phalanx.open(uri).append(ROWS),
        lambda: phalanx.create(f"{uri}2", SCHEMA),
    ):
        try:
            outcomes.append(str(act()))
        except PhalanxError as error:
            outcomes.append(str(error))
    answers.send(outcomes)


class TestForkedProcesses:
    @pytest.mark.filterwarnings("ignore:lance is not fork-safe", "ignore:This process")
    def test_they_are_refused_and_do_not_hang(self, tmp_path):
        table = phalanx.create(tmp_path / "t", SCHEMA, ["part"]).append(ROWS)
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=read_and_write, args=(table.uri, theirs), daemon=True)
        process.start()
        assert ours.poll(20), "the forked process hangs"
        outcomes = ours.recv()
        assert len(outcomes) == 3
        assert all("forked" in text and 'get_context("spawn")' in text for text in outcomes)
        process.join(10)
        assert table.append(ROWS).count() == 60

    def test_a_process_that_has_not_used_lance_may_fork(self, tmp_path):
        # The server that `together` forks from has imported everything and used nothing.
        made(tmp_path / "t")
        (rows,) = together((count, str(tmp_path / "t")))
        assert rows == 90


def count(uri):
    return phalanx.open(uri).count()
