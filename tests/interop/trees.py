"""Trees of key=value folders, made with plain Lance as others make them."""

import datetime as dt
import json
import os
from pathlib import Path

import lance
import pyarrow as pa

GOLDEN = json.loads((Path(__file__).parent / "golden" / "hive.json").read_text())


def write_leaf(root, path, rows, schema=None):
    """Write rows as a Lance dataset in a tree."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, schema)
    lance.write_dataset(table, f"{root}/{path}")


def golden(root, tree, with_manifest=True):
    """Make one of the trees of the document."""
    for path, rows in tree["leaves"].items():
        rows = [dict(row) for row in rows]
        for row in rows:
            if "ts" in row:
                row["ts"] = dt.datetime.fromisoformat(row["ts"])
        names = list(rows[0])
        types = {"id": pa.int64(), "i": pa.int32(), "ts": pa.timestamp("us", "UTC")}
        schema = pa.schema([(name, types.get(name, pa.string())) for name in names])
        write_leaf(root, path, rows, schema)
    if with_manifest:
        write_manifest(root, tree["properties"])
    return root


def write_manifest(root, properties):
    """The `__manifest` of a namespace, as a directory namespace has it, with properties."""
    schema = pa.schema(
        [
            pa.field("object_id", pa.string(), nullable=False),
            pa.field("object_type", pa.string(), nullable=False),
            pa.field("location", pa.string()),
            pa.field("metadata", pa.string()),
            pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
        ]
    )
    dataset = lance.write_dataset(schema.empty_table(), f"{root}/__manifest")
    updates = lance.LanceOperation.UpdateMap(properties)
    lance.LanceDataset.commit(
        dataset,
        lance.LanceOperation.UpdateConfig(table_metadata_updates=updates),
        read_version=dataset.version,
    )


def paths_in(root):
    """The leaves of a tree, relative to its root."""
    return sorted(
        os.path.relpath(folder, root) for folder, _, _ in os.walk(root) if folder.endswith(".lance")
    )


def ids(table, where=None):
    """The ids of the rows that match, sorted."""
    return sorted(table.scan(where=where).to_arrow()["id"].to_pylist())
