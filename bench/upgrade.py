"""Upgrade a table of the earlier specification with 10,000 leaves, and plan a query before."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import lance
import pyarrow as pa

import phalanx
from bench.measure import Figure, seconds

LEAVES = 10_000
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64())])


def template(folder: Path, versions: int) -> None:
    for number in range(versions):
        lance.write_dataset(pa.table({"id": [number], "part": [0]}, SCHEMA), folder, mode="append")


def make(root: Path, versions: int) -> None:
    """A table whose leaves are links to one dataset: only its rows are not those of the values."""
    template(root / "first", versions)
    names = [p.relative_to(root / "first") for p in (root / "first").rglob("*") if p.is_file()]
    folders = sorted({name.parent for name in names})
    lines: list[dict[str, object]] = [{"object_id": "v1", "object_type": "namespace"}]
    for number in range(LEAVES):
        id = f"v1$n{number:015d}"
        location = f"{number:08x}_{id}$dataset"
        for folder in folders:
            os.makedirs(root / location / folder)
        for name in names:
            os.link(root / "first" / name, root / location / name)
        lines.append({"object_id": id, "object_type": "namespace", "partition_field_part": number})
        lines.append(
            {
                "object_id": f"{id}$dataset",
                "object_type": "table",
                "location": location,
                "read_version": versions,
                "partition_field_part": number,
            }
        )
    shutil.rmtree(root / "first")
    columns = [("object_id", pa.string()), ("object_type", pa.string()), ("location", pa.string())]
    columns += [("metadata", pa.string()), ("read_version", pa.uint64())]
    columns += [("partition_field_part", pa.int64())]
    rows = pa.Table.from_pylist([line | {"metadata": "{}"} for line in lines], pa.schema(columns))
    dataset = lance.write_dataset(rows, root / "__manifest")
    spec = [
        {
            "field_id": "part",
            "source_ids": [1],
            "expression": "col0",
            "result_type": {"type": "int64"},
        }
    ]
    fields = [
        {
            "name": name,
            "nullable": True,
            "type": {"type": "int64"},
            "metadata": {"lance:field_id": str(id)},
        }
        for id, name in enumerate(SCHEMA.names)
    ]
    texts = {"partition_spec_v1": json.dumps(spec), "schema": json.dumps({"fields": fields})}
    lance.LanceDataset.commit(
        dataset,
        lance.LanceOperation.UpdateConfig(
            table_metadata_updates=lance.LanceOperation.UpdateMap(texts)
        ),
        read_version=dataset.version,
    )


def main() -> int:
    folder = Path(tempfile.mkdtemp())
    try:
        make(folder / "once", 1)
        make(folder / "often", 3)
        plan = seconds(lambda: phalanx.open(folder / "once").scan(where="part = 7").plan())
        once = seconds(lambda: phalanx.interop.upgrade(folder / "once"))
        often = seconds(lambda: phalanx.interop.upgrade(folder / "often"))
        upgraded = phalanx.open(folder / "once")
        assert (upgraded.version, upgraded.count()) == (1, LEAVES)
        assert phalanx.open(folder / "often").count() == 3 * LEAVES
    finally:
        shutil.rmtree(folder)
    figures = [
        Figure("open and plan on 10,000 leaves of the earlier form", plan, "s", 1.0),
        Figure("upgrade of 10,000 leaves written once", once, "s", 5.0),
        Figure("upgrade of 10,000 leaves written three times", often, "s"),
    ]
    print(*figures, sep="\n")
    return int(not all(figure.ok for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
