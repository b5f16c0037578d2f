"""Check: nothing is wrong with a table that nobody has damaged, and what a report says."""

import pyarrow as pa
import pytest

import phalanx
from phalanx import TableNotFound
from phalanx.storage.location import Location
from phalanx.storage.raw_manifest import RawVersion
from phalanx.table.check import CheckReport, check_table
from phalanx.table.format import size_text
from phalanx.table.repair import repair_table
from phalanx.table.rules.rule import HarmlessProblem, Problem
from tests.table.damage import SCHEMA, check, copy_of, repair, row
from tests.transaction import sabotage


@pytest.fixture
def table(tables_to_damage, root):
    return copy_of(tables_to_damage, "strong", root)


class TestWhole:
    def test_a_new_table(self, root):
        report = check(phalanx.create(root, SCHEMA, ["part"]))
        assert (report.ok, report.problems) == (True, [])

    def test_a_table_with_a_past(self, table):
        table.update({"id": "id + 10"}, "id = 1")
        table.rollback(2)
        table.merge([row(2, "b"), row(9, "c")], on=["id"])
        table.overwrite([row(7)], "partitions")
        report = check(table)
        assert report.problems == []
        assert report.leaves == len(table.partitions())
        assert report.snapshots == table.version
        assert str(report) == f"ok: 5 leaves, 9 snapshots, {report.files} files"

    @pytest.mark.parametrize(
        "schema",
        [
            pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.list_(pa.int32()))]))]),
            pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), pa.float32()))]),
            pa.schema([("id", pa.int64()), ("v", pa.list_(pa.float32(), 4))]),
            pa.schema([("id", pa.int64()), ("t", pa.timestamp("us", "Europe/Berlin"))]),
            pa.schema([("id", pa.int64()), ("d", pa.decimal128(10, 2))]),
        ],
    )
    def test_columns_of_many_types(self, root, schema):
        table = phalanx.create(root, schema, ["bucket(2, id)"])
        table.append([{"id": 1}, {"id": 2}])
        assert check(table).problems == []

    def test_a_table_without_partitions(self, root):
        table = phalanx.create(root, SCHEMA).append([row(1)])
        assert check(table).problems == []

    def test_a_weak_table(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], transactions="weak")
        table.append([row(1), row(2, "b")])
        table.delete("id = 1")
        assert check(table).problems == []
        assert repair(table).mended == []

    def test_many_commits(self, root):
        table = phalanx.create(root, SCHEMA, ["part"])
        for id in range(20):
            table.append([row(id)])
        assert check(table).problems == []

    def test_a_snapshot_can_be_given(self, table):
        assert check_table(table._snapshot).ok


def test_there_must_be_a_table(root):
    with pytest.raises(TableNotFound):
        check_table(Location(root))
    with pytest.raises(TableNotFound):
        repair_table(Location(root))


class TestReport:
    def test_many_are_told_in_a_line(self, table):
        for id in range(70, 73):
            with (
                sabotage.failing("commit.before-swap", "raise"),
                pytest.raises(OSError, match="failpoint"),
            ):
                table.append([row(id)])
        report = check(table)
        files = [problem for problem in report.problems if problem.kind == "orphan-file"]
        assert len(files) > 3
        first, *lines = str(report).splitlines()
        assert first.startswith("ok: ")
        size = size_text(sum(problem.size for problem in files))
        assert lines == [f"orphan-file: {len(files)} of them ({size}), such as {files[0].where}"]

    def test_damage_is_told_one_by_one(self):
        problems = [Problem("file-missing", "a file is gone", f"data/{n}") for n in range(3)]
        orphan = HarmlessProblem("orphan-file", "no version needs this file", "data/x", 5)
        assert str(CheckReport([*problems, orphan], 1, 2, 3)).splitlines() == [
            "3 problems: 1 leaf, 2 snapshots, 3 files",
            *map(str, problems),
            str(orphan),
        ]


def test_a_version_that_a_vacuum_removes_at_this_moment(tmp_path, monkeypatch):
    """Versions of the manifest with the same head are compared: the earlier one may be gone."""
    table = phalanx.create(tmp_path / "t", [{"id": n, "part": f"p{n}"} for n in range(3)], ["part"])
    table._snapshot.manifest.compact(reindex=False)
    table.append([{"id": 9, "part": "p0"}])
    looks = []

    def gone(self):
        looks.append(self.version)
        raise TableNotFound("removed")

    monkeypatch.setattr(RawVersion, "leaf_ids", gone)
    monkeypatch.setattr(RawVersion, "exists", lambda self: False)
    assert check_table(table._snapshot).ok
    assert looks
