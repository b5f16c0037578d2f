import json
import urllib.error
import urllib.request

import numpy as np
import pyarrow as pa
import pytest

import phalanx
from phalanx.explore.server import running
from phalanx.storage.leaf_index import LeafIndex
from phalanx.table.table import Table
from tests import events
from tests.events import SCHEMA

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def rows(count, first=0):
    return events.rows(count, first, ("DE", "US", None, HOSTILE))


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    """Six versions, two specs, one tag, a renamed column, and values that are HTML."""
    table = phalanx.create(
        tmp_path_factory.mktemp("explore") / "t", SCHEMA, ["months(ts)", "country"]
    )
    table.append(rows(24))
    table.tag("first")
    table.add_column("note", "string", HOSTILE)
    table.evolve_partitioning(["country"])
    return table.append(rows(3, 120))


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """A table of 100,000 leaves: years, months, days, 20 countries and 5 buckets.

    Its manifest is real and its leaves are not: they are added to the snapshot.
    """
    fields = ["days(ts)", "country", "bucket(5, id)"]
    table = phalanx.create(tmp_path_factory.mktemp("large") / "t", SCHEMA, fields)
    snapshot = table._snapshot
    numbers = np.arange(100_000)
    day, rest = numbers // 100, numbers % 100
    columns = {
        "object_id": [f"v1$n{number}$dataset" for number in numbers],
        "location": [f"{number:08x}" for number in numbers],
        "spec_id": pa.array(np.ones(100_000), pa.int32()),
        "read_version": pa.array(numbers + 1, pa.uint64()),
        "version_number": pa.array(np.ones(100_000), pa.int64()),
        "row_count": pa.array(1_000 + 10_000 * (rest == 7), pa.int64()),
        "byte_count": pa.array(50_000 + 500_000 * (rest == 7), pa.int64()),
        "fragment_count": pa.array(np.ones(100_000), pa.int64()),
        "partition_field_ts_year": pa.array(2025 - day // 360, pa.int32()),
        "partition_field_ts_month": pa.array(day % 360 // 30 + 1, pa.int32()),
        "partition_field_ts_day": pa.array(day % 30 + 1, pa.int32()),
        "partition_field_country": [f"C{number:02}" for number in rest // 5],
        "partition_field_id_bucket": pa.array(rest % 5, pa.int32()),
    }
    index = LeafIndex._sorted(pa.table(columns), snapshot.head.specs)
    return Table(snapshot.with_leaves(index))


class Client:
    """Asks an explorer over HTTP."""

    def __init__(self, address):
        self.address = address

    def __call__(self, path, *, method="GET", **headers):
        request = urllib.request.Request(self.address + path, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.headers, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def json(self, path):
        status, _, body = self(path)
        return status, json.loads(body)


@pytest.fixture(scope="session")
def explorer(table):
    with running(table) as explorer:
        yield explorer


@pytest.fixture(scope="session")
def client(explorer):
    return Client(explorer.address)
