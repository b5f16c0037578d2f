"""What the page asks: sums are those of the table, and large tables are answered at once."""

import json
import time

import pyarrow as pa
import pytest

import phalanx
from phalanx.errors import InvalidInput, TableNotFound
from phalanx.explore.views import Views
from tests.explore.conftest import HOSTILE
from tests.interop.earlier_tables import appendix_c
from tests.interop.trees import write_leaf


@pytest.fixture(scope="module")
def views(table):
    return Views(table)


def nodes_of(branch):
    yield branch
    for child in branch["children"]:
        yield from nodes_of(child)


def test_table(views):
    facts = views.table()
    assert (facts["version"], facts["rows"], facts["leaves"]) == (6, 27, 13)
    assert facts["tags"] == {"first": 2}
    assert views.table(2)["partition_by"] == ["year(ts)", "month(ts)", "country"]
    assert views.table(2)["newest"] == 6
    with pytest.raises(TableNotFound):
        views.table(99)


def test_tree(views):
    answer = views.tree()
    first, second = answer["branches"]
    assert (first["rows"], second["rows"]) == (24, 3)
    assert [(level["spec"], level["field"], level["nodes"]) for level in answer["levels"]] == [
        (1, "ts_year", 1),
        (1, "ts_month", 3),
        (1, "country", 12),
        (2, "country", 1),
    ]
    (year,) = first["children"]
    assert [month["value"] for month in year["children"]] == ["1", "2", "3"]
    countries = year["children"][0]["children"]
    assert [country["value"] for country in countries] == [None, HOSTILE, "DE", "US"]
    assert countries[0]["is_leaf"]


def test_a_part_of_the_tree(views):
    month = views.tree()["branches"][0]["children"][0]["children"][1]
    answer = views.tree(leaf=month["leaf"], depth=month["depth"])
    assert [node["value"] for node in answer["path"]] == [None, "2025", "2"]
    (branch,) = answer["branches"]
    assert branch["rows"] == 8
    assert len(branch["children"]) == 4
    with pytest.raises(InvalidInput):
        views.tree(leaf=10**6)
    with pytest.raises(InvalidInput):
        views.tree(by="color")


def test_leaves_go_dark_one_field_at_a_time(views):
    where = "ts >= '2025-02-01' AND country = 'US'"
    selected = [
        views.tree(where=where, step=step)["branches"][0]["selected"] for step in (0, 1, 2, 3)
    ]
    assert selected == [12, 12, 8, 2]
    assert views.tree(where=where)["branches"][0]["selected"] == 2
    answer = views.prune(where)
    assert (answer["total"], answer["selected"], answer["rows"]) == (13, 2, 4)
    assert [step["after"] for step in answer["steps"]] == [12, 8, 2, 0]
    assert answer["steps"][-1]["spec"] == 2
    assert answer["pruned"][0]["reason"].startswith("ts_month = 1 does not fit")
    with pytest.raises(InvalidInput):
        views.prune("nope = 1")


def test_rows_of_a_leaf(views, table):
    names = table.partitions().column("country").to_pylist()
    hostile = names.index(HOSTILE)
    answer = views.leaf(hostile, where="country = 'US'")
    assert answer["rows"] == len(answer["cells"]) == 2
    assert [column["name"] for column in answer["columns"]] == ["id", "ts", "country", "note"]
    assert answer["cells"][0][2] == HOSTILE
    assert answer["reason"].startswith("country = ")
    assert views.leaf(0, limit=1)["cells"][0][2] is None  # NULL is not a text
    with pytest.raises(InvalidInput):
        views.leaf(-1)


def test_history(views):
    answer = views.history()
    assert [entry["operation"] for entry in answer["transactions"]] == [
        *("create", "append", "tag", "add column", "evolve partitioning", "append")
    ]
    assert answer["transactions"][1]["tags"] == ["first"]
    assert all(entry["can_open"] for entry in answer["transactions"])
    report = views.diff(2, 6)
    assert (report["added"], report["changed"], report["same"]) == (1, 0, False)
    assert report["columns"] == ["note was added, as string"]


def test_schema_over_time(views):
    answer = views.schema()
    assert [column["id"] for column in answer["columns"]] == [0, 1, 2, 3]
    assert [spec["id"] for spec in answer["specs"]] == [1, 2]
    assert [(change["version"], change["operation"]) for change in answer["changes"]] == [
        (5, "evolve partitioning"),
        (4, "add column"),
        (1, "create"),
    ]
    assert answer["changes"][0]["partition_by"][1] == ["country"]


def test_upkeep(views):
    assert views.check()["ok"]
    assert any(finding["kind"] == "old-spec" for finding in views.advise()["findings"])


def test_it_sees_what_others_write_and_keeps_versions(root):
    table = phalanx.create(root, {"k": ["a"]}, ["k"])
    views = Views(table)
    assert views.table()["rows"] == 1
    phalanx.open(root).append({"k": ["b"]})
    assert (views.table()["rows"], views.table(1)["rows"]) == (2, 1)
    phalanx.open(root).delete("k = 'a'")
    (branch,) = views.tree()["branches"]
    assert [child["value"] for child in branch["children"]] == ["b"]
    (branch,) = views.tree(2)["branches"]
    assert [child["value"] for child in branch["children"]] == ["a", "b"]


def test_a_weak_table(root):
    table = phalanx.create(root, pa.schema([("k", pa.string())]), ["k"], transactions="weak")
    views = Views(table.append({"k": ["a", "b"]}))
    assert not views.table()["has_sizes"]
    (branch,) = views.tree(by="leaves")["branches"]
    assert (branch["leaves"], branch["unknown"]) == (2, 2)
    assert views.leaf(0)["cells"] == [["a"]]
    assert views.prune("k = 'a'")["selected"] == 1
    assert views.schema()["changes"] == []


def test_tables_of_other_clients(tmp_path):
    for country in ("DE", "US"):
        write_leaf(tmp_path / "tree", f"country={country}.lance", [{"id": 1}])
    appendix_c(tmp_path / "earlier").commit()
    for name in ("tree", "earlier"):
        views = Views(phalanx.open(tmp_path / name))
        for question in ("table", "tree", "history", "schema", "advise", "check"):
            json.dumps(getattr(views, question)())
        assert views.leaf(0)["cells"]
        assert views.tree(1, by="leaves")["branches"]
    assert Views(phalanx.open(tmp_path / "tree")).prune("country = 'US'")["selected"] == 1


def test_an_empty_table(root):
    views = Views(phalanx.create(root, pa.schema([("k", pa.string())]), ["k"]))
    assert views.tree()["branches"] == []
    assert views.prune("k = 'a'")["total"] == 0


@pytest.fixture(scope="module")
def large_views(large):
    return Views(large)


class TestManyLeaves:
    def test_the_tree_is_added_up(self, large_views):
        answer = large_views.tree()
        (root,) = answer["branches"]
        assert (root["leaves"], root["rows"]) == (100_000, 110_000_000)
        nodes = list(nodes_of(root))
        assert len(nodes) < 2_000
        # Nothing is lost: what is not drawn is in the sums.
        for node in nodes:
            if node["children"]:
                left = node.get("more", {"rows": 0, "leaves": 0})
                for name in ("rows", "leaves"):
                    assert sum(c[name] for c in node["children"]) + left[name] == node[name]

    def test_answers_are_short_and_fast(self, large_views):
        large_views.tree()
        start = time.monotonic()
        answers = [
            large_views.tree(where="country = 'C03'", step=4),
            large_views.prune("country = 'C03' AND ts >= '2024-06-01'"),
            large_views.table(),
        ]
        # Each takes a tenth of a second or so; the machine may be busy.
        assert time.monotonic() - start < 10
        assert all(len(json.dumps(answer)) < 1_000_000 for answer in answers)
        assert answers[0]["branches"][0]["selected"] == 5_000

    def test_a_leaf_is_reached_by_going_down(self, large_views):
        node = large_views.tree()["branches"][0]
        for _ in range(5):
            node = large_views.tree(leaf=node["leaf"], depth=node["depth"])["branches"][0][
                "children"
            ][0]
        assert node["is_leaf"]
        assert node["leaves"] == 1

    def test_skew_and_small_leaves(self, large_views):
        (root,) = large_views.tree()["branches"]
        assert root["skew"] == 11
        assert root["small"] == 100_000
        levels = large_views.tree()["levels"]
        assert [level["nodes"] for level in levels] == [3, 34, 1_000, 20_000, 100_000]
        assert (levels[-1]["median_bytes"], levels[-1]["largest_bytes"]) == (50_000, 550_000)
