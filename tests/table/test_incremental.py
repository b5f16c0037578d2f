"""What each version has added, told from what it changed and what it only moved."""

import datetime as dt

import lance
import pyarrow as pa
import pytest
from lance.optimize import Compaction

import phalanx
from phalanx import CorruptTable, TableNotFound
from phalanx.storage.leaf import Leaf, open_leaf
from phalanx.table.incremental import Portion, cut, everything, steps
from phalanx.transaction.snapshot import Snapshot

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


@pytest.fixture
def table(root):
    """Version 2 has rows 1 to 3 in the partitions a and b."""
    table = phalanx.create(root, SCHEMA, ["part"])
    table.append([row(1), row(2), row(3, "b")])
    return table


def row(id, part="a"):
    return {"id": id, "part": part}


def added(table, version):
    """The ids of the rows that a version has added, None where it changed others."""
    (step,) = steps(Snapshot.latest(table._snapshot.location), version, version)
    return None if step.added is None else ids(table, step.added)


def ids(table, portions):
    location, found = table._snapshot.location, []
    for portion in portions:
        fragments = portion.fragments and [fragment.id for fragment in portion.fragments]
        leaf = Leaf(location, portion.row.location, table._snapshot.head.schema)
        for batch in leaf.scan(portion.row.read_version, ["id"], None, fragments=fragments):
            found += batch.column("id").to_pylist()
        assert leaf.count(portion.row.read_version, None, fragments) == portion.rows
    return sorted(found)


def test_rows_that_are_appended(table):
    table.append([row(4), row(5, "c"), row(6, None)])
    assert added(table, 1) == []
    assert added(table, 2) == [1, 2, 3]
    assert added(table, 3) == [4, 5, 6]


def test_all_versions_one_after_the_other(table):
    table.append([row(4)])
    table.tag("here")
    table.append([row(5, "c")])
    found = list(steps(Snapshot.latest(table._snapshot.location), 1, table.version))
    assert [step.last for step in found] == [1, 2, 3, 4, 5]
    assert [step.operation for step in found] == ["create", "append", "append", "tag", "append"]
    assert [ids(table, step.added) for step in found] == [[], [1, 2, 3], [4], [], [5]]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.delete("id = 1"),
        lambda t: t.delete("part = 'b'"),
        lambda t: t.update({"id": "id + 10"}, "id = 1"),
        lambda t: t.update({"part": "'b'"}, "id = 1"),
        lambda t: t.merge([row(1), row(7)], ["id"]),
        lambda t: t.overwrite([row(1)]),
        lambda t: t.overwrite([row(7)], mode="partitions"),
        lambda t: t.overwrite([row(1)], where="id = 1"),
        lambda t: t.rollback(1),
    ],
)
def test_a_version_that_changes_rows(table, change):
    change(table)
    assert added(table, 3) is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: t.delete("id = 99"), []),
        (lambda t: t.merge([row(7), row(8, "c")], ["id"]), [7, 8]),
        (lambda t: t.rollback(2), []),
        (lambda t: t.tag("x"), []),
        (lambda t: t.set_properties({"x": "y"}), []),
        (lambda t: t.append([]), []),
        (lambda t: t.expire_snapshots(dt.timedelta(0)), []),
    ],
)
def test_a_version_that_changes_none(table, change, expected):
    change(table)
    assert table.version == 3
    assert added(table, 3) == expected


def test_an_overwrite_of_nothing_adds_rows(root):
    table = phalanx.create(root, SCHEMA)
    table.overwrite([row(1)])
    assert added(table, 2) == [1]


def test_rows_that_come_back_are_not_added(table):
    table.delete("part = 'b'")
    table.rollback(2)
    assert added(table, 4) is None
    table.rollback(3)
    with table.transaction() as tx:  # a leaf that is new in this version, with rows of an old one
        tx.rollback(2)
        tx.append([row(4)])
    assert added(table, 6) is None


def test_a_change_and_an_append_in_one(table):
    with table.transaction() as tx:
        tx.append([row(4)])
        tx.delete("id = 4")
    assert added(table, 3) is None
    with table.transaction() as tx:
        tx.append([row(5)])
        tx.append([row(6, "b")])
    assert added(table, 4) == [5, 6]


def test_upkeep_adds_nothing(table):
    table.append([row(4)])
    table.optimize()
    assert table.version == 4
    assert added(table, 4) == []
    table.append([row(5)])
    assert added(table, 5) == [5]
    table.evolve_partitioning(["bucket(2, id)"])
    table.append([row(6)])
    table.rewrite()
    assert table.version == 8
    assert table.snapshots().column("operation").to_pylist()[-1] == "rewrite"
    assert [added(table, version) for version in (6, 7, 8)] == [[], [6], []]


class Compact:
    """Puts the fragments of the leaf a into one, as an upkeep does."""

    def __init__(self, name):
        self.name = name

    def run(self, view):
        leaves = view.base.leaves
        row = next(leaves.row(i) for i in range(len(leaves)) if leaves.row(i).keys == ("a",))
        data = open_leaf(view.base.location, row.location, row.read_version)
        done = [task.execute(data) for task in Compaction.plan(data, {}).tasks]
        assert done
        groups = [
            lance.LanceOperation.RewriteGroup(part.original_fragments, part.new_fragments)
            for part in done
        ]
        made = lance.LanceDataset.commit(
            data,
            lance.LanceOperation.Rewrite(groups, []),
            read_version=data.version,
            detached=True,
        )
        place = view.place(leaves.specs[row.spec_id], row.keys)
        work = view._work(place)
        work.version, work.fragment_count = int(made.version), 1
        view._touched(place)


def test_versions_that_are_taken_together(table):
    """What changes or moves rows stands alone; the rest is what it is one by one."""
    table.append([row(4)])
    table.tag("here")
    table.append([row(5, "c")])
    table.optimize()
    table.append([row(6)])
    table.delete("id = 1")
    table.append([row(7)])
    table.append([row(8)])
    newest = Snapshot.latest(table._snapshot.location)
    found = [
        (step.first, step.last, step.added and ids(table, step.added))
        for step in steps(newest, 2, table.version, together=True)
    ]
    assert found == [
        (2, 5, [1, 2, 3, 4, 5]),
        (6, 6, ()),
        (7, 7, [6]),
        (8, 8, None),
        (9, 10, [7, 8]),
    ]


def test_rows_that_were_moved_by_somebody_else_count_as_changed(table):
    """It is not known then that none was changed."""
    table.append([row(4)])
    with table.transaction() as tx:
        tx._transaction.run(Compact("unheard of"))
    assert added(table, 4) is None


def test_what_a_weak_table_was_nobody_knows(root):
    """Its leaves are read as they are now: rows of later versions would be among them."""
    table = phalanx.create(root, SCHEMA, ["part"], transactions="weak")
    table.append([row(1)])
    table.make_strong()
    table.append([row(2)])
    assert added(table, 2) is None
    assert added(table, 3) is None
    assert added(table, 4) == [2]


def test_versions_that_have_expired(table):
    table.append([row(4)])
    table.append([row(5)])
    table.vacuum(dt.timedelta(0), force=True)
    for version in (3, 4):  # what version 4 has added cannot be told without version 3
        with pytest.raises(TableNotFound, match=r"version 3 .* has expired"):
            added(table, version)
    table.append([row(6)])
    assert added(table, 6) == [6]


def test_all_rows_of_a_version_by_files(table):
    for number in range(4, 8):
        table.append([row(number)])
    table.append([row(8, "b")])
    snapshot = Snapshot.latest(table._snapshot.location)
    location = snapshot.location

    def files(first, last):
        skipped, portions = everything(snapshot, first)
        return ids(table, cut(location, portions, first - skipped, last - skipped))

    assert files(0, 100) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert files(0, 1) == [1, 2]
    assert files(1, 3) == [4, 5]
    assert files(4, 6) == [3, 7]
    assert files(6, 7) == [8]
    assert files(7, 100) == []
    assert everything(snapshot, 5)[0] == 5


def test_a_miscounted_leaf_is_not_cut(table):
    table.append([row(4)])
    location = table._snapshot.location
    leaf = Portion.whole(location, table._snapshot.leaves.row(0))
    wrong = Portion(leaf.row, leaf.files + 1, leaf.rows, leaf.bytes)
    with pytest.raises(CorruptTable, match="has 2 fragments, and the manifest says 3"):
        list(cut(location, [wrong], 0, 1))


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.rename_column("part", "land").add_column("n", pa.int64()),
        lambda table: table.add_column("n", pa.int64(), default=7),
        lambda table: (
            table.add_column("f", pa.float32()).append([row(9, "z")]).change_type("f", pa.float64())
        ),
    ],
    ids=["described anew", "written anew for a default", "written anew for a type"],
)
def test_rows_that_come_after_a_change_of_the_schema(table, change):
    """They may make a leaf be written anew: only they are added."""
    change(table)
    before = table.version
    name = table.schema.names[1]
    table.append([{"id": 4, name: "a"}, {"id": 5, name: "z"}])
    table.append([{"id": 6, name: "a"}])
    assert added(table, before) == []
    assert added(table, before + 1) == [4, 5]
    assert added(table, before + 2) == [6]
    newest = Snapshot.latest(table._snapshot.location)
    together = list(steps(newest, before + 1, before + 2, together=True))
    assert [ids(table, step.added) for step in together] == [[4, 5, 6]]


def test_rows_that_are_replaced_by_as_many(table):
    table.overwrite([row(7), row(8), row(9, "b")])
    assert added(table, 3) is None
