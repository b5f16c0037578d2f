"""The manifest of a table we made, held against Appendices A to E of the specification."""

import json
import re
from pathlib import Path

import datafusion
import lance
import lance_namespace as namespace
import pyarrow as pa
import pytest

import phalanx
from tests.conformance.appendices import (
    APPENDIX_A_BY_DATE,
    APPENDIX_A_BY_YEAR,
    APPENDIX_A_SCHEMA,
    APPENDIX_E_SPEC,
    DAY_1,
    DAY_2,
    NAME,
    SCHEMA,
    StockClient,
    manifest,
    row,
    rows_of,
)


@pytest.fixture(scope="module")
def by_date(tmp_path_factory):
    """Partitioned by day; the first day is written twice."""
    table = phalanx.create(tmp_path_factory.mktemp("by_date"), SCHEMA, ["event_date"])
    table.append([row(1, DAY_1, "US"), row(2, DAY_2, "CA")])
    table.append([row(3, DAY_1, "CA")])
    return table


@pytest.fixture(scope="module")
def by_year(tmp_path_factory):
    """Partitioned by year and country, NULL among the values."""
    root = tmp_path_factory.mktemp("by_year")
    table = phalanx.create(root, SCHEMA, ["year(event_date)", "country"])
    table.append([row(1, DAY_1, "US"), row(2, DAY_1, "CA"), row(3, None, None)])
    return table


class TestAppendixA:
    def test_the_schema_is_in_the_metadata(self, by_date, by_year):
        for table in (by_date, by_year):
            assert json.loads(manifest(table).metadata["schema"]) == APPENDIX_A_SCHEMA

    def test_the_spec_is_in_the_metadata(self, by_date):
        assert json.loads(manifest(by_date).metadata["partition_spec_v1"]) == APPENDIX_A_BY_DATE

    def test_a_spec_of_two_fields(self, by_year):
        expected = json.loads(json.dumps(APPENDIX_A_BY_YEAR))
        expected["id"] = 1
        expected["fields"][0]["field_id"] = "event_date_year"
        assert json.loads(manifest(by_year).metadata["partition_spec_v1"]) == expected

    def test_one_typed_column_for_each_field(self, by_date, by_year):
        def types(table):
            return {f.name: f.type for f in manifest(table).schema if "partition" in f.name}

        assert types(by_date) == {"partition_field_event_date": pa.date32()}
        assert types(by_year) == {
            "partition_field_event_date_year": pa.int32(),
            "partition_field_country": pa.string(),
        }


class TestAppendixB:
    def test_leaves_are_folders_named_by_hash_and_id(self, by_date, by_year):
        for table in (by_date, by_year):
            for id, leaf in rows_of(table, "table").items():
                assert re.fullmatch(r"[0-9a-f]{8}_" + re.escape(id), leaf["location"])

    def test_only_leaves_and_the_manifest_are_folders(self, by_date, by_year):
        for table in (by_date, by_year):
            folders = {path.name for path in Path(table.uri).iterdir() if path.is_dir()}
            locations = {leaf["location"] for leaf in rows_of(table, "table").values()}
            assert folders == locations | {"__manifest"}

    def test_a_leaf_is_a_lance_dataset_with_the_ids_of_the_table(self, by_date):
        for leaf in rows_of(by_date, "table").values():
            dataset = lance.dataset(f"{by_date.uri}/{leaf['location']}")
            assert dataset.schema == SCHEMA
            assert [field.id() for field in dataset.lance_schema.fields()] == [0, 1, 2]


class TestAppendixC:
    def test_ids_are_paths(self, by_date, by_year):
        for table, depth in ((by_date, 1), (by_year, 2)):
            path = rf"v1(\${NAME}){{1,{depth}}}"
            spaces = [id for id in rows_of(table, "namespace") if id != "v1"]
            assert spaces
            assert all(re.fullmatch(path, id) for id in spaces)
            leaf = rf"v1(\${NAME}){{{depth}}}\$dataset"
            assert all(re.fullmatch(leaf, id) for id in rows_of(table, "table"))

    def test_every_parent_is_there(self, by_date, by_year):
        for table in (by_date, by_year):
            spaces, leaves = rows_of(table, "namespace"), rows_of(table, "table")
            for id in (*spaces, *leaves):
                assert id == "v1" or id.rpartition("$")[0] in spaces
            for id in rows_of(table, "table_version"):
                assert id.rpartition("$")[0] in leaves

    def test_values_are_inherited(self, by_year):
        columns = ("partition_field_event_date_year", "partition_field_country")
        by_depth = {0: set(), 1: set(), 2: set()}
        for id, space in rows_of(by_year, "namespace").items():
            by_depth[id.count("$")].add(tuple(space[column] for column in columns))
        assert by_depth == {
            0: {(None, None)},
            1: {(2025, None), (None, None)},
            2: {(2025, "US"), (2025, "CA"), (None, None)},
        }
        for id, leaf in rows_of(by_year, "table").items():
            parent = rows_of(by_year, "namespace")[id.rpartition("$")[0]]
            assert [leaf[c] for c in columns] == [parent[c] for c in columns]

    def test_the_timeline_counts_from_one(self, by_date):
        leaves = rows_of(by_date, "table")
        by_day = {leaf["partition_field_event_date"]: id for id, leaf in leaves.items()}
        assert set(rows_of(by_date, "table_version")) == {
            f"{by_day[DAY_1]}$1",
            f"{by_day[DAY_1]}$2",
            f"{by_day[DAY_2]}$1",
        }

    def test_each_entry_of_the_timeline_can_be_read(self, by_date):
        leaves, entries = rows_of(by_date, "table"), rows_of(by_date, "table_version")
        written = {}
        for id, entry in entries.items():
            assert entry["partition_field_event_date"] is None
            leaf, _, number = id.rpartition("$")
            dataset = lance.dataset(
                f"{by_date.uri}/{leaves[leaf]['location']}", version=entry["read_version"]
            )
            day = leaves[leaf]["partition_field_event_date"]
            written[day, number] = sorted(dataset.to_table()["id"].to_pylist())
        assert written == {(DAY_1, "1"): [1], (DAY_1, "2"): [1, 3], (DAY_2, "1"): [2]}

    def test_a_leaf_carries_the_newest_version_of_its_timeline(self, by_date):
        entries = rows_of(by_date, "table_version")
        for id, leaf in rows_of(by_date, "table").items():
            numbers = sorted(int(e.rpartition("$")[2]) for e in entries if e.startswith(id))
            newest = f"{id}${numbers[-1]}"
            assert leaf["read_version"] == entries[newest]["read_version"]
            assert leaf["read_version"] > 2**40, "a number that no other version has"

    def test_metadata_is_flat_and_of_strings(self, by_date, by_year):
        for table in (by_date, by_year):
            for found in manifest(table).to_table().to_pylist():
                metadata = json.loads(found["metadata"])
                assert all(isinstance(value, str) for value in metadata.values()), found


class TestAppendixD:
    """The query of Appendix D finds leaves, where they are and the version to read."""

    def check(self, table, sql, ids):
        context = datafusion.SessionContext()
        context.from_arrow(manifest(table).to_table(), name="__manifest")
        found = context.sql(sql).to_pylist()
        assert len(found) == 1
        (leaf,) = found
        assert rows_of(table, "table")[leaf["object_id"]]["location"] == leaf["location"]
        dataset = lance.dataset(f"{table.uri}/{leaf['location']}", version=leaf["read_version"])
        assert sorted(dataset.to_table()["id"].to_pylist()) == ids

    def test_by_identity(self, by_date):
        sql = """
            SELECT object_id, location, read_version FROM __manifest
            WHERE object_type = 'table'
              AND object_id LIKE 'v1$%' AND partition_field_event_date = DATE '2025-12-10'
        """
        self.check(by_date, sql, [1, 3])

    def test_by_expression(self, by_year):
        sql = """
            SELECT object_id, location, read_version FROM __manifest
            WHERE object_type = 'table'
              AND object_id LIKE 'v1$%'
              AND partition_field_event_date_year = date_part('year', DATE '2025-12-10')
              AND partition_field_country = 'US'
        """
        self.check(by_year, sql, [1])

    def test_as_a_filter_of_lance(self, by_date):
        found = manifest(by_date).to_table(
            columns=["location", "read_version"],
            filter="object_type = 'table' AND partition_field_event_date = date '2025-12-11'",
        )
        (leaf,) = found.to_pylist()
        dataset = lance.dataset(f"{by_date.uri}/{leaf['location']}", version=leaf["read_version"])
        assert dataset.to_table()["id"].to_pylist() == [2]


class TestAppendixE:
    def test_the_stock_client_lists_everything(self, by_date, by_year):
        for table in (by_date, by_year):
            client = StockClient(table.uri)
            spaces = {"$".join(id) for id in client.spaces()}
            assert spaces == set(rows_of(table, "namespace"))
            tables = {"$".join(t) for id in client.spaces() for t in client.tables(id)}
            assert tables == set(rows_of(table, "table"))

    def test_it_describes_the_spec(self, by_date):
        assert StockClient(by_date.uri).properties("v1") == {"partition_spec": APPENDIX_E_SPEC}

    def test_it_describes_partitions_by_their_own_value(self, by_date, by_year):
        def described(table, depth):
            client = StockClient(table.uri)
            found = [client.properties(*id) for id in client.spaces() if len(id) == depth]
            return sorted(found, key=str)

        assert described(by_date, 2) == [
            {"partition.event_date": "2025-12-10"},
            {"partition.event_date": "2025-12-11"},
        ]
        assert described(by_year, 2) == [{"partition.event_date_year": "2025"}, {}]
        assert described(by_year, 3) == [
            {"partition.country": "CA"},
            {"partition.country": "US"},
            {},
        ]

    def test_it_finds_every_leaf(self, by_date, by_year):
        for table, count in ((by_date, 2), (by_year, 3)):
            client = StockClient(table.uri)
            leaves = [client.table(t) for id in client.spaces() for t in client.tables(id)]
            assert len(leaves) == count
            for leaf in leaves:
                version = int(leaf.properties["read_version"])
                assert lance.dataset(leaf.location).schema == SCHEMA
                assert lance.dataset(leaf.location, version=version).count_rows() > 0

    def test_every_leaf_opens_and_shows_its_first_rows(self, root):
        schema = pa.schema([("id", pa.int64()), ("part", pa.int64())])
        table = phalanx.create(root, schema, ["part"])
        table.append([{"id": n, "part": n % 100} for n in range(200)])
        table.append([{"id": 1_000 + n, "part": n} for n in range(110)])
        client, found = StockClient(table.uri), []
        for id in client.spaces():
            for leaf in map(client.table, client.tables(id)):
                found += lance.dataset(leaf.location).to_table()["id"].to_pylist()
        assert sorted(found) == [*range(200), *range(1_100, 1_110)]

    def test_any_string_can_be_described(self, root):
        value = "a/b=c$d'e\"f\ng\\h😀"
        table = phalanx.create(root, SCHEMA, ["country"])
        table.append([row(1, DAY_1, value)])
        client = StockClient(table.uri)
        (space,) = [id for id in client.spaces() if len(id) == 2]
        assert client.properties(*space) == {"partition.country": value}
        (leaf,) = client.tables(space)
        version = int(client.table(leaf).properties["read_version"])
        assert lance.dataset(client.table(leaf).location, version=version).count_rows() == 1


class TestGuard:
    """The stock client would drop the columns it does not know, so it is kept from writing."""

    @pytest.mark.parametrize("what", ["create_namespace", "declare_table", "drop_table"])
    def test_writes_are_refused(self, root, what):
        table = phalanx.create(root, SCHEMA, ["country"])
        table.append([row(1, DAY_1, "US")])
        before = manifest(table)
        client = StockClient(table.uri)
        (leaf,) = rows_of(table, "table")
        requests = {
            "create_namespace": namespace.CreateNamespaceRequest(id=["mine"]),
            "declare_table": namespace.DeclareTableRequest(id=["mine"]),
            "drop_table": namespace.DropTableRequest(id=leaf.split("$")),
        }
        with pytest.raises(namespace.UnsupportedOperationError, match="writer feature flags"):
            getattr(client.client, what)(requests[what])
        after = manifest(table)
        assert after.version == before.version
        assert after.to_table().equals(before.to_table())
        assert phalanx.open(root).count() == 1
