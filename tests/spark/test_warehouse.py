"""Where a catalog's tables are, without Spark."""

import uuid

import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput
from phalanx.spark.warehouse import Warehouse, parts_of

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(params=["disk", "s3", "gs"])
def warehouse(request, tmp_path):
    if request.param == "disk":
        return Warehouse({"warehouse": str(tmp_path)})
    options = request.getfixturevalue(f"{request.param}_options")
    settings = {f"storage.{key}": value for key, value in options.items()}
    return Warehouse({"warehouse": f"{request.param}://lake/{uuid.uuid4().hex}", **settings})


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


def test_names_with_signs_that_uris_have_for_other_things(warehouse):
    """A store's URI is decoded, and ends at `#` and `?`."""
    names = ["a", "a b", "a#b", "a%20b", "a?b", "ü%"]
    for name in names:
        warehouse.create_namespace([name], {"it is": name})
        create(warehouse, "a", name)
        assert warehouse.existing(["a", name]).uri == warehouse.location(["a", name]).uri
    assert warehouse.namespaces([]) == sorted([*names, "default"])
    assert warehouse.tables(["a"]) == names
    assert {warehouse.namespace_properties([name])["it is"] for name in names} == set(names)
    warehouse.drop_namespace(["a#b"])
    assert warehouse.namespaces([]) == sorted({*names, "default"} - {"a#b"})
    assert warehouse.tables(["a"]) == names


def test_the_place_of_a_table(tmp_path):
    warehouse = Warehouse({"warehouse": str(tmp_path)})
    assert warehouse.location(["a", "t"]).uri == str(tmp_path / "a" / "t")
    assert warehouse.location([str(tmp_path / "x")]).uri == str(tmp_path / "x")


@pytest.mark.parametrize("name", ["", "..", ".x", "_x", "a/b", "a\\b", "x\0"])
def test_impossible_names(tmp_path, name):
    with pytest.raises(InvalidInput, match="is not a name"):
        Warehouse({"warehouse": str(tmp_path)}).location(["a", name])


@pytest.mark.parametrize("name", ["", "..", ".x", "_x", "a/b", "a\\b", "x\0"])
def test_an_impossible_name_is_not_found(tmp_path, name):
    warehouse = Warehouse({"warehouse": str(tmp_path)})
    assert list(warehouse.places(["a", name])) == []
    assert warehouse.existing([name, "t"]) is None
    assert not warehouse.namespace_exists([name])


def test_names_by_case(warehouse):
    warehouse.create_namespace(["Db"], {})
    create(warehouse, "Db", "Events")
    place = warehouse.location(["Db", "Events"]).uri
    assert warehouse.existing(["dB", "EVENTS"]).uri == place
    assert warehouse.tables(["DB"]) == ["Events"]
    assert warehouse.new(["db", "other"]) == ["Db", "other"]
    for name in (["DB", "eventS"], ["db"]):
        with pytest.raises(InvalidInput, match="differ in case alone"):
            warehouse.new(name)


def test_names_by_case_where_case_counts(tmp_path):
    warehouse = Warehouse({"warehouse": str(tmp_path)}, case_sensitive=True)
    create(warehouse, "Db", "T")
    assert warehouse.existing(["Db", "T"]) is not None
    assert warehouse.existing(["Db", "t"]) is None
    with pytest.raises(InvalidInput, match="differ in case alone"):
        warehouse.new(["Db", "t"])


def test_names_that_only_case_tells_apart(tmp_path):
    """As two writers at the same time, or another tool, may leave them."""
    warehouse = Warehouse({"warehouse": str(tmp_path)})
    create(warehouse, "db", "tab")
    create(warehouse, "db", "TAB")
    assert warehouse.existing(["db", "TAB"]).uri == str(tmp_path / "db" / "TAB")
    with pytest.raises(InvalidInput, match="may be any of TAB, tab"):
        warehouse.existing(["db", "Tab"])


def test_the_name_of_the_catalog(tmp_path):
    warehouse = Warehouse({"warehouse": str(tmp_path)}, name="lake")
    assert warehouse.within(["lake", "db", "t"]) == ["db", "t"]
    assert warehouse.within(["db", "t"]) == ["db", "t"]
    assert warehouse.within(["lake"]) == ["lake"]
    warehouse.create_namespace(["lake"], {})
    assert warehouse.within(["lake", "t"]) == ["lake", "t"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [("a.b", ["a", "b"]), ("`a.b`.c", ["a.b", "c"]), ("`a``b`", ["a`b"]), ("t", ["t"])],
)
def test_parts_of_a_name(text, parts):
    assert parts_of(text) == parts


@pytest.mark.parametrize("text", ["", "a..b", "a.", "`a", "`a`b", ".a"])
def test_what_is_no_name(text):
    with pytest.raises(InvalidInput, match="is not the name of a table"):
        parts_of(text)


def test_properties_of_a_namespace(warehouse):
    warehouse.create_namespace(["a"], {"x": "1", "y": "2"})
    warehouse.alter_namespace(["a"], {"x": None, "z": "3"})
    properties = warehouse.namespace_properties(["a"])
    assert {key: properties[key] for key in properties if key != "location"} == {"y": "2", "z": "3"}


def test_relations(warehouse):
    warehouse.create_namespace(["a"], {})
    relations = warehouse.relations(["A"])
    names = ["plain", "Ünïcode täble", "with.dot", "a_b"]
    for name in names:
        assert relations.create(name, {"kind": "view", "of": name})
        assert not relations.create(name, {"kind": "view"})
    assert warehouse.views(["a"]) == sorted(names)
    assert warehouse.relation(["a", "PLAIN"], "view") == (["a", "plain"], relations.read("plain"))
    assert warehouse.relation(["a", "plain"], "table") is None
    assert relations.remove("plain")
    assert not relations.remove("plain")
    assert warehouse.namespaces(["a"]) == []


def test_without_a_warehouse():
    with pytest.raises(InvalidInput, match="has no warehouse"):
        Warehouse({}).location(["a", "t"])
    assert Warehouse({}).location(["/x/y"]).uri == "/x/y"


def test_options_are_those_of_the_storage():
    assert Warehouse({"warehouse": "x", "storage.region": "r"}).options == {"region": "r"}
    assert Warehouse({"warehouse": "x"}).options is None
