"""Where a catalog's tables are, without Spark."""

import uuid

import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput
from phalanx.spark.warehouse import Warehouse

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(params=["disk", "s3"])
def warehouse(request, tmp_path):
    if request.param == "disk":
        return Warehouse({"warehouse": str(tmp_path)})
    options = request.getfixturevalue("s3_options")
    settings = {f"storage.{key}": value for key, value in options.items()}
    return Warehouse({"warehouse": f"s3://lake/{uuid.uuid4().hex}", **settings})


def create(warehouse, *ident):
    at = warehouse.location(ident)
    phalanx.create(at.uri, SCHEMA, [], storage_options=at.options)


def test_namespaces_and_tables(warehouse):
    warehouse.create_namespace(["a"], {"team": "us"})
    warehouse.create_namespace(["a", "b"], {})
    create(warehouse, "a", "t")
    create(warehouse, "a", "b", "u")
    assert warehouse.namespaces([]) == ["a", "default"]
    assert warehouse.namespaces(["a"]) == ["b"]
    assert warehouse.tables(["a"]) == ["t"]
    assert warehouse.tables(["a", "b"]) == ["u"]
    assert warehouse.tables([]) == []
    assert warehouse.namespace_properties(["a"])["team"] == "us"


def test_what_exists(warehouse):
    assert warehouse.namespace_exists([])
    assert warehouse.namespace_exists(["default"])
    assert not warehouse.namespace_exists(["a"])
    warehouse.create_namespace(["a"], {})
    create(warehouse, "a", "t")
    assert warehouse.namespace_exists(["a"])
    assert not warehouse.namespace_exists(["a", "t"])


def test_drop(warehouse):
    warehouse.create_namespace(["a"], {})
    create(warehouse, "a", "t")
    warehouse.drop_namespace(["a"])
    assert not warehouse.namespace_exists(["a"])
    assert warehouse.namespaces([]) == ["default"]


def test_the_place_of_a_table(tmp_path):
    warehouse = Warehouse({"warehouse": str(tmp_path)})
    assert warehouse.location(["a", "t"]).uri == str(tmp_path / "a" / "t")
    assert warehouse.location([str(tmp_path / "x")]).uri == str(tmp_path / "x")


@pytest.mark.parametrize("name", ["", "..", ".x", "_x", "a/b", "a\\b", "x\0"])
def test_impossible_names(tmp_path, name):
    with pytest.raises(InvalidInput, match="is no name"):
        Warehouse({"warehouse": str(tmp_path)}).location(["a", name])


def test_without_a_warehouse():
    with pytest.raises(InvalidInput, match="has no warehouse"):
        Warehouse({}).location(["a", "t"])
    assert Warehouse({}).location(["/x/y"]).uri == "/x/y"


def test_options_are_those_of_the_storage():
    assert Warehouse({"warehouse": "x", "storage.region": "r"}).options == {"region": "r"}
    assert Warehouse({"warehouse": "x"}).options is None
