"""Files that are missing, damaged, or that nothing refers to."""

import datetime as dt
import os

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.table.retention import expire_snapshots
from tests.table.damage import SCHEMA, check, kinds, leaf_of, mend_and_compare, repair, row, rows
from tests.transaction import sabotage


class TestMissing:
    def test_rows(self, table):
        leaf = leaf_of(table, "b")
        path = os.listdir(f"{leaf['uri']}/data")[0]
        os.unlink(f"{leaf['uri']}/data/{path}")
        report = check(table)
        assert kinds(report) == {"file-missing"}
        assert {problem.where.rpartition("/")[2] for problem in report.damage} == {path}
        assert report.damage[0].size > 0
        mended = repair(table)
        assert mended.mended == []
        assert {problem.kind for problem in mended.unmended} == {"file-missing"}
        assert not mended.ok
        assert "cannot mend file-missing" in str(mended)

    def test_deletions(self, table):
        leaf = leaf_of(table, "a")
        (path,) = os.listdir(f"{leaf['uri']}/_deletions")
        os.unlink(f"{leaf['uri']}/_deletions/{path}")
        report = check(table)
        assert kinds(report) == {"file-missing"}
        assert report.damage[0].where.endswith(path)

    def test_a_file_that_was_cut(self, table):
        leaf = leaf_of(table, "b")
        path = f"{leaf['uri']}/data/{os.listdir(leaf['uri'] + '/data')[0]}"
        os.truncate(path, 10)
        (problem,) = {(p.kind, p.where) for p in check(table).damage}
        assert problem[0] == "file-damaged"

    def test_the_version_of_a_leaf(self, table):
        leaf = leaf_of(table, "b")
        os.unlink(f"{leaf['uri']}/_versions/d{leaf['version']}.manifest")
        report = check(table)
        assert kinds(report) == {"version-missing"}
        assert str(leaf["version"]) in report.damage[0].what
        assert [p.kind for p in repair(table).unmended] == ["version-missing"]

    def test_only_of_an_earlier_snapshot(self, table):
        before = leaf_of(table, "b")
        table.append([row(8, "b")])
        os.unlink(f"{before['uri']}/_versions/d{before['version']}.manifest")
        assert kinds(check(table)) == {"version-missing"}
        assert len(rows(table)) == 7

    def test_a_whole_leaf(self, table, tmp_path):
        leaf = leaf_of(table, "b")
        os.rename(leaf["uri"], tmp_path / "away")
        assert kinds(check(table)) == {"leaf-missing"}
        assert not repair(table).ok

    def test_the_main_branch_of_a_leaf(self, table):
        leaf = leaf_of(table, "b")
        for name in os.listdir(f"{leaf['uri']}/_versions"):
            if not name.startswith("d"):
                os.unlink(f"{leaf['uri']}/_versions/{name}")
        assert kinds(check(table)) == {"main-missing", "version-missing"}
        # Main had the first rows: the snapshot that has only those is lost.
        mend_and_compare(table, rows(table), lost={"version-missing"})
        assert lance.dataset(leaf["uri"]).count_rows() == 2

    def test_an_earlier_version_on_main_that_was_cut(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], transactions="weak")
        table.append([row(1)]).append([row(2)])
        (leaf,) = table.partitions().to_pylist()
        _, name, *_ = sorted(os.listdir(f"{leaf['uri']}/_versions"))
        os.truncate(f"{leaf['uri']}/_versions/{name}", 10)
        report = check(table)
        assert [problem.kind for problem in report.problems] == ["main-missing"]
        assert "cannot be read" in report.damage[0].what
        assert [problem.kind for problem in repair(table).unmended] == ["main-missing"]


class TestLeftovers:
    """They are told with their size, and do no harm."""

    def test_of_a_failed_write(self, table):
        with (
            sabotage.failing("commit.before-swap", "raise"),
            pytest.raises(OSError, match="failpoint"),
        ):
            table.append([row(7), row(8, "new")])
        report = check(table)
        assert report.ok
        assert {problem.kind for problem in report.problems} == {"orphan-file", "orphan-folder"}
        for problem in report.problems:
            path = f"{table.uri}/{problem.where}"
            size = sum(
                os.path.getsize(os.path.join(folder, name))
                for folder, _, names in os.walk(path)
                for name in names
            )
            assert problem.size == (size or os.path.getsize(path)) > 0

    def test_of_snapshots_that_have_expired(self, table):
        table.drop_tag("kept")
        expire_snapshots(table._snapshot, dt.timedelta(0))
        report = check(table)
        assert report.ok
        assert {problem.kind for problem in report.problems} == {"orphan-file"}


class TestSchemas:
    @pytest.fixture
    def weak(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], transactions="weak")
        return table.append([row(1)])

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda leaf: leaf.alter_columns({"path": "id", "name": "key"}), "is key"),
            (lambda leaf: leaf.drop_columns(["day"]), "day with the id 2 is missing"),
            (lambda leaf: leaf.add_columns({"more": "1"}), "more has the id 3"),
            (lambda leaf: leaf.alter_columns({"path": "id", "data_type": pa.int32()}), "the id"),
        ],
    )
    def test_a_leaf_that_drifted(self, weak, change, said):
        """Plain Lance has changed the schema of a leaf on its own."""
        (leaf,) = weak.partitions().to_pylist()
        change(lance.dataset(leaf["uri"]))
        report = check(weak)
        assert kinds(report) == {"schema-drift"}
        assert any(said in problem.what for problem in report.damage), str(report)
        assert not repair(weak).ok
