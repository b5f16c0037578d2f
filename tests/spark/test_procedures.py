"""Procedures: what is registered, and how advice is written as statements. No Spark session."""

import ast
import re
from pathlib import Path

import pyarrow as pa
import pytest

import phalanx
from phalanx.spark.procedures import base
from phalanx.spark.procedures.advise import statement
from phalanx.spark.procedures.base import PROCEDURES, Distributed, Invocation, Procedure
from phalanx.spark.tasks import Cluster
from phalanx.spark.warehouse import Warehouse
from phalanx.table.advise import Action
from tests.spark.door import CLUSTER, call, catalog

FOLDER = Path(base.__file__).parent


def invocation(catalog="lake", **arguments):
    return Invocation(catalog, Warehouse({"warehouse": "w"}), arguments, Cluster(2, 1 << 27))


def test_each_file_has_the_procedures_of_its_name():
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "base"}
    modules = {type(one).__module__.rpartition(".")[2] for one in PROCEDURES.values()}
    assert modules == files
    for name, procedure in PROCEDURES.items():
        assert procedure.name == name
        words = "".join(word.title() for word in name.split("_"))
        assert type(procedure).__name__ == f"{words}Procedure"


def test_no_two_classes_of_the_bridge_share_a_name():
    names = [
        node.name
        for path in FOLDER.parents[1].rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    ours = [
        node.name
        for path in FOLDER.parent.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    ]
    assert [name for name in ours if names.count(name) > 1] == []


def test_what_spark_is_told():
    (told,) = [
        one
        for one in call("list_procedures", catalog=catalog())["procedures"]
        if one["name"] == "rollback"
    ]
    assert [parameter["name"] for parameter in told["parameters"]] == ["table", "version"]
    for procedure in PROCEDURES.values():
        assert isinstance(procedure, Procedure)
        assert procedure.parameters[0] is base.TABLE
        assert procedure.description.endswith(".")
        assert set(procedure.result.values()) <= {"BIGINT", "STRING"}
    assert {name for name, one in PROCEDURES.items() if isinstance(one, Distributed)} == {
        "create_index",
        "import_parquet",
        "optimize",
        "refresh_indexes",
        "rewrite",
    }


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action("optimize"), "CALL lake.system.optimize(table => 'db.t')"),
        (
            Action("optimize", {"sort_by": ["a", "b"]}),
            "CALL lake.system.optimize(table => 'db.t', sort_by => 'a, b')",
        ),
        (
            Action("evolve_partitioning", {"partition_by": ["days(ts)", "bucket(4, id)"]}),
            "CALL lake.system.evolve_partitioning(table => 'db.t', "
            "partition_by => 'days(ts), bucket(4, id)')",
        ),
        (
            Action("evolve_partitioning", {"partition_by": [phalanx.expr("col0", ["n"], "m")]}),
            "table.evolve_partitioning([phalanx.expr('col0', ['n'], name='m')])  -- in Python: "
            "SQL cannot name a field that is an expression",
        ),
    ],
)
def test_actions_as_statements(action, expected):
    assert statement(action, invocation(table="db.t")) == expected


def test_names_are_quoted():
    odd = statement(Action("rewrite"), invocation("my `lake", table="/data/it's"))
    assert odd == "CALL `my ``lake`.system.rewrite(table => '/data/it\\'s')"


def test_advice_names_the_catalog_and_the_table_as_the_call_did(tmp_path):
    table = tmp_path / "t"
    schema = pa.schema([("id", pa.int64()), ("country", pa.string())])
    phalanx.create(table, schema, ["country"]).append(
        [{"id": n, "country": "AB"[n % 2]} for n in range(6)]
    )
    reply = call(
        "call_procedure",
        catalog=catalog("other"),
        name="advise",
        arguments={"table": str(table)},
        cluster=CLUSTER,
    )
    *_, evolve, rewrite = [row[0].strip() for row in reply["rows"]]
    assert re.match(r"CALL other\.system\.evolve_partitioning\(table => '/", evolve)
    assert rewrite == f"CALL other.system.rewrite(table => '{table}')"
