"""Fields inside lists and maps that change, in a table."""

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput
from tests.table.operations.evolve.columns import column, ids, leaves

POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("part", pa.string()),
        ("a", pa.list_(POINT)),
        ("m", pa.map_(pa.string(), POINT)),
    ]
)
ROWS = [
    {"id": 1, "part": "a", "a": [{"x": 1, "y": "one"}, None], "m": [("k", {"x": 1, "y": None})]},
    {"id": 2, "part": "b", "a": [], "m": []},
    {"id": 3, "part": "b", "a": None, "m": None},
]


@pytest.fixture
def table(root):
    return phalanx.create(root, SCHEMA, ["part"]).append(ROWS)


@pytest.mark.parametrize(
    ("change", "elements"),
    [
        (lambda t: t.add_column("a.element.l", "int32"), {"x": 1, "y": "one", "l": None}),
        (lambda t: t.drop_column("a.element.x"), {"y": "one"}),
        (lambda t: t.rename_column("a.element.y", "z"), {"x": 1, "z": "one"}),
        (lambda t: t.change_type("a.element.x", "int64"), {"x": 1, "y": "one"}),
        (lambda t: t.move_column("a.element.y", first=True), {"y": "one", "x": 1}),
    ],
)
def test_one_snapshot_each(table, change, elements):
    before = leaves(table)
    change(table)
    assert table.version == 3
    assert leaves(table) == before
    assert column(table, "a") == {1: [elements, None], 2: [], 3: None}
    assert ids(table, "a IS NULL") == [3]
    assert ids(table, "a IS NOT NULL") == [1, 2]
    assert column(phalanx.open(table.uri, version=2), "m")[1] == [("k", {"x": 1, "y": None})]
    assert phalanx.open(table.uri, version=2).to_arrow().schema == SCHEMA
    assert table.check().ok


def test_dropped_and_added_again(table):
    for path in ("a.element.x", "m.value.x"):
        table.drop_column(path)
        table.add_column(path, pa.int32())
    table.append([{"id": 4, "part": "b", "a": [{"x": 4}], "m": [("k", {"x": 4})]}])
    assert column(table, "a") == {
        1: [{"y": "one", "x": None}, None],
        2: [],
        3: None,
        4: [{"y": None, "x": 4}],
    }
    assert column(table, "m")[1] == [("k", {"y": None, "x": None})]
    assert column(table, "m")[4] == [("k", {"y": None, "x": 4})]


def test_rows_are_changed_after_it(table):
    """Updates, merges, deletes and upkeep see old and new files alike."""
    table.add_column("m.value.l", pa.int64())
    table.add_column("a.element.l", pa.list_(pa.int64()))
    table.merge([{"id": 2, "part": "b", "a": [{"x": 2, "l": [7]}]}], "id")
    table.update({"part": "'c'"}, "id = 1")
    table.append([{"id": 5, "part": "a", "m": [("n", {"l": 5})]}])
    table.delete("id = 3")
    a = {1: [{"x": 1, "y": "one", "l": None}, None], 2: [{"x": 2, "y": None, "l": [7]}], 5: None}
    m = {
        1: [("k", {"x": 1, "y": None, "l": None})],
        2: [],
        5: [("n", {"x": None, "y": None, "l": 5})],
    }
    for upkeep in (lambda: None, table.optimize, table.rewrite):
        upkeep()
        assert column(table, "a") == a
        assert column(table, "m") == m
    assert table.check().ok
    # Upkeep publishes what rows are now, also for those who read leaves with Lance alone.
    plain = [
        row for leaf in leaves(table) for row in lance.dataset(leaf["uri"]).to_table().to_pylist()
    ]
    assert {row["id"]: row["m"] for row in plain} == m


def test_a_default_with_fields_inside(table):
    table.add_column("d", pa.list_(POINT), default=[{"x": 1, "y": "d"}])
    table.rename_column("d.element.y", "z")
    table.add_column("d.element.l", pa.int32())
    table.append([{"id": 4, "part": "a"}])
    assert column(table, "d") == {key: [{"x": 1, "z": "d", "l": None}] for key in range(1, 5)}


def test_rollback_and_ids(table):
    table.add_column("a.element.l", pa.int32())
    table.rollback(2)
    table.add_column("a.element.l", pa.string())
    table.append([{"id": 4, "part": "a", "a": [{"l": "text"}]}])
    assert column(table, "a")[4] == [{"x": None, "y": None, "l": "text"}]


def test_refused(table):
    for change, message in [
        (lambda: table.add_column("m.key.x", "int32"), "has no fields"),
        (lambda: table.add_column("a.l", "int32"), "has no fields"),
        (lambda: table.drop_column("a.element"), "only its type can change"),
        (lambda: table.change_type("m.key", "int64"), "keys of a map"),
        (lambda: table.scan(where="a.element.x = 1"), "unknown column"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            change()
    assert phalanx.open(table.uri).version == 2
