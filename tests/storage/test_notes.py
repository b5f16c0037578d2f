"""Notes of swaps: they save a read of the manifest, and never change what a writer sees."""

import contextlib
import os
import random
import shutil

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.lru import LruCache
from phalanx.storage import notes
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.transaction import snapshot
from phalanx.transaction.snapshot import Snapshot

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string())])


@pytest.fixture(autouse=True)
def no_memory(monkeypatch):
    """Handles know only what they have seen themselves, as those of other processes do."""
    monkeypatch.setattr(snapshot, "_recent", LruCache(0))


@pytest.fixture
def table(root):
    table = phalanx.create(root, SCHEMA, ["k"])
    add(table, 0)
    return table


@pytest.fixture
def used(monkeypatch):
    """Whether notes told what had changed, for each time that somebody asked them."""
    answers, ask = [], notes.rows_since

    def asked(*question):
        answers.append((rows := ask(*question)) is not None)
        return rows

    monkeypatch.setattr(notes, "rows_since", asked)
    return answers


def add(table, id, k="a"):
    table.append([{"id": id, "k": k}])


def file_of(table):
    return os.path.join(table.uri, notes.NOTES_FILE)


def follow(table):
    """What a handle sees after it has followed the others. It must be what the manifest says."""
    location = Location(table.uri)
    known = table._snapshot
    known.leaves  # noqa: B018 - what it is advanced from
    followed, fresh = Snapshot.latest(location, known), Snapshot(ManifestVersion(location))
    assert followed.head == fresh.head
    assert followed.leaves.rows() == fresh.leaves.rows()
    records = fresh.manifest.transactions(since=known.sequence + 1)
    assert followed.news in (None, {record.id for record in records})
    stats = fresh.manifest.statistics().by_id()
    assert all(stats[id] == cells for id, cells in followed.statistics.items())
    return followed


class TestFollowing:
    def test_the_manifest_is_not_read(self, table, root, used, monkeypatch):
        other = phalanx.open(root)
        for id in range(20):  # with compactions in between
            add(other, id, k=f"k{id % 3}")
        known = table._snapshot
        monkeypatch.setattr(ManifestVersion, "_read", lambda *_: pytest.fail("it was read"))
        assert Snapshot.latest(Location(root), known).sequence == other.version
        assert used[-1]

    def test_whatever_the_others_do(self, table, root, used):
        rng = random.Random(7)
        handles = [phalanx.open(root) for _ in range(4)]
        changes = [
            lambda t: add(t, rng.randrange(99), rng.choice("abcd")),
            lambda t: add(t, rng.randrange(99), rng.choice("abcd")),
            lambda t: add(t, rng.randrange(99), rng.choice("abcd")),
            lambda t: t.append([{"id": n, "k": f"{n}"} for n in rng.sample(range(50), 9)]),
            lambda t: t.delete("id % 3 = 1"),
            lambda t: t.delete("k = 'b'"),
            lambda t: t.update({"id": "id + 1"}, "k = 'c'"),
            lambda t: t.tag(f"t{rng.random()}"),
            lambda t: t.set_properties({"x": str(rng.random())}),
            lambda t: t.optimize(),
            lambda t: t.expire_snapshots("0 seconds"),
        ]
        for step in range(80):
            with contextlib.suppress(phalanx.PhalanxError):  # such as a tag of what has expired
                rng.choice(changes)(rng.choice(handles))
            follow(rng.choice(handles))
            if step == 40:
                handles[0].evolve_partitioning(["k", "bucket(2, id)"])
        assert sum(used) > 30

    def test_a_leaf_that_changed_twice_is_in_its_last_state(self, table, root, used):
        other = phalanx.open(root)
        add(other, 1)
        add(other, 2)
        followed = follow(table)
        assert used[-1]
        assert [row.row_count for row in followed.leaves.rows()] == [3]

    def test_many_rows_are_read_from_the_manifest(self, table, root, used):
        other = phalanx.open(root)
        other.append([{"id": n, "k": f"{n}"} for n in range(500)])
        follow(table)
        assert not used[-1]

    def test_the_file_stays_small(self, table, root, used):
        other = phalanx.open(root)
        for id in range(200):
            add(other, id)
        assert os.path.getsize(file_of(table)) < 200_000
        follow(table)
        assert not used[-1]
        known = phalanx.open(root)
        add(other, 99)
        follow(known)
        assert used[-1]


class TestDamage:
    """Nothing that happens to the file changes an answer, and later notes are good again."""

    @pytest.fixture
    def other(self, table, root):
        other = phalanx.open(root)
        for id in range(3):
            add(other, id, k="bcd"[id])
        return other

    @pytest.fixture
    def damaged(self, table, other, root, used):
        """Put something else in the place of the file."""

        def put(content):
            with open(file_of(table), "wb") as file:
                file.write(content)
            follow(table)
            add(other, 4)
            known = phalanx.open(root)
            add(other, 5)
            follow(known)
            assert used[-1]
            follow(table)

        return put

    def content(self, table):
        with open(file_of(table), "rb") as file:
            return file.read()

    @pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.9, 0.99])
    def test_cut(self, table, other, damaged, part):
        content = self.content(table)
        damaged(content[: int(len(content) * part)])

    @pytest.mark.parametrize("junk", [b"x", b"\0" * 4096, b"PhN2", b"\xff" * 64])
    def test_with_more(self, table, other, damaged, junk):
        damaged(self.content(table) + junk)

    def test_with_other_bytes(self, table, other):
        content = self.content(table)
        rng = random.Random(1)
        for _ in range(60):
            changed = bytearray(content)
            changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            with open(file_of(table), "wb") as file:
                file.write(changed)
            follow(table)

    def test_gone(self, table, other, root):
        os.unlink(file_of(table))
        follow(table)

    def test_a_note_too_few(self, table, other, used, monkeypatch):
        """As after a crash between the swap and the note."""
        write = notes.write
        monkeypatch.setattr(notes, "write", lambda *_: None)
        add(other, 8, k="lost")
        monkeypatch.setattr(notes, "write", write)
        follow(table)
        assert not used[-1]
        add(other, 9)
        assert len(follow(table).leaves) == 5
        assert not used[-1]

    def test_a_folder_in_its_place(self, table, other):
        os.unlink(file_of(table))
        os.mkdir(file_of(table))
        add(other, 9)
        follow(table)


class TestOthers:
    def test_another_client_removes_a_leaf(self, table, root, used):
        other = phalanx.open(root)
        add(other, 1, k="b")
        add(table, 2, k="c")
        (leaf,) = (row.object_id for row in table._snapshot.leaves.rows() if row.keys == ("b",))
        add(other, 3, k="c")
        lance.dataset(f"{root}/__manifest").delete(f"object_id = '{leaf}'")
        asked = len(used)
        Snapshot.latest(Location(root), table._snapshot)
        assert used[asked:] == [False]

    def test_another_client_writes_in_the_middle_of_a_swap(self, table, root, used, monkeypatch):
        """Lance lets a swap pass that touches no row of the other commit."""
        other = phalanx.open(root)
        swap = ManifestVersion._replace_tail

        def late(self, *given):
            target = lance.dataset(f"{root}/__manifest")
            target.insert(target.to_table(limit=1).slice(0, 0))
            return swap(self, *given)

        monkeypatch.setattr(ManifestVersion, "_replace_tail", late)
        add(other, 1)
        monkeypatch.setattr(ManifestVersion, "_replace_tail", swap)
        follow(table)
        assert not used[-1]

    def test_the_table_is_restored(self, table, root, tmp_path, used):
        """What was noted since belongs to a history that is gone."""
        other = phalanx.open(root)
        shutil.copytree(root, tmp_path / "backup")
        add(other, 1, k="gone")
        later = phalanx.open(root)
        add(later, 2, k="gone too")
        kept = (root / notes.NOTES_FILE).read_bytes()
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "backup", root)
        (root / notes.NOTES_FILE).write_bytes(kept)
        new = phalanx.open(root)
        for id in range(4):
            add(new, id, k="new")
        for handle in (table, other, later):
            follow(handle)
        add(table, 5)
        assert phalanx.open(root).count() == 6

    def test_the_table_is_created_again(self, table, root, used):
        other = phalanx.open(root)
        add(other, 1, k="b")
        other.drop()
        assert not os.path.exists(root)
        again = phalanx.create(root, SCHEMA, ["k"])
        for id in range(3):
            add(again, id)
        assert follow(again).sequence == 4

    def test_a_copy_makes_notes_of_its_own(self, table, root, tmp_path, used):
        shutil.copytree(root, tmp_path / "copy")
        copy = phalanx.open(tmp_path / "copy")
        add(copy, 1, k="copy")
        known = phalanx.open(tmp_path / "copy")
        add(copy, 2, k="copy")
        add(table, 1, k="original")
        follow(known)
        assert used[-1]
        follow(table)
