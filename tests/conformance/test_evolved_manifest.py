"""The manifest of a table whose spec has evolved, held against the specification."""

import datetime as dt
import json
import re

import datafusion
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
