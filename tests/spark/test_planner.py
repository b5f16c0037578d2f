"""What a scan is planned as, without a Spark session."""

import base64
import json
import pickle

import pyarrow as pa
import pytest

import phalanx
from phalanx.spark.planner import Planner
from phalanx.spark.tasks import Cluster, ScanSettings
from phalanx.spark.types import spark_schema

SCHEMA = pa.schema([("id", pa.int64()), ("g", pa.int32()), ("h", pa.string())])


def planned(table, runtime=(), clusters=True, **conf):
    scan = ScanSettings(
        schema=json.dumps(spark_schema(SCHEMA)),
        cluster=Cluster(2, 1 << 27),
        runtime=runtime,
        clusters=clusters,
        conf=conf,
    )
    return Planner(table._snapshot, scan, "UTC").plan()


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


def ids(tasks):
    """What each task reads."""
    read = []
    for task in tasks:
        work, _ = pickle.loads(base64.b64decode(task["command"]))
        read.append(sorted(id for batch in work(iter(())) for id in batch["id"].to_pylist()))
    return sorted(read)


def test_the_tasks_of_a_small_scan_come_with_its_plan(table):
    tasks = planned(table)["tasks"]
    assert ids(tasks["keyed"]) == [[0], [1], [2], [3]]
    assert ids(tasks["packed"]) == [[0, 1, 2, 3]]
    assert not any("key" in task for task in tasks["packed"])


def test_tasks_are_made_once_where_packing_changes_nothing(table):
    one = planned(table, only(2))["tasks"]
    assert ids(one["keyed"]) == [[2]]
    assert [task["key"] for task in one["keyed"]] == [[2]]
    assert "packed" not in one


def test_a_query_that_clusters_nothing_has_no_use_for_keys(table):
    plan = planned(table, clusters=False)
    assert plan["partitioning"] == []
    assert plan["unkeyed"] == "the query neither joins nor groups rows"
    assert ids(plan["tasks"]["keyed"]) == [[0, 1, 2, 3]]
    assert "packed" not in plan["tasks"]


@pytest.mark.parametrize(("values", "selected"), [((1, None), 2), ((None,), 1), ((1, 2), 2)])
def test_null_among_the_values_of_a_join_is_the_group_of_null(table, values, selected):
    table.append([{"id": 7, "g": None, "h": "x"}])
    assert planned(table, only(*values))["selected"] == selected
