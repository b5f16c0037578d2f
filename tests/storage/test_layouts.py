"""Layouts: where leaves are placed."""

import datetime as dt

import pyarrow as pa
import pytest

import phalanx
from phalanx.model.schema import TableSchema
from phalanx.model.specs import build_spec
from phalanx.storage.head import Head
from phalanx.storage.layouts import layout_of
from phalanx.storage.location import Location

SCHEMA = TableSchema.assign(pa.schema([("id", pa.int64()), ("part", pa.string())]))


def head_of(layout):
    spec = layout_of({"layout": layout}).adapted(build_spec(1, ["part"], SCHEMA), SCHEMA)
    return Head.first(SCHEMA, spec, dt.datetime.now(dt.UTC), "strong")


@pytest.mark.parametrize("layout", ["flat", "hive"])
@pytest.mark.parametrize("key", ["a", "a/b", "..", "", None, "$", "é😀"])
class TestEveryLayout:
    def test_the_same_values_have_the_same_place_inside_the_root(self, layout, key, tmp_path):
        head, ways = head_of(layout), layout_of({"layout": layout})
        leaf = f"v1$name{key!r}".replace("$$", "") + "$dataset"
        folder = ways.folder(head, head.spec, (key,), leaf)
        assert folder == ways.folder(head, head.spec, (key,), leaf)
        assert Location(tmp_path).child(folder).startswith(f"{tmp_path}/")

    def test_a_leaf_is_found_by_its_folder(self, layout, key, root):
        data = pa.table({"id": [1], "part": pa.array([key], pa.string())})
        table = phalanx.create(root, data.schema, ["part"], layout=layout).append(data)
        head, ways = table._snapshot.head, layout_of({"layout": layout})
        (row,) = table._snapshot.leaves.rows()
        assert ways.leaf_folders(table._snapshot.location, head) == [row.location]
        assert ways.leaf_in(row.location, head) == row.object_id


def test_an_unknown_layout_is_refused():
    with pytest.raises(phalanx.InvalidInput, match="layout is 'flat' or 'hive', not 'round'"):
        layout_of({"layout": "round"})


def test_only_paths_say_values():
    flat, hive = (layout_of({"layout": name}) for name in ("flat", "hive"))
    assert flat.keys_in("part=a.lance", head_of("flat")) is None
    assert hive.keys_in("part=a%2Fb.lance", head_of("hive")) == ("a/b",)
    for other in ("part=a", "other=a.lance", "part=a/part=b.lance", "part=%FF.lance", "x"):
        assert hive.keys_in(other, head_of("hive")) is None
        assert hive.leaf_in(other, head_of("hive")) is None
