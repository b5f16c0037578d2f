"""A client that does not know our columns rewrites the manifest without them."""

import datetime as dt
import os

import lance
import pytest
from lance.namespace import DirectoryNamespace
from lance_namespace import CreateNamespaceRequest

import phalanx
from phalanx import CorruptTable
from phalanx.storage.location import Location
from phalanx.storage.manifest import GUARD_KEY, ManifestVersion
from phalanx.table.vacuum import vacuum
from tests.table.damage import (
    SCHEMA,
    check,
    copy_of,
    forget_history,
    id_of,
    in_manifest,
    kinds,
    leaf_of,
    manifest,
    mend_and_compare,
    only_plain_columns,
    repair,
    row,
    rows,
)
from tests.transaction import sabotage


@pytest.fixture(params=["plain", "weak"])
def table(request, tables_to_damage, root):
    return copy_of(tables_to_damage, request.param, root)


def create_namespace(table):
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


def test_the_stock_client(table):
    expected, before = rows(table), in_manifest(table)
    history = phalanx.open(table.uri).snapshots()
    create_namespace(table)
    with pytest.raises(CorruptTable):
        phalanx.open(table.uri)
    assert kinds(check(table)) == {"column-missing", "guard-missing", "head-missing"}
    mend_and_compare(table, expected)
    after = in_manifest(table)
    assert before.items() <= after.items()
    assert "theirs" in after
    assert phalanx.open(table.uri).snapshots().slice(0, len(history)) == history
    assert phalanx.open(table.uri).version == len(history) + 2


def test_one_that_keeps_our_rows(table):
    expected, before = rows(table), in_manifest(table)
    only_plain_columns(table)
    with pytest.raises(CorruptTable):
        phalanx.open(table.uri)
    assert {"column-missing", "head-damaged"} <= kinds(check(table))
    mend_and_compare(table, expected)
    assert before.items() <= in_manifest(table).items()


def test_one_whose_versions_are_all_that_is_left(table):
    """Nothing but the texts in the rows' metadata: no earlier version, no typed column."""
    expected, before = rows(table), in_manifest(table)
    only_plain_columns(table)
    forget_history(table)
    report = mend_and_compare(table, expected)
    assert report.ok
    after = in_manifest(table)
    for id, cells in before.items():
        if cells["object_type"] == "table":
            same = {"sequence", "column_stats"}
            assert {k: v for k, v in cells.items() if k not in same} == {
                k: v for k, v in after[id].items() if k not in same
            }
        elif cells["object_type"] != "table_version":
            assert after[id] == cells
    assert phalanx.open(table.uri).version == table.version + 2


def test_time_travel_passes_over_the_damage(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    for id in range(5):
        table.append([row(id)])
    only_plain_columns(table)
    repair(table)
    for version in range(2, 7):
        assert phalanx.open(root, version=version).count() == version - 1
    assert phalanx.open(root).version == 7


def test_rows_that_it_dropped_come_back(table):
    expected = rows(table)
    gone = id_of(leaf_of(table))
    only_plain_columns(table, lambda row: not row["object_id"].startswith(gone))
    assert mend_and_compare(table, expected).ok


def test_unless_their_files_are_gone_too(table, tmp_path):
    leaf = leaf_of(table)
    gone = id_of(leaf)
    only_plain_columns(table, lambda row: not row["object_id"].startswith(gone))
    os.rename(leaf["uri"], tmp_path / "away")
    expected = rows_without(table, leaf)
    report = repair(table)
    assert "leaf-missing" in {problem.kind for problem in report.unmended}
    assert rows(table) == expected


def test_vacuum_does_not_touch_a_damaged_table(table):
    only_plain_columns(table)
    with pytest.raises(CorruptTable):
        vacuum(table._snapshot, dt.timedelta(0), force=True)


@pytest.mark.parametrize(
    "step",
    ["repair.rows-removed", "repair.columns-added", "repair.rows-written", "repair.published"],
)
def test_a_repair_that_breaks_off_is_done_again(table, step):
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
    left = []
    for line in whole._read(["location", "read_version"], "object_type = 'table'").to_pylist():
        if line["location"] != os.path.basename(leaf["uri"]):
            uri = f"{table.uri}/{line['location']}"
            left += lance.dataset(uri, version=line.get("read_version")).to_table().to_pylist()
    return sorted(left, key=lambda row: row["id"])
