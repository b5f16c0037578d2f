"""The partition tree: sizes are those of the leaves, level by level."""

import numpy as np
import pyarrow as pa
import pytest

import phalanx
from phalanx.errors import InvalidInput
from phalanx.table.tree import PartitionTree


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    schema = pa.schema([("id", pa.int64()), ("country", pa.string()), ("n", pa.int32())])
    table = phalanx.create(tmp_path_factory.mktemp("tree") / "t", schema, ["country", "n"])
    rows = [{"id": i, "country": c, "n": i % 2} for i in range(6) for c in ("DE", "US", None)]
    table.append([*rows, *({"id": i, "country": "US", "n": 7} for i in range(500))])
    table.evolve_partitioning(["n"])
    return table.append([{"id": 1, "country": "DE", "n": -3}])


@pytest.fixture(scope="module")
def tree(table):
    return PartitionTree(table._snapshot)


def test_one_root_for_each_spec(table, tree):
    first, second = tree.roots()
    assert (first.name, first.leaves, first.rows) == ("spec v1", 7, 518)
    assert (second.name, second.leaves, second.rows) == ("spec v2", 1, 1)
    assert first.bytes + second.bytes == sum(table.partitions()["bytes"].to_pylist())
    assert first.files == 7
    assert not first.is_leaf


def test_children_are_in_the_order_of_their_values(tree):
    root = tree.roots()[0]
    nodes = tree.children(root).nodes
    assert [node.value for node in nodes] == [None, "DE", "US"]
    assert [node.name for node in nodes][:2] == ["country=NULL", "country=DE"]
    assert [node.rows for node in nodes] == [6, 6, 506]
    assert [node.leaves for node in nodes] == [2, 2, 3]
    below = tree.children(nodes[2]).nodes
    assert [(node.value, node.rows, node.is_leaf) for node in below] == [
        ("0", 3, True),
        ("1", 3, True),
        ("7", 500, True),
    ]
    assert tree.children(below[0]).nodes == ()


def test_skew(tree):
    germany, states = tree.children(tree.roots()[0]).nodes[1:]
    assert germany.skew == 1
    assert states.skew > 2
    assert tree.children(germany).nodes[0].skew is None


def test_only_the_largest_are_kept(tree):
    root = tree.roots()[0]
    shown = tree.children(root, by="rows", limit=1)
    assert [node.value for node in shown.nodes] == ["US"]
    assert (shown.more, shown.rest["rows"], shown.rest["leaves"]) == (2, 12, 4)


def test_a_node_is_found_again(tree):
    states = tree.children(tree.roots()[0]).nodes[2]
    assert tree.node(states.leaf, states.depth) == states
    last = tree.children(states).nodes[-1]
    assert [node.name for node in tree.path(last.leaf, 2)] == ["spec v1", "country=US", "n=7"]


def test_what_a_plan_selects(table):
    plan = table.scan(where="country = 'US'").plan()
    selected = np.zeros(plan.total, bool)
    selected[plan.indices] = True
    first, second = PartitionTree(table._snapshot, selected).roots()
    assert (first.selected, first.selected_rows, first.leaves) == (3, 506, 7)
    assert (second.selected, second.leaves) == (1, 1)  # its spec says nothing about countries


def test_there_is_no_such_node(tree):
    for leaf, depth in ((-1, 0), (10_000, 0), (0, 3), (0, -1)):
        with pytest.raises(InvalidInput):
            tree.node(leaf, depth)
    with pytest.raises(InvalidInput, match="rows, bytes"):
        tree.children(tree.roots()[0], by="color")


def test_a_table_without_partitions(root):
    table = phalanx.create(root, pa.schema([("id", pa.int64())]))
    assert PartitionTree(table._snapshot).roots() == []
    (node,) = PartitionTree(table.append({"id": [1]})._snapshot).roots()
    assert (node.leaves, node.rows, node.is_leaf, node.selected) == (1, 1, True, 1)


def test_sizes_that_nobody_knows(root):
    table = phalanx.create(root, pa.schema([("k", pa.string())]), ["k"], transactions="weak")
    (node,) = PartitionTree(table.append({"k": ["a", "b"]})._snapshot).roots()
    assert (node.leaves, node.unknown, node.skew) == (2, 2, None)
    assert (node.rows, node.bytes) == (0, 0)


def test_all_levels_at_once(tree):
    root = tree.roots()[0]
    top = tree.branch(root)
    assert [branch.node for branch in top.children] == list(tree.children(root).nodes)
    for branch in top.children:
        below = tree.children(branch.node).nodes
        assert [child.node for child in branch.children] == list(below)
        assert branch.more == 0


def test_what_is_too_small_is_added_up(tree):
    top = tree.branch(tree.roots()[0], smallest=0.5)
    (states,) = top.children
    assert (states.node.value, top.more, top.rest["rows"]) == ("US", 2, 12)
    (large,) = states.children
    assert (large.node.rows, states.more, states.rest["leaves"]) == (500, 2, 2)
    top = tree.branch(tree.roots()[0], by="leaves", most=1)
    assert [branch.node.value for branch in top.children] == ["US"]
    assert top.more == 2
    # Equally large ones are left out together.
    assert tree.branch(tree.roots()[0], by="leaves", most=2).more == 2


def test_small_leaves_are_counted(table):
    largest = max(table.partitions()["bytes"].to_pylist())
    first = PartitionTree(table._snapshot, small_bytes=largest).roots()[0]
    assert (first.small, first.leaves) == (6, 7)
