"""Earlier snapshots that cannot be opened."""

import os

from tests.table.damage import check, kinds, manifest, repair, row, rows


def test_a_snapshot_that_a_tag_holds(table):
    version = table._snapshot.tags()["kept"].manifest_version
    name = f"{2**64 - 1 - int(version):020}.manifest"
    os.unlink(f"{table.uri}/__manifest/_versions/{name}")
    assert kinds(check(table)) == {"tag-broken"}


def test_a_snapshot_whose_files_are_gone(table):
    for id in range(10, 30):
        table.append([row(id)])
    fragments = manifest(table).get_fragments()
    needed = {file.path for fragment in fragments for file in fragment.data_files()}
    gone = sorted(set(os.listdir(f"{table.uri}/__manifest/data")) - needed)
    assert gone
    for name in gone:
        os.unlink(f"{table.uri}/__manifest/data/{name}")
    report = check(table)
    assert kinds(report) == {"snapshot-unreadable"}
    assert {f"__manifest/data/{name}" for name in gone} <= {p.where for p in report.damage}
    assert len(rows(table)) == 26
    assert not repair(table).mended
