"""What a scan is planned as, without a Spark session."""

import json

import pyarrow as pa
import pytest

import phalanx
from phalanx.spark.handles import Handle
from phalanx.spark.planner import Planner
from phalanx.spark.types import spark_schema

SCHEMA = pa.schema([("id", pa.int64()), ("g", pa.int32()), ("h", pa.string())])


def planned(table, runtime=(), **conf):
    request = {
        "table": Handle.of(table._snapshot).to_json(),
        "schema": json.dumps(spark_schema(SCHEMA)),
        "filters": [],
        "runtime": list(runtime),
        "zone": "UTC",
        "conf": conf,
        "cores": 2,
        "task_bytes": 1 << 27,
        "empty": False,
    }
    return Planner(table._snapshot, request).plan()


def only(*values):
    items = [{"value": value, "type": '"integer"'} for value in values]
    return [{"call": "IN", "args": [{"column": ["g"]}, *items]}]


@pytest.fixture
def table(root):
    table = phalanx.create(root, SCHEMA, ["g"])
    table.append([{"id": n, "g": n, "h": "x"} for n in range(4)])
    return table


def test_what_a_join_leaves_has_the_keys_that_spark_has_planned_by(table):
    """The leaves of the newer spec alone have more keys than all leaves together."""
    table.evolve_partitioning(["g", "h"])
    table.append([{"id": n, "g": n, "h": "y"} for n in (8, 9)])
    before, after = planned(table), planned(table, only(8, 9))
    assert (before["selected"], after["selected"]) == (6, 2)
    assert before["partitioning"] == after["partitioning"] != []
    assert before["key_types"] == after["key_types"]
    assert [len(task["key"]) for task in after["tasks"]["keyed"]] == [1, 1]


def test_what_was_too_much_for_keys_shares_tasks_after_a_join_too(table):
    conf = {"spark.sql.phalanx.keyedLeaves": "3"}
    assert planned(table, **conf)["partitioning"] == []
    after = planned(table, only(1, 2), **conf)
    assert after["selected"] == 2
    assert after["partitioning"] == []
    assert len(after["tasks"]["keyed"]) == 1


@pytest.mark.parametrize(("values", "selected"), [((1, None), 2), ((None,), 1), ((1, 2), 2)])
def test_null_among_the_values_of_a_join_is_the_group_of_null(table, values, selected):
    table.append([{"id": 7, "g": None, "h": "x"}])
    assert planned(table, only(*values))["selected"] == selected
