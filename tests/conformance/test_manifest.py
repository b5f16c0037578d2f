"""The manifest of a table we made, held against Appendices A to E of the specification."""

import datetime as dt
import json
import re
from pathlib import Path

import datafusion
import lance
import lance_namespace as namespace
import pyarrow as pa
import pytest

import phalanx

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("event_date", pa.date32()),
        ("country", pa.string()),
    ]
)
DAY_1, DAY_2 = dt.date(2025, 12, 10), dt.date(2025, 12, 11)

# Appendix A.
APPENDIX_A_SCHEMA = {
    "fields": [
        {
            "name": "id",
            "nullable": False,
            "type": {"type": "int64"},
            "metadata": {"lance:field_id": "0"},
        },
        {
            "name": "event_date",
            "nullable": True,
            "type": {"type": "date32"},
            "metadata": {"lance:field_id": "1"},
        },
        {
            "name": "country",
            "nullable": True,
            "type": {"type": "utf8"},
            "metadata": {"lance:field_id": "2"},
        },
    ]
}
APPENDIX_A_BY_DATE = {
    "id": 1,
    "fields": [
        {
            "field_id": "event_date",
            "source_ids": [1],
            "transform": {"type": "identity"},
            "result_type": {"type": "date32"},
        }
    ],
}
APPENDIX_A_BY_YEAR = {
    "id": 2,
    "fields": [
        {
            "field_id": "event_year",
            "source_ids": [1],
            "transform": {"type": "year"},
            "result_type": {"type": "int32"},
        },
        {
            "field_id": "country",
            "source_ids": [2],
            "transform": {"type": "identity"},
            "result_type": {"type": "utf8"},
        },
    ],
}
# Appendix E writes the spec without blanks.
APPENDIX_E_SPEC = (
    '{"id":1,"fields":[{"field_id":"event_date","source_ids":[1],'
    '"transform":{"type":"identity"},"result_type":{"type":"date32"}}]}'
)
NAME = r"[a-z0-9]{16}"


def row(id, event_date, country):
    return {"id": id, "event_date": event_date, "country": country}


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


def manifest(table):
    return lance.dataset(f"{table.uri}/__manifest")


def rows_of(table, *types):
    rows = manifest(table).to_table().to_pylist()
    return {r["object_id"]: r for r in rows if r["object_type"] in types}


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
            assert leaf["read_version"] > 2**63, "a detached version"

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


@pytest.fixture(scope="module")
def evolved(tmp_path_factory):
    """Partitioned by day, then by year and country."""
    table = phalanx.create(tmp_path_factory.mktemp("evolved"), SCHEMA, ["event_date"])
    table.append([row(1, DAY_1, "US"), row(2, DAY_1, "CA"), row(3, DAY_2, "US")])
    table.evolve_partitioning(["year(event_date)", "country"])
    return table.append([row(4, DAY_1, "US"), row(5, DAY_2, "US"), row(6, DAY_1, "CA")])


class TestTwoSpecs:
    """Appendices A to D as they are, on a table whose spec has evolved."""

    QUERY = "event_date = '2025-12-10' AND country = 'US'"
    PRUNING = """
        SELECT object_id, location, read_version
        FROM __manifest
        WHERE object_type = 'table'
          AND (
            (object_id LIKE 'v1$%'
              AND partition_field_event_date = DATE '2025-12-10')
            OR
            (object_id LIKE 'v2$%'
              AND partition_field_event_date_year = date_part('year', DATE '2025-12-10')
              AND partition_field_country = 'US')
          )
    """

    def test_both_specs_are_in_the_metadata(self, evolved):
        found = manifest(evolved).metadata
        by_year = json.loads(json.dumps(APPENDIX_A_BY_YEAR))
        by_year["fields"][0]["field_id"] = "event_date_year"
        assert json.loads(found["partition_spec_v1"]) == APPENDIX_A_BY_DATE
        assert json.loads(found["partition_spec_v2"]) == by_year
        assert json.loads(found["schema"]) == APPENDIX_A_SCHEMA
        names = [f.name for f in manifest(evolved).schema if f.name.startswith("partition_field_")]
        assert sorted(names) == [
            "partition_field_country",
            "partition_field_event_date",
            "partition_field_event_date_year",
        ]

    def test_the_rows_of_appendix_c(self, evolved):
        columns = ("event_date", "event_date_year", "country")
        found = {
            (re.sub(NAME, "*", id), *(r[f"partition_field_{c}"] for c in columns))
            for id, r in rows_of(evolved, "namespace", "table").items()
        }
        assert found == {
            ("v1", None, None, None),
            ("v1$*", DAY_1, None, None),
            ("v1$*$dataset", DAY_1, None, None),
            ("v1$*", DAY_2, None, None),
            ("v1$*$dataset", DAY_2, None, None),
            ("v2", None, None, None),
            ("v2$*", None, 2025, None),
            ("v2$*$*", None, 2025, "US"),
            ("v2$*$*$dataset", None, 2025, "US"),
            ("v2$*$*", None, 2025, "CA"),
            ("v2$*$*$dataset", None, 2025, "CA"),
        }

    def test_the_query_of_appendix_d(self, evolved):
        context = datafusion.SessionContext()
        context.from_arrow(manifest(evolved).to_table(), name="__manifest")
        found = context.sql(self.PRUNING).to_pylist()
        assert len(found) == 2
        plan = evolved.scan(where=self.QUERY).plan()
        ours = {(leaf.row.object_id, leaf.row.location, leaf.version) for leaf in plan.leaves}
        assert ours == {(r["object_id"], r["location"], r["read_version"]) for r in found}
        assert [leaf.residual for leaf in plan.leaves] == [
            "country = 'US'",
            "event_date = DATE '2025-12-10'",
        ]
        assert sorted(evolved.scan(where=self.QUERY).to_arrow()["id"].to_pylist()) == [1, 4]

    def test_the_stock_client(self, evolved):
        client = StockClient(evolved.uri)
        assert {"$".join(id) for id in client.spaces()} == set(rows_of(evolved, "namespace"))
        assert client.properties("v1") == {"partition_spec": APPENDIX_E_SPEC}
        assert client.properties("v2") == {"partition_spec": evolved.spec.dumps()}
        leaves = [client.table(t) for id in client.spaces() for t in client.tables(id)]
        assert len(leaves) == 4


class TestScenarios:
    """What a spec can become, and what expressions must withstand: the specification's lists."""

    FIRST = (row(1, DAY_1, "US"), row(2, DAY_2, "CA"))
    SECOND = (row(3, DAY_1, "US"), row(4, dt.date(2024, 1, 1), "CA"))

    def evolve(self, root, before, after):
        table = phalanx.create(root, SCHEMA, before).append(list(self.FIRST))
        return table.evolve_partitioning(after).append(list(self.SECOND))

    def read(self, table, where):
        plan = table.scan(where=where).plan()
        ids = table.scan(["id"], where).to_arrow()["id"].to_pylist()
        return [(leaf.row.spec_id, *leaf.values.values()) for leaf in plan.leaves], sorted(ids)

    def test_adding_partition_columns(self, root):
        table = self.evolve(root, ["event_date"], ["event_date", "country"])
        found = self.read(table, "event_date = '2025-12-10' AND country = 'US'")
        assert found == ([(1, DAY_1), (2, DAY_1, "US")], [1, 3])

    def test_changing_partition_expressions(self, root):
        """From days to years: exact partitions of v1, and all of the year's in v2."""
        table = self.evolve(root, ["event_date"], ["year(event_date)"])
        assert self.read(table, "event_date = '2025-12-10'") == ([(1, DAY_1), (2, 2025)], [1, 3])

    def test_removing_partition_columns(self, root):
        table = self.evolve(root, ["event_date", "country"], ["event_date"])
        found = self.read(table, "event_date = '2025-12-10' AND country = 'US'")
        assert found == ([(1, DAY_1, "US"), (2, DAY_1)], [1, 3])

    def test_source_columns_are_renamed(self, root):
        table = self.evolve(root, ["event_date"], ["year(event_date)", "country"])
        table.rename_column("event_date", "day").rename_column("country", "land")
        found = self.read(table, "day = '2025-12-10' AND land = 'US'")
        assert found == ([(1, DAY_1), (2, 2025, "US")], [1, 3])
        assert json.loads(manifest(table).metadata["partition_spec_v1"]) == APPENDIX_A_BY_DATE

    def test_field_ids_are_reused_for_the_same_field_only(self, root):
        table = self.evolve(root, ["event_date", "bucket(4, id)"], ["event_date", "bucket(8, id)"])
        ids = [[field.field_id for field in spec.fields] for spec in table.specs]
        assert ids == [["event_date", "id_bucket"], ["event_date", "id_bucket_2"]]

    def test_column_removal_resistant(self, root):
        table = self.evolve(root, ["country"], ["multi_bucket(4, id, country)"])
        table.drop_column("country").append([{"id": 5, "event_date": DAY_1}])
        assert self.read(table, "id = 5")[1] == [5]
        assert self.read(table, "event_date = '2025-12-10'")[1] == [1, 3, 5]

    def test_type_promotion_resistant(self, root):
        schema = pa.schema([("n", pa.int32()), ("f", pa.float32())])
        entries = ["n", "truncate(10, n)", "bucket(4, n)", "bucket(4, f)"]
        table = phalanx.create(root, schema, entries)
        rows = [{"n": n, "f": n / 8} for n in (-25, -1, 0, 7, 1999)]
        table.append(rows)
        before = table.partitions().num_rows
        table.change_type("n", pa.int64()).change_type("f", pa.float64()).append(rows)
        assert table.partitions().num_rows == before
        assert set(table.partitions()["rows"].to_pylist()) == {2}


class StockClient:
    """The namespace client that others use."""

    def __init__(self, root):
        self.client = namespace.connect("dir", {"root": root})

    def spaces(self, *id):
        request = namespace.ListNamespacesRequest(id=list(id))
        for name in self.client.list_namespaces(request).namespaces:
            yield (*id, name)
            yield from self.spaces(*id, name)

    def tables(self, id):
        request = namespace.ListTablesRequest(id=list(id))
        return [(*id, name) for name in self.client.list_tables(request).tables]

    def properties(self, *id):
        request = namespace.DescribeNamespaceRequest(id=list(id))
        return self.client.describe_namespace(request).properties

    def table(self, id):
        return self.client.describe_table(namespace.DescribeTableRequest(id=list(id)))


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


# Manifests of other clients ----------------------------------------------------------------


def make_leaf(folder, *batches):
    """A leaf as another client writes it: version 1 on main, then detached versions."""
    dataset = lance.write_dataset(batches[0], folder)
    versions = [dataset.version]
    for batch in batches[1:]:
        fragments = lance.fragment.write_fragments(batch, dataset)
        dataset = lance.LanceDataset.commit(
            dataset,
            lance.LanceOperation.Append(fragments),
            read_version=dataset.version,
            detached=True,
        )
        versions.append(dataset.version)
    return versions


def rows(*found):
    return pa.Table.from_pylist([row(*cells) for cells in found], schema=SCHEMA)


def write_foreign(root, *, strong=True):
    """Appendix C as another client would write it: no head row, names at random."""
    leaf_1 = "v1$k7m2n9p4q8r5s3t6$dataset"
    leaf_2 = "v2$e9f0g1h2i3j4k5l6$m7n8o9p0q1r2s3t4$dataset"
    folder_1, folder_2 = f"b4a3c2d1_{leaf_1}", f"aabbccdd_{leaf_2}"
    versions_1 = make_leaf(root / folder_1, rows((1, DAY_1, "CA")), rows((2, DAY_1, "US")))
    versions_2 = make_leaf(root / folder_2, rows((3, DAY_2, "US")))
    columns = ["object_id", "object_type", "location", "read_version"]
    fields = ["event_date", "event_year", "country"]
    cells = [
        ("v1", "namespace", None, None, None, None, None),
        ("v1$k7m2n9p4q8r5s3t6", "namespace", None, None, DAY_1, None, None),
        (leaf_1, "table", folder_1, None, DAY_1, None, None),
        (f"{leaf_1}$1", "table_version", None, versions_1[0], None, None, None),
        (f"{leaf_1}$2", "table_version", None, versions_1[1], None, None, None),
        ("v2", "namespace", None, None, None, None, None),
        ("v2$e9f0g1h2i3j4k5l6", "namespace", None, None, None, 2025, None),
        ("v2$e9f0g1h2i3j4k5l6$m7n8o9p0q1r2s3t4", "namespace", None, None, None, 2025, "US"),
        (leaf_2, "table", folder_2, None, None, 2025, "US"),
        (f"{leaf_2}$1", "table_version", None, versions_2[0], None, None, None),
    ]
    names = [*columns, *(f"partition_field_{field}" for field in fields)]
    schema = pa.schema(
        [
            *((name, pa.string()) for name in columns[:3]),
            ("read_version", pa.uint64()),
            ("partition_field_event_date", pa.date32()),
            ("partition_field_event_year", pa.int32()),
            ("partition_field_country", pa.string()),
        ]
    )
    found = [dict(zip(names, line, strict=True)) for line in cells]
    if not strong:
        found = [line for line in found if line["object_type"] != "table_version"]
    table = pa.Table.from_pylist(found, schema=schema)
    if not strong:
        table = table.drop_columns(["read_version"])
    table = table.append_column("metadata", pa.array(["{}"] * table.num_rows))
    dataset = lance.write_dataset(table, root / "__manifest")
    metadata = {
        "schema": json.dumps(APPENDIX_A_SCHEMA),
        "partition_spec_v1": json.dumps(APPENDIX_A_BY_DATE),
        "partition_spec_v2": json.dumps(APPENDIX_A_BY_YEAR),
    }
    lance.LanceDataset.commit(
        dataset,
        lance.LanceOperation.UpdateConfig(
            table_metadata_updates=lance.LanceOperation.UpdateMap(metadata)
        ),
        read_version=dataset.version,
    )


class TestForeignManifests:
    def test_the_newest_row_of_the_timeline_is_read(self, root):
        write_foreign(root)
        table = phalanx.open(root)
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
        assert [spec.id for spec in table.specs] == [1, 2]
        assert table.spec.id == 2
        assert table.schema == SCHEMA

    def test_it_is_pruned_across_specs(self, root):
        write_foreign(root)
        scan = phalanx.open(root).scan(where="event_date = '2025-12-10' AND country = 'US'")
        assert scan.plan().selected == 2, "the year of the second leaf is 2025 too"
        assert scan.to_arrow()["id"].to_pylist() == [2]
        assert scan.count() == 1
        assert phalanx.open(root).scan(where="event_date = '2024-12-10'").plan().selected == 0

    def test_without_read_versions_main_is_read(self, root):
        write_foreign(root, strong=False)
        table = phalanx.open(root)
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 3]
        assert table.count() == 2
        (folder,) = root.glob("*_v2$*")
        lance.write_dataset(rows((4, DAY_2, "US")), folder, mode="append")
        assert sorted(phalanx.open(root).scan().to_arrow()["id"].to_pylist()) == [1, 3, 4]

    def test_it_is_only_read(self, root):
        write_foreign(root)
        before = lance.dataset(root / "__manifest").version
        with pytest.raises(phalanx.UnsupportedTable, match="another client"):
            phalanx.open(root).append([row(4, DAY_1, "US")])
        assert lance.dataset(root / "__manifest").version == before
        assert len(list(root.iterdir())) == 3

    def test_the_stock_client_reads_it_too(self, root):
        """The hand-made manifest is one that stock clients accept."""
        write_foreign(root)
        client = StockClient(str(root))
        tables = ["$".join(t) for id in client.spaces() for t in client.tables(id)]
        leaves = phalanx.open(root).scan().plan().leaves
        assert sorted(tables) == sorted(leaf.row.object_id for leaf in leaves)
