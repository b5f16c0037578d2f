"""The door: which operations there are, and what requests must be like."""

import base64
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from phalanx.spark import dispatch
from phalanx.spark.dispatch import OPERATIONS, answer, call
from phalanx.spark.handles import Handle
from phalanx.spark.requests import BadRequest, Request, build
from phalanx.spark.staging import Stage
from tests.spark.door import catalog

ROOT = Path(__file__).parents[2]
SCALA = "".join(path.read_text() for path in sorted((ROOT / "jvm").rglob("*.scala")))


class TestOperations:
    def test_every_one_is_where_it_is_declared(self):
        for name, declared in OPERATIONS.items():
            module = importlib.import_module(f"phalanx.spark.{declared.module}")
            kind, function = dispatch._registered[name]
            assert issubclass(kind, Request)
            assert getattr(module, name) is function
        assert dispatch._registered.keys() == OPERATIONS.keys()

    def test_spark_calls_those_and_no_others(self):
        called = set(re.findall(r'\b(?:call|request|ask)\("(\w+)"', SCALA))
        assert called == OPERATIONS.keys()

    def test_which_only_look(self):
        looking = {name for name, declared in OPERATIONS.items() if declared.looks}
        changing = {"commit", "delete", "drop", "rename", "create", "alter", "call", "write"}
        assert {name for name in OPERATIONS if name.split("_")[0] in changing} == (
            OPERATIONS.keys() - looking
        )
        assert {"start_stream", "next_offset", "stream_tasks", "load_table"} <= looking
        assert call("only_looks", {"zone": "UTC", "name": "next_offset"}) == {"looks": True}
        assert call("only_looks", {"zone": "UTC", "name": "commit_write"}) == {"looks": False}
        assert call("only_looks", {"zone": "UTC", "name": "no_such_thing"}) == {"looks": False}

    def test_what_only_reads_does_not_load_what_writes(self):
        code = (
            "import sys; from phalanx.spark.dispatch import OPERATIONS; import importlib\n"
            "for name in ('catalog', 'planner', 'aggregates', 'streaming.source'):\n"
            "    importlib.import_module(f'phalanx.spark.{name}')\n"
            "print(*[name for name in sys.modules if name.startswith('phalanx.')])"
        )
        child = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
        )
        assert child.returncode == 0, child.stderr
        loaded = set(child.stdout.split())
        assert "phalanx.spark.planner" in loaded
        for name in ("spark.writer", "spark.alter", "table.table", "table.transaction"):
            assert f"phalanx.{name}" not in loaded


def error_of(op, **arguments):
    reply = json.loads(answer(json.dumps({"op": op, **arguments}).encode()))
    return reply["error"]["message"]


class TestErrors:
    @pytest.mark.parametrize(
        ("op", "arguments", "message"),
        [
            ("nothing", {}, "there is no operation 'nothing'"),
            ("ping", {}, "ping lacks the key 'zone'"),
            ("ping", {"zone": "UTC", "x": 1}, "ping has the unknown key 'x'"),
            ("ping", {"zone": None}, "ping.zone is NoneType, not str"),
            ("drop_table", {"zone": "", "catalog": catalog()}, "drop_table lacks the key 'ident'"),
            (
                "list_tables",
                {"zone": "", "catalog": catalog(warehouse=1), "namespace": []},
                "list_tables.catalog.confs.warehouse is int, not str",
            ),
            (
                "list_tables",
                {"zone": "", "catalog": catalog(), "namespace": "a.b"},
                "list_tables.namespace is str, not a list",
            ),
            (
                "partition_keys",
                {"zone": "", "filters": [], "table": {"uri": "", "version": True}},
                "partition_keys.table.version is bool, not int",
            ),
        ],
    )
    def test_they_name_the_operation_and_the_key(self, op, arguments, message):
        assert error_of(op, **arguments).startswith(f"Phalanx failed: BadRequest: {message} (")

    def test_they_tell_no_secret(self):
        options = catalog(**{"storage.secret_access_key": "hush"})
        said = error_of("load_table", zone="UTC", catalog=options, ident=["a", "b"], more="hush")
        assert "hush" not in said
        said = error_of("load_table", zone="UTC", catalog=options, ident=["a", "b"])
        assert "has no warehouse" in said


@dataclass(frozen=True, kw_only=True)
class Example(Request):
    target: Handle | Stage
    numbers: Sequence[int] = ()
    message: bytes | None = None
    share: float = 1.0
    nested: Mapping[str, Any] | None = None


HANDLE = {"uri": "u", "version": 1, "transaction": "t"}
STAGE = {"uri": "u", "head": {"a": "b"}, "options": None, "started": 1}


class TestBuild:
    def test_typed(self):
        built = build(
            Example,
            {
                "zone": "UTC",
                "target": HANDLE,
                "numbers": [1, 2],
                "message": base64.b64encode(b"xy").decode(),
                "nested": {"a": [1, {"b": None}]},
            },
            "example",
        )
        assert built == Example(
            zone="UTC",
            target=Handle("u", 1, "t"),
            numbers=(1, 2),
            message=b"xy",
            nested={"a": [1, {"b": None}]},
        )

    def test_one_of_two(self):
        built = build(Example, {"zone": "UTC", "target": STAGE, "share": 2}, "example")
        assert built.target == Stage("u", {"a": "b"}, None, 1)
        assert built.share == 2

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"target": {"uri": "u"}}, r"example.target lacks the key 'version'"),
            ({"target": None}, r"example.target is not an object"),
            ({"target": {**STAGE, "x": 1}}, r"example.target has the unknown key 'x'"),
            ({"target": HANDLE, "numbers": [1, "2"]}, r"example.numbers\[1\] is str, not int"),
            ({"target": HANDLE, "message": 1}, r"example.message is int, not bytes in base64"),
            ({"target": HANDLE, "nested": []}, r"example.nested is list, not an object"),
        ],
    )
    def test_what_does_not_fit(self, values, message):
        with pytest.raises(BadRequest, match=message):
            build(Example, {"zone": "UTC", **values}, "example")
