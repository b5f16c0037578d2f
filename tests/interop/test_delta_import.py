import json
import os
import struct
import sys
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import phalanx
from phalanx.interop import delta
from tests.interop.samples import same_rows

ROWS = pa.table({"id": range(6), "country": ["US", "CN", "US", "US", "FR", None]})

GOLDEN = json.loads((Path(__file__).parent / "golden" / "delta.json").read_text())

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "delta"
    write_deltalake(path, ROWS, partition_by=["country"])
    return path


def golden(path, table):
    """Make a Delta table of the golden files: its log as it is there, and its rows as Parquet."""
    types = {"id": pa.int64(), "country": pa.string()}
    for name, rows in table["files"].items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        schema = pa.schema([(column, types[column]) for column in rows[0]])
        pq.write_table(pa.Table.from_pylist(rows, schema), path / name)
    sizes = {name: (path / name).stat().st_size for name in table["files"]}
    log = path / "_delta_log"
    log.mkdir()
    for version, actions in enumerate(table["log"]):
        for action in actions:
            if "add" in action:
                action["add"]["size"] = sizes[unquote(action["add"]["path"])]
        lines = "\n".join(map(json.dumps, actions))
        (log / f"{version:020}.json").write_text(lines)
    return path


@pytest.mark.parametrize("table", GOLDEN, ids=lambda table: table["name"])
def test_a_golden_table(table, tmp_path, root):
    imported = delta.import_(golden(tmp_path / "delta", table), root)
    rows = imported.scan().to_arrow().sort_by("id").to_pylist()
    assert rows == table["rows"]
    assert imported.spec.spell(imported._snapshot.head.schema) == ["country"]


class TestImport:
    def test_the_partitioning_is_kept(self, source, root):
        table = delta.import_(source, root)
        assert same_rows(table.scan().to_arrow().select(ROWS.column_names), ROWS)
        assert table.spec.spell(table._snapshot.head.schema) == ["country"]
        assert table.version == 1
        assert table.check().ok

    def test_or_replaced(self, source, root):
        table = delta.import_(source, root, ["bucket(2, id)"])
        assert len(table.partitions()) == 2
        assert same_rows(table.scan().to_arrow().select(ROWS.column_names), ROWS)

    def test_a_schema(self, source, root):
        schema = pa.schema([("country", pa.large_string()), ("id", pa.int8())])
        table = delta.import_(source, root, schema=schema)
        assert table.schema == schema
        assert table.count() == 6

    def test_an_earlier_version(self, source, root):
        write_deltalake(source, ROWS, mode="append", partition_by=["country"])
        assert delta.import_(source, root, version=0).count() == 6

    def test_rows_that_were_removed_stay_removed(self, source, root):
        DeltaTable(source).delete("country = 'US'")
        table = delta.import_(source, root)
        assert table.count() == 3

    def test_nested_values(self, tmp_path, root):
        rows = pa.table(
            {
                "names": [["a", None], [], None],
                "pair": [{"x": "a", "y": [1]}, {"x": None, "y": None}, None],
                "bytes": [b"", b"\0\xff", None],
            }
        )
        write_deltalake(tmp_path / "delta", rows)
        table = delta.import_(tmp_path / "delta", root)
        assert same_rows(table.scan().to_arrow(), rows)
        assert table.schema.field("names").type == pa.list_(pa.string())

    def test_in_and_out(self, source, root, tmp_path):
        table = delta.import_(source, root)
        delta.export(table, tmp_path / "out")
        again = pa.table(DeltaTable(tmp_path / "out").scan())
        assert same_rows(again.select(ROWS.column_names), ROWS)

    def test_a_parquet_tree_with_a_log_is_a_delta_table(self, source, root):
        with pytest.raises(phalanx.InvalidInput, match="is a Delta table"):
            phalanx.interop.parquet.import_(source, root)

    def test_no_delta_table(self, tmp_path, root):
        with pytest.raises(phalanx.InvalidInput, match="cannot read a Delta table at"):
            delta.import_(tmp_path, root)
        with pytest.raises(phalanx.InvalidInput, match="cannot read a Delta table at"):
            delta.import_(tmp_path / "nowhere", root)

    def test_a_file_that_is_gone(self, source, root):
        os.remove(next(source.rglob("*.parquet")))
        with pytest.raises(phalanx.InvalidInput, match="cannot read the Delta table"):
            delta.import_(source, root)
        with pytest.raises(phalanx.TableNotFound):
            phalanx.open(root)

    def test_a_table_that_exists_stays(self, source, root):
        phalanx.create(root, pa.schema([("x", pa.int8())]))
        with pytest.raises(phalanx.TableExists):
            delta.import_(source, root)

    def test_without_the_package(self, source, root, monkeypatch):
        monkeypatch.setitem(sys.modules, "deltalake", None)
        with pytest.raises(phalanx.InvalidInput, match=r"pip install 'phalanx\[delta\]'"):
            delta.import_(source, root)


def test_deletion_vectors_and_column_mapping(tmp_path, root):
    """A table as Spark writes it: names in files differ, and rows are marked as deleted."""
    path = tmp_path / "delta"
    (path / "_delta_log").mkdir(parents=True)
    rows = pa.table({"col-1": range(4), "col-2": ["a", "b", "c", "d"]})
    pq.write_table(rows, path / "part-0.parquet")
    vector = _deletion_vector([1, 2])
    fields = [("my id", "long", 1), ("name", "string", 2)]
    actions = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors", "columnMapping"],
                "writerFeatures": ["deletionVectors", "columnMapping"],
            }
        },
        {
            "metaData": {
                "id": "a",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(
                    {"type": "struct", "fields": [_mapped(*field) for field in fields]}
                ),
                "partitionColumns": [],
                "configuration": {
                    "delta.enableDeletionVectors": "true",
                    "delta.columnMapping.mode": "name",
                    "delta.columnMapping.maxColumnId": "2",
                },
                "createdTime": 0,
            }
        },
        {
            "add": {
                "path": "part-0.parquet",
                "partitionValues": {},
                "size": os.path.getsize(path / "part-0.parquet"),
                "modificationTime": 0,
                "dataChange": True,
                "stats": '{"numRecords": 4}',
                "deletionVector": vector,
            }
        },
    ]
    log = path / "_delta_log" / f"{0:020}.json"
    log.write_text("\n".join(map(json.dumps, actions)))
    table = delta.import_(path, root)
    assert table.scan().to_arrow().to_pylist() == [
        {"my id": 0, "name": "a"},
        {"my id": 3, "name": "d"},
    ]
    assert table.schema.field("my id").metadata is None


def _mapped(name, type, id):
    metadata = {"delta.columnMapping.id": id, "delta.columnMapping.physicalName": f"col-{id}"}
    return {"name": name, "type": type, "nullable": True, "metadata": metadata}


def _deletion_vector(rows):
    """Rows of a file that are deleted, as the log has them inline."""
    bitmap = struct.pack("<II", 12346, 1) + struct.pack("<HHI", 0, len(rows) - 1, 16)
    bitmap += b"".join(struct.pack("<H", row) for row in rows)
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    padded = data + b"\0" * (-len(data) % 4)
    text = ""
    for at in range(0, len(padded), 4):
        number, digits = int.from_bytes(padded[at : at + 4], "big"), ""
        for _ in range(5):
            number, digit = divmod(number, 85)
            digits = _Z85[digit] + digits
        text += digits
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }
