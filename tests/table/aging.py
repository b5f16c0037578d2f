"""A table with some history whose files can be made older than they are."""

import contextlib
import datetime as dt
import os
import time

import pyarrow as pa

import phalanx
from phalanx import TableNotFound
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.table import vacuum as vacuuming

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
DAY = dt.timedelta(days=1)
NOTHING = dt.timedelta(0)


def changed_table(root):
    """Version 2 has the partitions a and b, version 3 a changed and b gone, 4 a new row."""
    table = phalanx.create(root, SCHEMA, ["part"])
    table.append([row(1), row(2), row(3, "b")])
    table.overwrite([row(4)])
    table.append([row(5)])
    return table


def row(id, part="a"):
    return {"id": id, "part": part}


def age(root, days, newer_than=None):
    """Make every file older than it is, or those that are younger than some others."""
    then = time.time() - days * 86_400
    for path in files(root, absolute=True):
        if newer_than is None or path not in newer_than:
            os.utime(path, (then, then))


def files(root, absolute=False):
    found = {os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names}
    return found if absolute else {os.path.relpath(path, root) for path in found}


def vacuum(table, *arguments, **options):
    report = vacuuming.vacuum(table._snapshot, *arguments, **options)
    table.refresh()
    return report


def ids(table):
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def versions(table):
    """The versions that can be opened."""
    found = []
    for version in range(1, table.version + 1):
        with contextlib.suppress(TableNotFound):
            phalanx.open(table.uri, version=version)
            found.append(version)
    return found


def leaf_of(table, part):
    (found,) = [leaf for leaf in table.partitions().to_pylist() if leaf["part"] == part]
    return found


def rows_of(table, type):
    found = ManifestVersion(Location(table.uri))._read(["object_id"], f"object_type = '{type}'")
    return sorted(found["object_id"].to_pylist())
