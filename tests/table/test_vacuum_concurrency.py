"""Vacuum beside other writers, and what a crash leaves behind."""

import pytest

import phalanx
from phalanx import ConflictError
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion, SwapLost
from phalanx.table import retention
from phalanx.table import vacuum as vacuuming
from phalanx.table.check import check_table
from phalanx.transaction import commit, swap
from tests.table.aging import DAY, NOTHING, SCHEMA, age, changed_table, ids, row, vacuum, versions
from tests.transaction import sabotage


@pytest.fixture
def table(root):
    return changed_table(root)


class TestOthersMeanwhile:
    def test_a_commit_in_between(self, table, root, monkeypatch):
        """The expiry is worked out on one snapshot and lands on another."""
        real = retention._rows_without

        def with_a_commit(*arguments):
            if phalanx.open(root).version == 4:
                phalanx.open(root).append([row(6, "c")])
            return real(*arguments)

        monkeypatch.setattr(retention, "_rows_without", with_a_commit)
        age(root, 8)
        report = vacuum(table)
        assert report.snapshots == (1, 2, 3)
        assert versions(table) == [4, 5, 6]
        assert ids(table) == [4, 5, 6]
        assert check_table(table._snapshot).problems == []

    def test_a_tag_in_between(self, table, root, monkeypatch):
        real = retention._rows_without

        def with_a_tag(*arguments):
            if not phalanx.open(root).tags():
                phalanx.open(root).tag("late", 2)
            return real(*arguments)

        monkeypatch.setattr(retention, "_rows_without", with_a_tag)
        age(root, 8)
        assert vacuum(table).snapshots == (1, 3)
        assert ids(phalanx.open(root, version="late")) == [1, 2, 3]

    def test_a_tag_after_the_rows_have_gone(self, root, monkeypatch):
        """Of the manifest versions of a snapshot vacuum keeps the last, and a tag holds that."""
        table = phalanx.create(root, SCHEMA, ["part"])
        for id in range(7):
            table.append([row(id)])
        versions = len(table._snapshot.manifest.versions())
        ManifestVersion(Location(table.uri)).compact(True)
        assert len(table._snapshot.manifest.versions()) > versions  # several have it
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
        real = retention._rows_without

        def with_a_return(*arguments):
            found = real(*arguments)
            other = phalanx.open(root)
            if other.version == 4:
                other.overwrite([row(8, "c")])
                other.overwrite([row(9)])
            return found

        monkeypatch.setattr(retention, "_rows_without", with_a_return)
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
        real, removed = swap.reach, []

        def with_a_vacuum(name):
            if name == "commit.before-swap" and not removed:
                monkeypatch.setattr(swap, "reach", real)
                for leaf in root.glob("*$dataset"):
                    age(leaf, 2)
                removed.append(vacuum(phalanx.open(root), DAY).files)
            real(name)

        monkeypatch.setattr(swap, "reach", with_a_vacuum)
        with pytest.raises(ConflictError, match="a vacuum has removed files"):
            tx.commit()
        assert removed[0] > 0
        assert ids(phalanx.open(root)) == [4, 5]


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
