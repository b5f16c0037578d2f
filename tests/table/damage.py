"""A table to damage, ways to damage it, and what check and repair make of that."""

import datetime as dt
import os
import shutil

import lance
import pyarrow as pa

import phalanx
from phalanx.lru import LruCache
from phalanx.storage.location import Location
from phalanx.table.check import check_table
from phalanx.table.repair import repair_table
from phalanx.transaction import snapshot

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("day", pa.date32())])
DAY = dt.date(2025, 12, 10)


def row(id, part="a", day=DAY):
    return {"id": id, "part": part, "day": day}


def create(root, transactions="strong"):
    """A table with four leaves, and rows that were added and deleted."""
    table = phalanx.create(root, SCHEMA, ["part", "day"], transactions=transactions)
    table.append([row(1), row(2, "b"), row(3, None), row(4, day=None)])
    table.append([row(5), row(6, "b"), row(7)])
    table.delete("id = 5")
    return table


def copy_of(tables, name, root):
    """A table of one's own: a copy is made faster than a table."""
    return phalanx.open(shutil.copytree(tables / name, root))


def opened_elsewhere(root):
    """The table as a process opens it that has not seen it before."""
    snapshot._recent = LruCache(16)
    return phalanx.open(root)


def check(table):
    return check_table(Location(table.uri))


def repair(table, **options):
    return repair_table(Location(table.uri), **options)


def kinds(report):
    return {problem.kind for problem in report.damage}


def rows(table):
    return sorted(
        opened_elsewhere(table.uri).scan().to_arrow().to_pylist(), key=lambda row: row["id"]
    )


def manifest(table):
    return lance.dataset(f"{table.uri}/__manifest")


def in_manifest(table):
    """Every row of the manifest by its id, without what each transaction changes."""
    cells = manifest(table).to_table().to_pylist()
    return {row["object_id"]: row for row in cells if row["object_id"] != "__head"}


def leaf_of(table, part="a", day=DAY):
    leaves = phalanx.open(table.uri).partitions().to_pylist()
    (chosen,) = [leaf for leaf in leaves if (leaf["part"], leaf["day"]) == (part, day)]
    return chosen


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
