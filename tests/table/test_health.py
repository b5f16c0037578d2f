"""Check and repair: every kind of damage is made, found, and mended where it can be."""

import datetime as dt
import decimal
import json
import os
import shutil

import lance
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace
from lance_namespace import CreateNamespaceRequest

import phalanx
from phalanx import CorruptTable, InvalidInput, TableNotFound, UnsupportedTable
from phalanx.model.domains import domain_of
from phalanx.model.spelling import read_value, value_text
from phalanx.storage import raw_manifest
from phalanx.storage.location import Location
from phalanx.storage.manifest import GUARD_KEY, ManifestVersion
from phalanx.table.check import CheckReport, check_table
from phalanx.table.format import size_text
from phalanx.table.repair import repair_table
from phalanx.table.retention import expire_snapshots
from phalanx.table.rules.rule import HarmlessProblem, Problem
from phalanx.table.vacuum import vacuum
from tests.transaction import sabotage

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("day", pa.date32())])
DAY = dt.date(2025, 12, 10)


def row(id, part="a", day=DAY):
    return {"id": id, "part": part, "day": day}


def make(root, transactions="strong"):
    table = phalanx.create(root, SCHEMA, ["part", "day"], transactions=transactions)
    table.append([row(1), row(2, "b"), row(3, None), row(4, day=None)])
    table.append([row(5), row(6, "b"), row(7)])
    table.delete("id = 5")
    return table


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tables to be copied: a copy is made faster than a table."""
    folder = tmp_path_factory.mktemp("made")
    make(folder / "strong").tag("kept", 2)
    make(folder / "plain")
    make(folder / "weak", "weak")
    return folder


@pytest.fixture
def table(root, made):
    shutil.copytree(made / "strong", root)
    return phalanx.open(root)


def check(table):
    return check_table(Location(table.uri))


def repair(table, **options):
    return repair_table(Location(table.uri), **options)


def kinds(report):
    return {problem.kind for problem in report.damage}


def rows(table):
    found = phalanx.open(table.uri).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda found: found["id"])


def manifest(table):
    return lance.dataset(f"{table.uri}/__manifest")


def in_manifest(table):
    """Every row of the manifest by its id, without what each transaction changes."""
    found = manifest(table).to_table().to_pylist()
    return {row["object_id"]: row for row in found if row["object_id"] != "__head"}


def leaf_of(table, part="a", day=DAY):
    leaves = phalanx.open(table.uri).partitions().to_pylist()
    (found,) = [leaf for leaf in leaves if (leaf["part"], leaf["day"]) == (part, day)]
    return found


def id_of(leaf):
    return os.path.basename(leaf["uri"]).partition("_")[2]


def set_cells(table, id, **cells):
    """Change a row behind the table's back."""
    manifest(table).update(cells, where=f"object_id = '{id}'")


def only_plain_columns(table, keep=lambda row: True):
    """Rewrite the manifest as a client does that does not know our columns."""
    plain = (
        manifest(table)
        .to_table()
        .select(["object_id", "object_type", "location", "metadata", "base_objects"])
    )
    chosen = [keep(row) for row in plain.to_pylist()]
    lance.write_dataset(plain.filter(pa.array(chosen)), manifest(table).uri, mode="overwrite")


def forget_history(table):
    """Leave the manifest nothing but its newest version."""
    manifest(table).cleanup_old_versions(dt.timedelta(0), retain_versions=1, delete_unverified=True)


def mend_and_compare(table, expected_rows, lost=()):
    """Repair as the dry run said, then everything is as it was and goes on."""
    said = repair(table, dry_run=True)
    done = repair(table)
    assert said.mended == done.mended
    assert kinds(check(table)) == set(lost)
    assert rows(table) == expected_rows
    opened = phalanx.open(table.uri)
    opened.append([row(100, "new")])
    assert len(rows(table)) == len(expected_rows) + 1
    return done


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

    def test_nothing_to_repair_writes_nothing(self, table):
        before = manifest(table).version
        report = repair(table)
        assert (report.ok, str(report)) == (True, "nothing to repair")
        assert manifest(table).version == before

    def test_a_snapshot_can_be_given(self, table):
        assert check_table(table._snapshot).ok

    def test_there_must_be_a_table(self, root):
        with pytest.raises(TableNotFound):
            check_table(Location(root))
        with pytest.raises(TableNotFound):
            repair_table(Location(root))

    def test_another_clients_table_is_not_ours_to_mend(self, table):
        manifest(table).delete("object_type IN ('__head', 'transaction', 'tag')")
        manifest(table).update_metadata({"phalanx.table_id": None})
        assert "head-missing" not in kinds(check(table))
        with pytest.raises(UnsupportedTable):
            repair(table)


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

    def test_of_snapshots_that_have_expired(self, table):
        table.drop_tag("kept")
        expire_snapshots(table._snapshot, dt.timedelta(0))
        report = check(table)
        assert report.ok
        assert {problem.kind for problem in report.problems} == {"orphan-file"}

    def test_an_index_that_is_gone(self, table):
        indexes = manifest(table).describe_indices()
        (name,) = [index.name for index in indexes if index.field_names == ["object_id"]]
        manifest(table).drop_index(name)
        report = check(table)
        assert report.ok
        assert [problem.kind for problem in report.problems] == ["index-missing"]
        repair(table)
        assert check(table).problems == []


class TestMissingFiles:
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
        leaf = leaf_of(table, "b")
        before = [
            name
            for name in os.listdir(f"{leaf['uri']}/_versions")
            if name.startswith("d") and str(leaf["version"]) not in name
        ]
        os.unlink(f"{leaf['uri']}/_versions/{before[0]}")
        assert kinds(check(table)) == {"version-missing"}
        assert len(rows(table)) == 6

    def test_a_whole_leaf(self, table, tmp_path):
        leaf = leaf_of(table, "b")
        os.rename(leaf["uri"], tmp_path / "away")
        assert kinds(check(table)) == {"leaf-missing"}
        assert not repair(table).ok

    def test_a_snapshot_that_a_tag_holds(self, table):
        version = table._snapshot.tags()["kept"].manifest_version
        name = f"{2**64 - 1 - int(version):020}.manifest"
        os.unlink(f"{table.uri}/__manifest/_versions/{name}")
        assert kinds(check(table)) == {"tag-broken"}

    def test_the_manifest_itself(self, table):
        for name in os.listdir(f"{table.uri}/__manifest/data"):
            os.unlink(f"{table.uri}/__manifest/data/{name}")
        report = check(table)
        assert kinds(report) == {"manifest-unreadable"}
        assert [p.kind for p in repair(table).unmended] == ["manifest-unreadable"]

    def test_the_main_branch_of_a_leaf(self, table):
        leaf = leaf_of(table, "b")
        for name in os.listdir(f"{leaf['uri']}/_versions"):
            if not name.startswith("d"):
                os.unlink(f"{leaf['uri']}/_versions/{name}")
        assert kinds(check(table)) == {"main-missing"}
        mend_and_compare(table, rows(table))
        assert lance.dataset(leaf["uri"]).count_rows() == 2


class TestRows:
    def test_two_heads(self, table):
        """What Lance lets happen when the versions in between have been cleaned up."""
        expected = rows(table)
        stale = manifest(table)
        other = phalanx.open(table.uri)
        other.append([row(8, "c")])
        other.append([row(9, "d")])
        forget_history(table)
        head = stale.to_table(filter="object_id = '__head'")
        merge = stale.merge_insert("object_id").when_matched_update_all()
        merge.when_not_matched_insert_all().conflict_retries(0).execute(head)
        assert "head-twice" in kinds(check(table))
        with pytest.raises(CorruptTable, match="2 head rows"):
            ManifestVersion(Location(table.uri)).head()
        repair(table)
        assert rows(table) == [*expected, row(8, "c"), row(9, "d")]
        assert phalanx.open(table.uri).version == 8
        phalanx.open(table.uri).append([row(10)])

    def test_a_leaf_twice(self, table):
        """The row that came last counts, and what only the other has is told."""
        leaf = leaf_of(table, "b")
        found = manifest(table).to_table(filter=f"object_id = '{id_of(leaf)}'")
        earlier = phalanx.open(table.uri, version=2).partitions().to_pylist()
        (version,) = [x["version"] for x in earlier if x["part"] == "b"]
        index = found.schema.names.index("read_version")
        stale = found.set_column(index, "read_version", pa.array([version], pa.uint64()))
        manifest(table).delete(f"object_id = '{id_of(leaf)}'")
        lance.write_dataset(stale, manifest(table).uri, mode="append")
        lance.write_dataset(found, manifest(table).uri, mode="append")
        assert "row-twice" in kinds(check(table))
        report = repair(table)
        assert [problem.kind for problem in report.unmended] == ["rows-lost"]
        assert str(version) in report.unmended[0].what
        assert check(table).ok
        assert len(rows(table)) == 6

    def test_no_head(self, table):
        expected, before = rows(table), in_manifest(table)
        manifest(table).delete("object_id = '__head'")
        assert kinds(check(table)) == {"head-missing"}
        with pytest.raises(CorruptTable, match="lost its head row"):
            phalanx.open(table.uri)
        mend_and_compare(table, expected)
        assert before.items() <= in_manifest(table).items()
        assert phalanx.open(table.uri).version == 7

    def test_no_head_and_no_memory_of_one(self, table):
        """The copy that other clients read is enough to go on."""
        expected = rows(table)
        table.drop_tag("kept")
        manifest(table).delete("object_id = '__head'")
        forget_history(table)
        mend_and_compare(table, expected)
        assert phalanx.open(table.uri).version == 8

    def test_a_missing_namespace(self, table):
        expected, before = rows(table), in_manifest(table)
        gone = id_of(leaf_of(table)).rpartition("$")[0]
        manifest(table).delete(f"object_id IN ('{gone}', '{gone.rpartition('$')[0]}', 'v1')")
        report = check(table)
        assert kinds(report) == {"namespace-missing"}
        assert len(report.damage) == 3
        mend_and_compare(table, expected)
        assert before.items() <= in_manifest(table).items()

    def test_an_empty_namespace(self, table):
        """It is in nobody's way."""
        found = manifest(table).to_table(filter="object_id = 'v1'").to_pylist()
        found[0]["object_id"], found[0]["metadata"] = "v1$empty", "{}"
        lance.write_dataset(
            pa.Table.from_pylist(found, manifest(table).schema), manifest(table).uri, mode="append"
        )
        report = check(table)
        assert report.ok
        assert [problem.kind for problem in report.problems] == ["namespace-empty"]

    @pytest.mark.parametrize(
        ("cells", "kind"),
        [
            ({"partition_field_part": "'x'"}, "value-differs"),
            ({"partition_field_part": "NULL"}, "value-differs"),
            ({"partition_field_day": "date '2020-01-01'"}, "value-differs"),
            ({"row_count": "77"}, "count-differs"),
            ({"byte_count": "77"}, "count-differs"),
            ({"fragment_count": "77"}, "count-differs"),
            ({"read_version": "1"}, "version-differs"),
            ({"read_version": "NULL"}, "version-differs"),
            ({"spec_id": "9"}, "spec-differs"),
            ({"version_number": "1"}, "timeline-differs"),
            ({"metadata": '\'{"partition.part": "zzz"}\''}, "value-differs"),
            ({"metadata": "'not json'"}, "metadata-unreadable"),
        ],
    )
    def test_a_leaf_row_that_is_wrong(self, table, cells, kind):
        expected, before = rows(table), in_manifest(table)
        id = id_of(leaf_of(table))
        set_cells(table, id, **cells)
        report = check(table)
        assert kind in kinds(report)
        assert any(problem.where.startswith(id) for problem in report.damage)
        mend_and_compare(table, expected)
        mended = in_manifest(table)
        if "version_number" not in cells:
            assert mended[id] == before[id] | {"sequence": mended[id]["sequence"]}

    def test_a_namespace_that_is_wrong(self, table):
        expected, before = rows(table), in_manifest(table)
        id = id_of(leaf_of(table)).rpartition("$")[0]
        set_cells(table, id, partition_field_part="'x'", metadata="'{}'")
        assert kinds(check(table)) == {"value-differs"}
        mend_and_compare(table, expected)
        assert in_manifest(table)[id] == before[id]

    def test_a_timeline_that_is_wrong(self, table):
        expected = rows(table)
        id = id_of(leaf_of(table))
        number = in_manifest(table)[id]["version_number"]
        set_cells(table, f"{id}${number}", read_version="5")
        assert kinds(check(table)) == {"timeline-differs"}
        mend_and_compare(table, expected)
        assert in_manifest(table)[f"{id}${number}"]["read_version"] == leaf_of(table)["version"]

    def test_a_timeline_that_is_missing(self, table):
        expected = rows(table)
        manifest(table).delete("object_type = 'table_version'")
        assert kinds(check(table)) == {"timeline-missing"}
        mend_and_compare(table, expected)

    def test_a_timeline_of_nobody(self, table):
        expected = rows(table)
        found = manifest(table).to_table(filter="object_type = 'table_version'").slice(0, 1)
        ids = pa.array(["v1$nobody$here$dataset$1"])
        lance.write_dataset(
            found.set_column(0, manifest(table).schema.field(0), ids),
            manifest(table).uri,
            mode="append",
        )
        assert kinds(check(table)) == {"timeline-unknown"}
        mend_and_compare(table, expected)

    def test_the_newest_transaction_is_missing(self, table):
        expected = rows(table)
        manifest(table).delete(f"object_type = 'transaction' AND sequence = {table.version}")
        assert kinds(check(table)) == {"transaction-missing"}
        mend_and_compare(table, expected)

    def test_a_location_outside(self, table):
        set_cells(table, id_of(leaf_of(table)), location="'../elsewhere'")
        assert "leaf-outside" in kinds(check(table))
        assert "leaf-outside" in {problem.kind for problem in repair(table).unmended}

    def test_two_leaves_in_one_folder(self, table):
        other = os.path.basename(leaf_of(table, "b")["uri"])
        set_cells(table, id_of(leaf_of(table)), location=f"'{other}'")
        assert "leaf-twice" in kinds(check(table))

    def test_an_id_that_fits_no_spec(self, table):
        set_cells(table, id_of(leaf_of(table)), object_id="'v7$x$y$dataset'")
        assert "leaf-unknown" in kinds(check(table))


class TestCopies:
    @pytest.mark.parametrize("key", ["schema", "partition_spec_v1", "phalanx.table_id"])
    def test_the_tables_metadata(self, table, key):
        expected = rows(table)
        old = manifest(table).metadata[key]
        manifest(table).update_metadata({key: "{}"})
        assert kinds(check(table)) == {"copy-differs"}
        before = phalanx.open(table.uri).version
        assert [problem.where for problem in repair(table).mended] == [key]
        assert manifest(table).metadata[key] == old
        assert phalanx.open(table.uri).version == before
        assert rows(table) == expected

    def test_the_guard(self, table):
        manifest(table).update_metadata({GUARD_KEY: "0"})
        assert kinds(check(table)) == {"guard-missing"}
        repair(table)
        assert manifest(table).metadata[GUARD_KEY] != "0"
        assert check(table).problems == []

    def test_a_copy_that_is_no_flat_map(self, table):
        set_cells(table, "v1", metadata="'{\"a\": 1}'")
        assert kinds(check(table)) == {"metadata-unreadable"}


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


class TestAnotherClient:
    """A client that does not know our columns rewrites the manifest without them."""

    @pytest.fixture(params=["plain", "weak"])
    def table(self, request, root, made):
        shutil.copytree(made / request.param, root)
        return phalanx.open(root)

    def create_namespace(self, table):
        """Let the stock client create a namespace; the guard and our own rows keep it from it."""
        request = CreateNamespaceRequest(id=["theirs"])
        with pytest.raises(Exception, match="writer feature flags"):
            DirectoryNamespace(root=table.uri).create_namespace(request)
        manifest(table).update_metadata({GUARD_KEY: "0"})
        with pytest.raises(Exception, match="Invalid object type"):
            DirectoryNamespace(root=table.uri).create_namespace(request)
        manifest(table).delete("object_type NOT IN ('namespace', 'table')")
        DirectoryNamespace(root=table.uri).create_namespace(request)
        assert "sequence" not in manifest(table).schema.names

    def test_the_stock_client(self, table):
        expected, before = rows(table), in_manifest(table)
        history = phalanx.open(table.uri).snapshots()
        self.create_namespace(table)
        with pytest.raises(CorruptTable):
            phalanx.open(table.uri)
        found = kinds(check(table))
        assert found == {"column-missing", "guard-missing", "head-missing"}
        mend_and_compare(table, expected)
        after = in_manifest(table)
        assert before.items() <= after.items()
        assert "theirs" in after
        assert phalanx.open(table.uri).snapshots().slice(0, len(history)) == history
        assert phalanx.open(table.uri).version == len(history) + 2

    def test_one_that_keeps_our_rows(self, table):
        expected, before = rows(table), in_manifest(table)
        only_plain_columns(table)
        with pytest.raises(CorruptTable):
            phalanx.open(table.uri)
        assert {"column-missing", "head-damaged"} <= kinds(check(table))
        mend_and_compare(table, expected)
        assert before.items() <= in_manifest(table).items()

    def test_one_whose_versions_are_all_that_is_left(self, table):
        """Nothing but the texts in the rows' metadata: no earlier version, no typed column."""
        expected, before = rows(table), in_manifest(table)
        only_plain_columns(table)
        forget_history(table)
        report = mend_and_compare(table, expected)
        assert report.ok
        after = in_manifest(table)
        for id, found in before.items():
            if found["object_type"] == "table":
                same = {"sequence", "column_stats"}
                assert {k: v for k, v in found.items() if k not in same} == {
                    k: v for k, v in after[id].items() if k not in same
                }
            elif found["object_type"] != "table_version":
                assert after[id] == found
        assert phalanx.open(table.uri).version == table.version + 2

    def test_time_travel_passes_over_the_damage(self, root):
        table = phalanx.create(root, SCHEMA, ["part"])
        for id in range(5):
            table.append([row(id)])
        only_plain_columns(table)
        repair(table)
        for version in range(2, 7):
            assert phalanx.open(root, version=version).count() == version - 1
        assert phalanx.open(root).version == 7

    def test_rows_that_it_dropped_come_back(self, table):
        expected = rows(table)
        gone = id_of(leaf_of(table))
        only_plain_columns(table, lambda row: not row["object_id"].startswith(gone))
        assert mend_and_compare(table, expected).ok

    def test_unless_their_files_are_gone_too(self, table, tmp_path):
        leaf = leaf_of(table)
        gone = id_of(leaf)
        only_plain_columns(table, lambda row: not row["object_id"].startswith(gone))
        os.rename(leaf["uri"], tmp_path / "away")
        expected = rows_without(table, leaf)
        report = repair(table)
        assert "leaf-missing" in {problem.kind for problem in report.unmended}
        assert rows(table) == expected

    def test_vacuum_does_not_touch_a_damaged_table(self, table):
        only_plain_columns(table)
        with pytest.raises(CorruptTable):
            vacuum(table._snapshot, dt.timedelta(0), force=True)

    @pytest.mark.parametrize(
        "step",
        ["repair.rows-removed", "repair.columns-added", "repair.rows-written", "repair.published"],
    )
    def test_a_repair_that_breaks_off_is_done_again(self, table, step):
        expected = rows(table)
        head = manifest(table).to_table(filter="object_id = '__head'")
        lance.write_dataset(head, manifest(table).uri, mode="append")
        only_plain_columns(table)
        with sabotage.failing(step, "raise"), pytest.raises(OSError, match=step):
            repair(table)
        mend_and_compare(table, expected)


def rows_without(table, leaf):
    """The rows of all leaves but one, as the last whole version has them."""
    location = Location(table.uri)
    whole = ManifestVersion(location, manifest(table).version - 1)
    found = []
    for line in whole._read(["location", "read_version"], "object_type = 'table'").to_pylist():
        if line["location"] != os.path.basename(leaf["uri"]):
            uri = f"{table.uri}/{line['location']}"
            found += lance.dataset(uri, version=line.get("read_version")).to_table().to_pylist()
    return sorted(found, key=lambda row: row["id"])


class TestValues:
    @pytest.mark.parametrize(
        ("type", "value"),
        [
            (pa.int64(), -5),
            (pa.uint64(), 2**64 - 1),
            (pa.bool_(), True),
            (pa.bool_(), False),
            (pa.float32(), 0.1),
            (pa.float64(), float("nan")),
            (pa.float64(), -1e300),
            (pa.decimal128(10, 2), decimal.Decimal("-1.50")),
            (pa.date32(), DAY),
            (pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 2, 3, 4, 5, 6)),
            (pa.timestamp("ns"), dt.datetime(1900, 1, 1)),
            (pa.time64("us"), dt.time(1, 2, 3)),
            (pa.string(), ""),
            (pa.string(), "a'b$ü"),
            (pa.large_string(), "x"),
            (pa.binary(), b"\x00\xff"),
            (pa.binary(2), b"ab"),
        ],
    )
    def test_a_copy_can_be_read_back(self, type, value):
        key = domain_of(type).key(pa.scalar(value, type))
        assert read_value(value_text(key, type), type) == key

    @pytest.mark.parametrize(
        ("type", "text"),
        [(pa.int64(), "x"), (pa.bool_(), "yes"), (pa.date32(), "soon"), (pa.binary(), "zz")],
    )
    def test_what_is_no_value_is_refused(self, type, text):
        with pytest.raises(InvalidInput):
            read_value(text, type)

    def test_a_copy_from_before_a_widening_is_the_same(self):
        key = domain_of(pa.float64()).key(pa.scalar(0.1, pa.float32()).cast(pa.float64()))
        assert raw_manifest.agree(key, "0.1", pa.float64())
        assert not raw_manifest.agree(key, "0.2", pa.float64())
        assert not raw_manifest.agree(key, "x", pa.float64())
        assert not raw_manifest.agree(None, "0.1", pa.float64())


def test_every_metadata_stays_flat(table):
    """Stock clients fail on anything but strings."""
    only_plain_columns(table)
    repair(table)
    for found in in_manifest(table).values():
        parsed = json.loads(found["metadata"])
        assert all(isinstance(value, str) for value in parsed.values())


class TestIndexesOfTheManifest:
    """They can be made anew, so a table without them is slower and nothing else."""

    @pytest.mark.parametrize("damage", ["gone", "short", "garbage"])
    def test_lost(self, root, damage):
        table = phalanx.create(root, pa.schema([("id", pa.int64()), ("c", pa.string())]), ["c"])
        table.append([{"id": 1, "c": "a"}]).append([{"id": 2, "c": "b"}])
        for file in (root / "__manifest" / "_indices").rglob("*.*"):
            size = file.stat().st_size
            if damage == "gone":
                file.unlink()
            else:
                file.write_bytes(b"x" * (size // 2 if damage == "short" else size))
        assert phalanx.open(root, version=2).count() == 1
        assert phalanx.open(root).append([{"id": 3, "c": "a"}]).count() == 3
        assert phalanx.open(root).delete("c = 'b'") == 1
        report = phalanx.check(root)
        assert report.ok
        assert {(p.kind, p.where) for p in report.problems} >= {
            ("index-missing", "object_id"),
            ("index-missing", "sequence"),
        }
        found = phalanx.repair(root)
        assert [p.kind for p in found.mended] == ["index-missing"] * 2
        assert not found.unmended
        assert "index-missing" not in {p.kind for p in phalanx.check(root).problems}
        assert sorted(phalanx.open(root).scan().to_arrow()["id"].to_pylist()) == [1, 3]
        assert phalanx.open(root, version=3).count() == 2
