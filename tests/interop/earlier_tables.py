"""Tables of the earlier specification, made by hand with plain Lance as its appendices show."""

import json
import random
import string
from pathlib import Path

import lance
import pyarrow as pa

from tests.conformance.appendices import APPENDIX_A_SCHEMA, DAY_1, DAY_2, SCHEMA, row

# Appendix A.
BY_DATE = [
    {
        "field_id": "event_date",
        "source_ids": [1],
        "expression": "col0",
        "result_type": {"type": "date32"},
    }
]
BY_YEAR = [
    {
        "field_id": "event_year",
        "source_ids": [1],
        "expression": "date_part('year', col0)",
        "result_type": {"type": "int32"},
    },
    {
        "field_id": "country",
        "source_ids": [2],
        "expression": "col0",
        "result_type": {"type": "utf8"},
    },
]
_ARROW = {"date32": pa.date32(), "int32": pa.int32(), "int64": pa.int64(), "utf8": pa.string()}
# Appendix C.
LEAF_1 = "v1$k7m2n9p4q8r5s3t6$dataset"
LEAF_2 = "v2$e9f0g1h2i3j4k5l6$m7n8o9p0q1r2s3t4$dataset"


def rows(*cells, schema=SCHEMA):
    return pa.Table.from_pylist(
        [dict(zip(schema.names, values, strict=True)) for values in cells], schema=schema
    )


def set_metadata(uri, texts):
    """Change the metadata of a table's manifest."""
    dataset = lance.dataset(uri)
    updates = lance.LanceOperation.UpdateMap(texts)
    lance.LanceDataset.commit(
        dataset,
        lance.LanceOperation.UpdateConfig(table_metadata_updates=updates),
        read_version=dataset.version,
    )


class EarlierTable:
    """A table of the earlier specification that is being made."""

    def __init__(self, root, schema, specs, columns=("read_version", "read_branch", "read_tag")):
        self.root, self.schema, self.specs, self.columns = Path(root), schema, specs, columns
        self.lines = {}
        self._random = random.Random(7)

    def name(self):
        return "".join(self._random.choices(string.ascii_lowercase + string.digits, k=16))

    def leaf(self, spec, values, *batches, id=None, folder=None, **read):
        """Add a leaf with a version on main for each batch. Returns its folder."""
        names = [self.name() for _ in values] if id is None else id.split("$")[1:-1]
        id = "$".join([f"v{spec}", *names, "dataset"])
        folder = folder or f"{self._random.getrandbits(32):08x}_{id}"
        for number, batch in enumerate(batches):
            lance.write_dataset(batch, self.root / folder, mode="append" if number else "create")
        fields = [field["field_id"] for field in self.specs[spec]]
        inherited = {}
        self._line(f"v{spec}", "namespace", {})
        for depth, (field, value) in enumerate(zip(fields, values, strict=True), 1):
            inherited[f"partition_field_{field}"] = value
            self._line("$".join([f"v{spec}", *names[:depth]]), "namespace", dict(inherited))
        self._line(id, "table", inherited | {"location": folder} | read)
        return folder

    def _line(self, id, kind, cells):
        known = {"object_id": id, "object_type": kind, "metadata": "{}"}
        self.lines.setdefault(id, known | cells)

    def manifest_schema(self):
        fields = {f["field_id"]: f for spec in self.specs.values() for f in spec}
        types = {"read_version": pa.uint64(), "read_branch": pa.string(), "read_tag": pa.string()}
        return pa.schema(
            [
                pa.field("object_id", pa.string(), nullable=False),
                pa.field("object_type", pa.string(), nullable=False),
                pa.field("location", pa.string()),
                pa.field("metadata", pa.string()),
                *(pa.field(name, types[name]) for name in self.columns),
                *(
                    pa.field(f"partition_field_{id}", _ARROW[f["result_type"]["type"]])
                    for id, f in fields.items()
                ),
            ]
        )

    def commit(self):
        """Write the manifest."""
        manifest = self.root / "__manifest"
        table = pa.Table.from_pylist(list(self.lines.values()), schema=self.manifest_schema())
        lance.write_dataset(table, manifest)
        texts = {f"partition_spec_v{id}": json.dumps(spec) for id, spec in self.specs.items()}
        set_metadata(manifest, texts | {"schema": json.dumps(self.schema)})
        return str(self.root)


def appendix_c(root):
    """The table of Appendix C. Each leaf has more versions on main than the one that is read."""
    table = EarlierTable(root, APPENDIX_A_SCHEMA, {1: BY_DATE, 2: BY_YEAR})
    table.leaf(
        1,
        (DAY_1,),
        *(rows((number, DAY_1, "US" if number % 2 else "CA")) for number in range(1, 8)),
        id=LEAF_1,
        folder=f"b4a3c2d1_{LEAF_1}",
        read_version=5,
    )
    table.leaf(1, (DAY_2,), rows((20, DAY_2, "US")), read_version=1)
    table.leaf(
        2,
        (2025, "US"),
        *(rows((30 + number, DAY_1, "US")) for number in range(3)),
        rows((39, DAY_1, "US")),
        id=LEAF_2,
        folder=f"aabbccdd_{LEAF_2}",
        read_version=3,
    )
    table.leaf(2, (2024, "US"), rows((40, DAY_1.replace(year=2024), "US")), read_version=1)
    table.leaf(2, (2025, "CA"), rows((50, DAY_1, "CA")), read_version=1)
    return table


__all__ = ["APPENDIX_A_SCHEMA", "DAY_1", "DAY_2", "SCHEMA", "EarlierTable", "appendix_c", "row"]
