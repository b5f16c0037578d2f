"""What a scan is planned as, without a Spark session."""

import base64
import datetime as dt
import json
import pickle

import numpy as np
import pyarrow as pa
import pytest

import phalanx
from phalanx.model.hashing import murmur3
from phalanx.spark import planner
from phalanx.spark.planner import Planner
from phalanx.spark.tasks import Cluster, ScanSettings
from phalanx.spark.types import spark_schema

SCHEMA = pa.schema([("id", pa.int64()), ("g", pa.int32()), ("h", pa.string())])


def planned(table, runtime=(), clusters=True, keys=None, chooses_keys=False, **conf):
    scan = ScanSettings(
        schema=json.dumps(spark_schema(table.schema)),
        cluster=Cluster(2, 1 << 27),
        runtime=runtime,
        clusters=clusters,
        keys=keys,
        chooses_keys=chooses_keys,
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


def transform(name, column, *constants):
    values = [{"value": constant} for constant in constants]
    return {"name": name, "args": [*values, {"column": [column]}]}


class TestShareThatFiltersLeave:
    """Spark decides by it whether a table is broadcast."""

    @pytest.fixture
    def table(self, root):
        table = phalanx.create(root, SCHEMA, ["g"])
        table.append([{"id": n, "g": n % 50, "h": str(n)} for n in range(5000)])
        return table

    def share(self, table, operator, constant, column="id", joins=True):
        number = {"value": constant, "type": '"long"'}
        scan = ScanSettings(
            schema=json.dumps(spark_schema(table.schema)),
            cluster=Cluster(2, 1 << 27),
            filters=[{"call": operator, "args": [{"column": [column]}, number]}],
            joins=joins,
        )
        plan = Planner(table._snapshot, scan, "UTC").plan()
        if plan["left"] is not None:
            assert plan["left"] <= plan["rows"] * plan["share"]
        self.left = plan["left"]
        return plan["share"]

    def test_a_range(self, table):
        assert self.share(table, "<", 2500) == pytest.approx(0.5, abs=0.02)
        assert self.share(table, ">=", 0) == 1
        assert self.share(table, "<", 2500, joins=False) == 1

    def test_never_less_than_an_eighth(self, table):
        assert self.share(table, "=", 7) == 1 / 8
        assert self.left < 100

    def test_partitions_that_are_pruned_count_already(self, table):
        assert self.share(table, "<", 5, column="g") == 1

    def test_nothing_is_known(self, table, root):
        weak = phalanx.create(root / "weak", SCHEMA, ["g"], transactions="weak")
        weak.append([{"id": 1, "g": 1, "h": "a"}])
        assert self.share(weak, "<", 0) == 1
        empty = phalanx.create(root / "empty", SCHEMA, ["g"])
        assert self.share(empty, "<", 0) == 1


class TestChosenKeys:
    """Spark's side has seen the keys, and asks for those that the query can use."""

    @pytest.fixture
    def events(self, root):
        schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("c", pa.string())])
        table = phalanx.create(root, schema, ["days(ts)", "bucket(6, id)", "c"])
        days = [dt.datetime(2023, 12, 30) + dt.timedelta(n) for n in range(5)]
        rows = [{"id": n, "ts": days[n % 5], "c": "xy"[n % 2]} for n in range(40)]
        table.append([*rows, {"id": None, "ts": None, "c": None}])
        return table

    def tasks(self, table, *keys):
        """The rows of each key, by what Spark computes of the same rows."""
        plan = planned(table, keys=keys)
        assert plan["partitioning"] == list(keys)
        assert plan["keys"] == len({json.dumps(task["key"]) for task in plan["tasks"]["keyed"]})
        found = {}
        for task in plan["tasks"]["keyed"]:
            assert tuple(task["key"]) not in found  # leaves with the same key share a task
            found[tuple(task["key"])] = ids([task])[0]
        return found

    def test_some_of_them(self, events, monkeypatch):
        monkeypatch.setattr(planner, "_FEW_LEAVES", 1000)
        tasks = self.tasks(events, transform("identity", "c"))
        assert {key: len(rows) for key, rows in tasks.items()} == {
            (None,): 1,
            ("x",): 20,
            ("y",): 20,
        }

    def test_in_another_order(self, events, monkeypatch):
        monkeypatch.setattr(planner, "_FEW_LEAVES", 1000)
        tasks = self.tasks(events, transform("identity", "c"), transform("days", "ts"))
        assert len(tasks) == 11
        first = dt.date(2023, 12, 30).toordinal() - dt.date(1970, 1, 1).toordinal()
        assert tasks["x", first] == [0, 10, 20, 30]

    @pytest.mark.parametrize(
        ("unit", "counts"),
        [
            ("months", {53 * 12 + 11: 16, 54 * 12: 24, None: 1}),
            ("years", {53: 16, 54: 24, None: 1}),
        ],
    )
    def test_coarser_units_of_time(self, events, monkeypatch, unit, counts):
        monkeypatch.setattr(planner, "_FEW_LEAVES", 1000)
        tasks = self.tasks(events, transform(unit, "ts"))
        assert {key: len(rows) for (key,), rows in tasks.items()} == counts

    @pytest.mark.parametrize("buckets", [1, 2, 3, 6])
    def test_fewer_buckets(self, events, monkeypatch, buckets):
        monkeypatch.setattr(planner, "_FEW_LEAVES", 1000)
        tasks = self.tasks(events, transform("bucket", "id", buckets))
        hashes = np.abs(murmur3(pa.array(range(40))).to_numpy().astype(np.int64)) % buckets
        wanted = {(n,): np.flatnonzero(hashes == n).tolist() for n in set(hashes.tolist())}
        assert tasks == wanted | {(None,): [None]}

    @pytest.mark.parametrize(
        "key",
        [
            transform("hours", "ts"),
            transform("bucket", "id", 4),
            transform("bucket", "id", 12),
            transform("identity", "id"),
            transform("months", "c"),
        ],
    )
    def test_there_is_no_such_key(self, events, key):
        assert planned(events, keys=[transform("identity", "c"), key])["partitioning"] == []

    def test_what_is_too_much_depends_on_the_keys_that_are_used(self, events):
        conf = {"spark.sql.phalanx.keyedLeaves": "3"}
        assert planned(events, **conf)["partitioning"] == []
        # Spark's side gives them up itself: it may be looking for coarser ones.
        for keys, count in ((None, 33), ([transform("days", "ts")], 6)):
            plan = planned(events, chooses_keys=True, keys=keys, **conf)
            assert len(plan["partitioning"]) == (3 if keys is None else 1)
            assert plan["too_many"].startswith(f"{count} keys with few rows each are more than")
        by_month = planned(events, chooses_keys=True, keys=[transform("months", "ts")], **conf)
        assert (by_month["keys"], by_month["largest"], by_month["too_many"]) == (3, 24, "")

    def test_many_rows_are_worth_a_task(self, events, monkeypatch):
        monkeypatch.setattr(planner, "_ROWS_OF_A_TASK", 6)
        conf = {"spark.sql.phalanx.keyedLeaves": "3"}
        assert planned(events, keys=[transform("days", "ts")], **conf)["keys"] == 6
        assert planned(events, **conf)["partitioning"] == []
