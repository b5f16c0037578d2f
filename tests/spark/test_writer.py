"""Jobs of Spark: what tasks write and what the commit makes of it, without a Spark session."""

import base64
import datetime as dt
import json
import os
import pickle
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError, InvalidInput
from phalanx.model.defaults import with_default
from phalanx.spark.dispatch import TaskFailure
from phalanx.spark.handles import Handle
from phalanx.spark.staging import Stage
from phalanx.spark.types import spark_schema
from phalanx.spark.writer import fitting
from phalanx.storage import fsync
from phalanx.storage.location import Location
from phalanx.table.defaults import Moment
from phalanx.transaction import tiny_leaves
from tests.spark.door import call

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
ROWS = {"id": pa.array([2, 3]), "part": pa.array(["a", "b"])}
HOURS_25 = 25 * 3600


@pytest.fixture
def make(root):
    """Make a table with one row, or none to begin with."""

    def made(transactions="strong"):
        table = phalanx.create(root, SCHEMA, ["part"], transactions=transactions)
        return table.append([{"id": 1, "part": "a"}])

    return made


class Job:
    """A write that is not committed yet: its tasks have run, in this process."""

    def __init__(self, target, command="append", tasks=1):
        common = {"table": target.to_json(), "options": {}, "conf": {}, "filters": []}
        batch = pa.record_batch(ROWS)
        if command == "merge":
            found = call("start_changes", **common, command="merge")
            nothing = {"_leaf": pa.nulls(2, pa.string()), "_rowid": pa.nulls(2, pa.int64())}
            batch = pa.record_batch({"_op": pa.array([2, 2], pa.int32()), **nothing, **ROWS})
        else:
            schema = json.dumps(spark_schema(SCHEMA))
            common |= {"mode": command, "functions": True, "schema": schema, "query": None}
            found = call("start_write", **common)
        task, _ = pickle.loads(base64.b64decode(found["command"]))
        rows = len(batch) // tasks
        self.messages = [
            base64.b64encode(message.column(0)[0].as_py()).decode()
            for first in range(0, len(batch), rows)
            for message in task(iter([batch.slice(first, rows)]))
        ]
        self.job, self.command = found["job"], command

    def commit(self, started=None):
        """`started` for a job that takes long: by the clock it has begun just now."""
        job = self.job if started is None else {**self.job, "started": started}
        if "head" in job["table"]:
            table = job["table"] if started is None else {**job["table"], "started": started}
            return call("commit_staged", table=table, messages=self.messages)
        end = "commit_changes" if self.command == "merge" else "commit_write"
        return call(end, job=job, messages=self.messages)


def handle(table):
    return Handle.of(table._snapshot)


def replacement(root):
    return Stage.make(Location(root), True, SCHEMA, ["part"], None, {})


def files(root):
    return {os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names}


def rows(root):
    return sorted(tuple(row.values()) for row in phalanx.open(root).scan().to_arrow().to_pylist())


class TestLongJobs:
    """Vacuum takes files that nothing refers to for leftovers, once they are old enough."""

    KINDS = ("append", "table", "merge", "replace", "weak append")

    def job(self, make, root, kind):
        table = make("weak" if kind == "weak append" else "strong")
        target = replacement(root) if kind == "replace" else handle(table)
        return Job(target, {"replace": "append", "weak append": "append"}.get(kind, kind))

    @pytest.mark.parametrize("kind", KINDS)
    def test_files_that_a_vacuum_has_taken_are_missed(self, make, root, kind):
        job, then = self.job(make, root, kind), time.time() - HOURS_25
        for path in files(root):
            os.utime(path, (then, then))
        assert phalanx.open(root).vacuum(older_than=dt.timedelta(hours=24)).files
        with pytest.raises(ConflictError, match="a vacuum has removed files"):
            job.commit(then)
        assert rows(root) == [(1, "a")]

    @pytest.mark.parametrize("kind", KINDS)
    def test_one_whose_files_are_there_is_committed(self, make, root, kind):
        self.job(make, root, kind).commit(time.time() - HOURS_25)
        first = [] if kind in ("table", "replace") else [(1, "a")]
        assert rows(root) == [*first, (2, "a"), (3, "b")]
        assert phalanx.open(root).check().ok


class TestNewLeaves:
    """The commit knows how many leaves all tasks have created together."""

    def test_they_are_warned_of(self, make, caplog, monkeypatch):
        monkeypatch.setattr(tiny_leaves, "_MANY", 1)
        table = make()
        caplog.clear()
        Job(handle(table)).commit()
        (record,) = caplog.records
        assert f"a write to {table.uri} creates 1 new leaves for 1 rows" in record.getMessage()

    @pytest.mark.parametrize("kind", ["append", "merge", "create", "replace", "weak append"])
    def test_more_than_the_property_allows(self, root, kind):
        properties = {"write.max_new_leaves": "1"}
        job = {"replace": "append", "create": "append", "weak append": "append"}.get(kind, kind)
        if kind == "create":
            target = Stage.make(Location(root), False, SCHEMA, ["part"], None, properties)
        else:
            transactions = "weak" if kind == "weak append" else "strong"
            table = phalanx.create(root, SCHEMA, ["part"], transactions, properties=properties)
            target = handle(table.append([{"id": 1, "part": "z"}]))
        if kind == "replace":
            target = Stage.make(Location(root), True, SCHEMA, ["part"], None, properties)
        with pytest.raises(TaskFailure, match="more than 1 new leaves"):
            Job(target, job)
        together = Job(target, job, tasks=2)
        with pytest.raises(InvalidInput, match="more than 1 new leaves"):
            together.commit()
        if kind == "create":
            assert not (root / "__manifest").exists()
        else:
            assert rows(root) == [(1, "z")]


class TestDurable:
    @pytest.mark.parametrize("kind", ["append", "merge", "create", "replace", "weak append"])
    def test_what_tasks_wrote_long_before_the_commit(self, make, root, monkeypatch, kind):
        before = set()
        if kind == "create":
            target = Stage.make(Location(root), False, SCHEMA, ["part"], None, {})
        else:
            table = make("weak" if kind == "weak append" else "strong")
            target, before = replacement(root) if kind == "replace" else handle(table), files(root)
        job = Job(target, "merge" if kind == "merge" else "append")
        written, then = files(root) - before, time.time() - 3600
        assert sum(path.endswith(".lance") for path in written) == 2
        for path in written:
            os.utime(path, (then, then))
        synced, real = set(), fsync._fsync
        monkeypatch.setattr(fsync, "_fsync", lambda path: (synced.add(path), real(path)))
        monkeypatch.setenv("PHALANX_DURABLE", "1")
        job.commit(then - 1)
        assert written <= synced
        made = {path for path in files(root) - before if not path.endswith(".lock")}
        assert made <= synced
        folders = {
            parent for path in made for parent in Path(path).parents if root in parent.parents
        }
        assert {str(folder) for folder in folders | {root}} <= synced


class TestReplace:
    def test_of_a_table_that_was_dropped_and_made_again(self, make, root):
        make()
        job = Job(replacement(root))
        shutil.rmtree(root)
        make()
        with pytest.raises(ConflictError, match="dropped and made again"):
            job.commit()
        assert rows(root) == [(1, "a")]


class TestDelete:
    """DELETE by filters: they are of the table that Spark has looked at."""

    SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int32())])

    @pytest.fixture
    def table(self, root):
        return phalanx.create(root, self.SCHEMA).append([{"id": 1, "a": 5}, {"id": 2}])

    def delete(self, table, *filters):
        call("delete", table=table.to_json(), filters=filters, conf={})

    IS_NULL = {"call": "IS_NULL", "args": [{"column": ["a"]}]}  # noqa: RUF012
    IS_5 = {"call": "=", "args": [{"column": ["a"]}, {"value": 5, "type": '"integer"'}]}  # noqa: RUF012

    def test_rows_that_came_since_are_deleted_too(self, table, root):
        seen = handle(table)
        phalanx.open(root).append([{"id": 3}, {"id": 4, "a": 4}])
        self.delete(seen, self.IS_NULL)
        assert rows(root) == [(1, 5), (4, 4)]

    def test_a_column_that_was_dropped(self, table, root):
        seen, other = handle(table), phalanx.open(root)
        other.drop_column("a").append([{"id": 3}])
        with pytest.raises(ConflictError, match="schema"):
            self.delete(seen, self.IS_NULL)
        assert rows(root) == [(1,), (2,), (3,)]

    def test_a_column_that_has_become_wider(self, table, root):
        seen, other = handle(table), phalanx.open(root)
        other.change_type("a", pa.int64()).append([{"id": 3, "a": 2**32 + 5}])
        with pytest.raises(ConflictError, match="schema"):
            self.delete(seen, self.IS_5)
        assert phalanx.open(root).count() == 3

    @pytest.mark.parametrize("filter", [IS_NULL, IS_5, None], ids=["null", "5", "all"])
    def test_a_table_that_was_dropped_and_made_again(self, table, root, filter):
        seen = handle(table)
        shutil.rmtree(root)
        phalanx.create(root, self.SCHEMA).append([{"id": 9, "a": 5}, {"id": 8}])
        with pytest.raises(ConflictError, match="dropped and made again"):
            self.delete(seen, *([filter] if filter else []))
        assert phalanx.open(root).count() == 2


class TestFitting:
    """Spark's rows become rows of the table, in one go."""

    def fit(self, schema, *batches):
        return pa.concat_tables(list(fitting(batches, schema, Moment.now())))

    def test_types_and_order(self):
        schema = pa.schema(
            [("n", pa.uint64()), ("v", pa.list_(pa.float32(), 2)), ("s", pa.string())]
        )
        spark = {
            "s": pa.array(["x"]),
            "n": pa.array([7], pa.decimal128(20, 0)),
            "v": pa.array([[1.0, 2.0]], pa.list_(pa.float32())),
            "_op": pa.array([1]),
        }
        rows = self.fit(schema, pa.record_batch(spark), pa.record_batch(spark))
        assert rows.schema == schema
        assert rows.to_pylist() == [{"n": 7, "v": [1.0, 2.0], "s": "x"}] * 2

    def test_missing_columns(self):
        default = with_default(pa.field("b", pa.int32()), pa.scalar(5, pa.int32()))
        schema = pa.schema([("a", pa.int64()), default, ("c", pa.string())])
        rows = self.fit(schema, pa.record_batch({"a": [1, 2]}))
        assert rows.to_pylist() == [{"a": a, "b": 5, "c": None} for a in (1, 2)]

    @pytest.mark.parametrize(
        ("field", "column", "message"),
        [
            (pa.field("a", pa.int64(), False), [1, None], "'a' holds NULL"),
            (
                pa.field("a", pa.struct([pa.field("x", pa.int64(), False)])),
                [{"x": 1}, {"x": None}],
                "'a.x' holds NULL",
            ),
            (pa.field("a", pa.int8()), [1, 300], "'a' holds a value of int64 that int8 cannot"),
        ],
    )
    def test_what_does_not_fit(self, field, column, message):
        with pytest.raises(InvalidInput, match=message):
            self.fit(pa.schema([field]), pa.record_batch({"a": column}))

    def test_a_required_column_that_is_missing(self):
        schema = pa.schema([pa.field("a", pa.int64(), False), ("b", pa.int64())])
        with pytest.raises(InvalidInput, match="'a' holds NULL, and it must not be NULL"):
            self.fit(schema, pa.record_batch({"b": [1]}))


@pytest.mark.parametrize("mode", ["append", "table", "partitions", "where"])
@pytest.mark.parametrize("option", [{"ReplaceWhere": "id = 1"}, {"overwrite-mode": "dynamic"}])
def test_options_that_spark_has_not_followed_are_refused(make, mode, option):
    """A session without the extension of Phalanx does not know them, and would replace too much."""
    handle = Handle.of(make()._snapshot).to_json()
    request = {"table": handle, "options": option, "conf": {}, "filters": [], "mode": mode}
    request |= {"functions": True, "schema": json.dumps(spark_schema(SCHEMA)), "query": None}
    if mode == "append" and "overwrite-mode" in option:
        assert call("start_write", **request)["job"]["mode"] == "append"
        return
    with pytest.raises(InvalidInput, match=r"use writeTo\(t\)\.overwrite"):
        call("start_write", **request)
    assert call("start_write", **request, is_first=True)["job"]["mode"] == mode
