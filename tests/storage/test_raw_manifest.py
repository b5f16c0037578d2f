"""Copies of partition values, and a manifest as it is."""

import datetime as dt
import decimal

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx import CorruptTable, InvalidInput, TableNotFound
from phalanx.model.domains import domain_of
from phalanx.model.spelling import read_value, value_text
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.raw_manifest import RawManifest, agree, read_copy

DAY = dt.date(2025, 12, 10)


class TestCopies:
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
        assert agree(key, "0.1", pa.float64())
        assert not agree(key, "0.2", pa.float64())
        assert not agree(key, "x", pa.float64())
        assert not agree(None, "0.1", pa.float64())

    def test_a_text_that_is_no_value(self):
        assert read_copy("5", pa.int64()) == [5]
        assert read_copy(None, pa.int64()) == [None]
        assert read_copy("x", pa.int64()) == []


class TestManifest:
    @pytest.fixture
    def table(self, root):
        schema = pa.schema([("id", pa.int64()), ("part", pa.string())])
        table = phalanx.create(root, schema, ["part"])
        return table.append([{"id": 1, "part": "a"}]).append([{"id": 2, "part": "b"}])

    @pytest.fixture
    def manifest(self, table):
        return lance.dataset(f"{table.uri}/__manifest")

    def test_whole(self, table, manifest):
        raw = RawManifest.open(Location(table.uri))
        assert raw.head == ManifestVersion(Location(table.uri)).head()
        assert raw.head_row in raw.rows
        assert len(raw.rows) == manifest.count_rows()
        assert all("column_stats" not in row.columns for row in raw.rows)
        assert set(raw.types) == {column.name for column in raw.expected_columns()}
        assert raw.missing_indexes() == []
        leaves = [row for row in raw.rows if row.type == "table"]
        assert {row.values["part"] for row in leaves} == {"a", "b"}
        assert all(row.version == row.version_copy for row in leaves)

    def test_statistics_on_request(self, table):
        raw = RawManifest.open(Location(table.uri), statistics=True)
        assert all("column_stats" in row.columns for row in raw.rows if row.type == "table")

    def test_of_two_heads_the_newer_counts(self, table, manifest):
        old = lance.dataset(manifest.uri, version=manifest.version - 1)
        lance.write_dataset(
            old.to_table(filter="object_id = '__head'"), manifest.uri, mode="append"
        )
        raw = RawManifest.open(Location(table.uri))
        assert [row.id for row in raw.rows].count("__head") == 2
        assert raw.head.sequence == table.version

    def test_without_a_head_the_last_whole_version_counts(self, table, manifest):
        head = ManifestVersion(Location(table.uri)).head()
        manifest.delete("object_id = '__head'")
        raw = RawManifest.open(Location(table.uri))
        assert (raw.head, raw.head_row) == (head, None)
        assert raw.last_whole.version < raw.version
        assert raw.last_whole.head == head

    def test_without_any_head_the_tables_metadata_counts(self, table, manifest):
        manifest.delete("object_id = '__head'")
        every = dt.timedelta(0)
        manifest.cleanup_old_versions(every, retain_versions=1, delete_unverified=True)
        raw = RawManifest.open(Location(table.uri))
        assert raw.last_whole is None
        assert (raw.head.sequence, raw.head.transactions) == (table.version, "strong")
        assert raw.head.specs == table._snapshot.head.specs

    def test_without_anything_there_is_no_head(self, table, manifest):
        manifest.delete("object_id = '__head'")
        every = dt.timedelta(0)
        manifest.cleanup_old_versions(every, retain_versions=1, delete_unverified=True)
        manifest.update_metadata({"schema": "{}"})
        with pytest.raises(CorruptTable, match="no head row and no copy of its schema"):
            RawManifest.open(Location(table.uri))

    def test_there_must_be_a_manifest(self, root):
        with pytest.raises(TableNotFound):
            RawManifest.open(Location(root))
