"""A manifest that a plain Lance client has restored to an earlier version of itself."""

import subprocess
import sys

import pytest

import phalanx
from phalanx.storage import cache
from tests.table.damage import (
    check,
    copy_of,
    in_manifest,
    kinds,
    leaf_of,
    manifest,
    opened_elsewhere,
    repair,
    row,
    rows,
)


@pytest.fixture
def table(tables_to_damage, root):
    """Four leaves with the ids 1 to 4, 6 and 7, at version 4."""
    return copy_of(tables_to_damage, "plain", root)


def ids(table):
    return [line["id"] for line in rows(table)]


def restore(table, version):
    """Restore the manifest that held a version of the table."""
    held = phalanx.open(table.uri, version=version)._snapshot.manifest.version
    manifest(table).checkout_version(held).restore()


def undone(report):
    return [problem for problem in report.damage if problem.kind == "manifest-restored"]


def test_it_is_noticed(table):
    restore(table, 2)
    assert ids(table) == [1, 2, 3, 4]
    (problem,) = undone(check(table))
    assert "3 (append), 4 (delete)" in problem.what


def test_it_comes_back(table):
    expected, before = rows(table), in_manifest(table)
    restore(table, 2)
    report = repair(table)
    assert report.ok
    assert rows(table) == expected
    assert before.items() <= in_manifest(table).items()
    assert opened_elsewhere(table.uri).version == 5
    assert check(table).ok
    for version in (1, 2, 3, 4):
        opened = phalanx.open(table.uri, version=version)
        assert opened.count() == [0, 4, 7, 6][version - 1]


def test_a_dry_run_changes_nothing(table):
    restore(table, 2)
    assert "manifest-restored" in {problem.kind for problem in repair(table, dry_run=True).mended}
    assert ids(table) == [1, 2, 3, 4]


def test_leaves_that_were_removed_go_again(table):
    table.delete("part = 'b'")
    restore(table, 4)
    assert 2 in ids(table)
    assert repair(table).ok
    assert 2 not in ids(table)
    assert check(table).ok


def test_a_schema_and_a_spec_come_back(table):
    table.add_column("note", "string", default="x")
    table.evolve_partitioning(["part", "bucket(2, id)"])
    table.append([row(30) | {"note": "y"}])
    expected = rows(table)
    restore(table, 4)
    assert len(rows(table)) == 6
    assert repair(table).ok
    assert rows(table) == expected
    assert kinds(check(table)) == set()
    phalanx.open(table.uri).append([row(31, "b") | {"note": "z"}])
    assert len(rows(table)) == 8


def test_a_rollback_is_no_damage(table):
    table.rollback(2)
    assert check(table).ok
    assert ids(table) == [1, 2, 3, 4]


class TestAndThenCommitted:
    def test_to_another_leaf(self, table):
        restore(table, 2)
        opened_elsewhere(table.uri).append([row(20, "new")])
        assert len(undone(check(table))) == 1
        assert repair(table).ok
        assert ids(table) == [1, 2, 3, 4, 6, 7, 20]
        assert check(table).ok
        assert phalanx.open(table.uri).version == 5

    def test_a_transaction_that_came_back_is_not_repeated(self, table):
        table.append([row(40)], transaction_id="load")
        restore(table, 4)
        opened_elsewhere(table.uri).append([row(20, "new")])
        repair(table)
        opened_elsewhere(table.uri).append([row(40)], transaction_id="load")
        assert ids(table).count(40) == 1

    def test_to_the_same_leaf(self, table):
        """Only a person can decide which rows count: all of them are told where to find."""
        restore(table, 2)
        opened_elsewhere(table.uri).append([row(20)])
        before = ids(table)
        report = repair(table)
        assert [problem.kind for problem in report.unmended] == ["manifest-restored"]
        assert "from version 3 on" in report.unmended[0].what
        assert ids(table) == before == [1, 2, 3, 4, 20]

    def test_with_a_look_at_rows(self, table):
        restore(table, 2)
        opened_elsewhere(table.uri).delete("id = 3")
        assert not repair(table).ok
        assert ids(table) == [1, 2, 4]

    def test_versions_that_two_histories_have(self, table):
        """Version 3 is what the table says now, not what it said before it was restored."""
        restore(table, 2)
        opened_elsewhere(table.uri).append([row(20, "new")])
        opened_elsewhere(table.uri).append([row(21, "new")])
        opened_elsewhere(table.uri).append([row(22, "new")])
        for version, count in ((2, 4), (3, 5), (4, 6), (5, 7)):
            assert phalanx.open(table.uri, version=version).count() == count
            assert phalanx.open(table.uri, version=version).count("part = 'new'") == version - 2


def test_restored_twice(table):
    expected = rows(table)
    last = manifest(table).version
    restore(table, 2)
    opened_elsewhere(table.uri).append([row(20, "new")])
    manifest(table).checkout_version(last).restore()
    assert rows(table) == expected
    assert "versions 3 (append); others" in undone(check(table))[0].what
    assert not repair(table).ok  # the delete of version 4 might have deleted the row
    assert rows(table) == expected


class TestWhoHasSeenMore:
    """Handles and caches of a newer snapshot than there is now."""

    def test_a_handle_goes_back_too(self, table):
        handle = phalanx.open(table.uri)
        assert handle.count() == 6
        restore(table, 2)
        assert handle.refresh().version == 2
        assert handle.count() == 4
        assert handle.count("part = 'b'") == 1

    def test_a_handle_commits_to_what_is_there(self, table):
        handle = phalanx.open(table.uri)
        assert handle.count() == 6
        restore(table, 2)
        handle.append([row(20)])
        assert handle.version == 3
        assert ids(table) == [1, 2, 3, 4, 20]

    def test_also_when_the_numbers_are_the_same_again(self, table):
        handle = phalanx.open(table.uri)
        assert handle.count() == 6
        restore(table, 2)
        other = opened_elsewhere(table.uri)
        other.append([row(20, "new")])
        other.append([row(21, "b")])
        assert handle.version == other.version
        assert sorted(handle.refresh().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 20, 21]

    def test_the_cache_on_disk(self, table, tmp_path, monkeypatch):
        monkeypatch.setenv("PHALANX_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(cache, "SMALLEST", 1)
        assert ids(table) == [1, 2, 3, 4, 6, 7]
        assert list((tmp_path / "cache").glob("*.arrow"))
        restore(table, 2)
        assert ids(table) == [1, 2, 3, 4]
        opened_elsewhere(table.uri).append([row(20, "new")])
        opened_elsewhere(table.uri).append([row(21, "b")])
        assert ids(table) == [1, 2, 3, 4, 20, 21]
        repair(table)
        assert ids(table) == [1, 2, 3, 4, 20, 21]

    def test_the_cache_after_a_repair(self, table, tmp_path, monkeypatch):
        monkeypatch.setenv("PHALANX_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(cache, "SMALLEST", 1)
        handle = phalanx.open(table.uri)
        expected = rows(table)
        restore(table, 2)
        opened_elsewhere(table.uri).append([row(20, "new")])
        assert len(ids(table)) == 5
        assert repair(table).ok
        assert ids(table) == [1, 2, 3, 4, 6, 7, 20]
        assert handle.refresh().count() == len(expected) + 1
        code = f"import phalanx; print(phalanx.open({table.uri!r}).count())"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.split() == ["7"], done.stderr


def test_vacuum_leaves_what_was_undone(table):
    restore(table, 2)
    phalanx.open(table.uri).vacuum()
    assert repair(table).ok
    assert ids(table) == [1, 2, 3, 4, 6, 7]
    assert leaf_of(table, "b")["rows"] == 2
