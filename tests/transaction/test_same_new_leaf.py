"""Several writers create the same partition, or one of them dies while it does.

Its first rows are committed on the main branch of the leaf before they are part of the table. Plain
Lance, which looks there, must not see those of a transaction that came to nothing.
"""

import datetime as dt
import os
import shutil
import signal

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError
from phalanx.storage.files import DETACHED, RANDOM
from phalanx.transaction import commit
from tests.transaction.processes import start, together
from tests.transaction.sabotage import failing

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


@pytest.fixture
def table(root):
    return phalanx.create(root, SCHEMA, ["part"])


def row(id, part="new"):
    return {"id": id, "part": part}


def ids(table, where=None):
    return sorted(table.refresh().scan(where=where).to_arrow()["id"].to_pylist())


def ids_at(root, version):
    return sorted(phalanx.open(root, version=version).scan().to_arrow()["id"].to_pylist())


def on_main(root):
    """What plain Lance sees in all leaves that there are, part of the table or not."""
    found = []
    for folder in root.glob("*$dataset"):
        if any((folder / "_versions").glob("1*.manifest")):
            found += lance.dataset(folder).to_table()["id"].to_pylist()
    return sorted(found)


def publish(table):
    """Vacuum, and what plain Lance sees afterwards must be the table."""
    table.vacuum(dt.timedelta(0), force=True)
    assert table.check().problems == []
    found = [
        id
        for uri in table.partitions()["uri"].to_pylist()
        for id in lance.dataset(uri).to_table()["id"].to_pylist()
    ]
    assert sorted(found) == ids(table)


def is_on_main(table):
    (version,) = table.refresh().partitions()["version"].to_pylist()
    return RANDOM <= version < DETACHED


@pytest.fixture
def between(monkeypatch):
    """Do something when the next transaction has committed its leaves, and before its swap."""

    def do(action):
        actions, reach = [action], commit.reach

        def reached(name):
            if name == "commit.leaves-committed" and actions:
                actions.pop()()
            reach(name)

        monkeypatch.setattr(commit, "reach", reached)

    return do


class TestBothLive:
    def test_one_alone(self, root, table):
        table.append([row(1)])
        assert is_on_main(table)
        assert on_main(root) == [1]
        publish(table)

    def test_the_first_one_to_commit_is_the_second_to_land(self, root, table, between):
        def other():
            assert on_main(root) == [1]
            phalanx.open(root).append([row(2)])
            assert on_main(root) == []  # 1 is not part of the table

        between(other)
        table.append([row(1)])
        assert ids(table) == [1, 2]
        assert ids_at(root, 2) == [2]
        assert on_main(root) == []
        publish(table)

    def test_the_first_one_to_commit_lands_first(self, root, table, between):
        """The other one has looked before, and finds the leaf after it has written its own rows."""
        with table.transaction() as tx:
            tx.append([row(1)])
            tx._transaction.view.settle()
            assert on_main(root) == [1]
            other = phalanx.open(root)
            between(lambda: tx._transaction.commit())
            other.append([row(2)])
            assert on_main(root) == [1]
        assert ids(table) == [1, 2]
        assert ids_at(root, 2) == [1]
        publish(table)

    def test_with_anchors_at_every_commit(self, root, between):
        table = phalanx.create(root, SCHEMA, ["part"], properties={"anchor": "commit"})

        def other():
            phalanx.open(root).append([row(2)])
            assert on_main(root) == [2]

        between(other)
        table.append([row(1)])
        assert ids(table) == on_main(root) == [1, 2]
        publish(table)

    def test_one_gives_up(self, root, table, between):
        between(lambda: phalanx.open(root).append([row(2)]))
        with pytest.raises(ConflictError), table.transaction() as tx:  # noqa: PT012
            assert tx.count("part = 'new'") == 0
            tx.append([row(1)])
        assert ids(table) == [2]
        assert on_main(root) == []
        publish(table)

    def test_the_rows_of_one_that_gave_up_in_another_partition(self, root, table, between):
        between(lambda: phalanx.open(root).append([row(2, "seen")]))
        with pytest.raises(ConflictError), table.transaction() as tx:  # noqa: PT012
            assert tx.count("part = 'seen'") == 0
            tx.append([row(1)])
        assert table.refresh().partitions()["part"].to_pylist() == ["seen"]
        table.append([row(3)])
        assert ids(table) == [2, 3]
        assert on_main(root) == [2]
        publish(table)

    def test_a_reader_by_version_is_not_disturbed(self, root, table, between):
        """What one hides on main the other one has landed already, or will land."""
        with table.transaction() as tx:
            tx.append([row(1)])
            tx._transaction.view.settle()
            with pytest.raises(ConflictError), phalanx.open(root).transaction() as other:  # noqa: PT012
                assert other.count() == 0
                other.append([row(2)])
                between(lambda: tx._transaction.commit())
        assert ids(table) == [1]
        assert is_on_main(table)
        assert on_main(root) == [1]
        publish(table)

    def test_processes(self, root, table):
        together(*((append, str(root), worker) for worker in range(4)))
        assert ids(table) == list(range(40))
        assert set(on_main(root)) <= set(range(40))
        publish(table)


def append(uri, worker):
    table = phalanx.open(uri)
    for turn in range(5):
        rows = [row(worker * 10 + turn * 2 + n, f"{turn}-{n}") for n in range(2)]
        table.append(rows)


STEPS = [
    ("write.files-written", 1),
    ("lance.commit.after", 2),  # in a folder for temporary files
    ("leaf.mkdir.after", 1),
    ("leaf.rename.before", 1),
    ("leaf.rename.after", 1),
    ("commit.leaf-committed", 1),
    ("commit.leaves-committed", 1),
    ("lance.merge.before", 1),
]


def die(uri, step, visit, rows):
    with failing(step, "kill", visit):
        phalanx.open(uri).append(rows)


class TestOneDies:
    @pytest.mark.parametrize(("step", "visit"), STEPS)
    def test_and_another_one_comes(self, root, table, step, visit):
        process = start(die, str(root), step, visit, [row(1), row(1, "other")])
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        assert table.check().ok
        assert ids(table) == []
        table.append([row(2)])
        assert ids(table) == [2]
        uri = table.partitions()["uri"][0].as_py()
        assert lance.dataset(uri).to_table()["id"].to_pylist() in ([], [2])
        assert table.check().ok
        table.append([row(3), row(3, "other")])
        assert ids(table) == [2, 3, 3]
        publish(table)

    @pytest.mark.parametrize("rows", [[row(1)], [row(1), row(1, "other")]])
    def test_and_nobody_comes(self, root, table, rows):
        process = start(die, str(root), "commit.leaves-committed", 1, rows)
        process.join(60)
        assert len(list(root.glob("*$dataset"))) == len(rows)
        assert table.check().ok
        assert table.vacuum().folders == ()  # it may still be running
        assert len(table.vacuum(dt.timedelta(0), force=True).folders) == len(rows)
        assert not list(root.glob("*$dataset"))
        assert table.check().problems == []

    @pytest.mark.parametrize(
        "step", ["commit.new-leaf-withdrawn", "lance.commit.before", "lance.merge.before"]
    )
    def test_then_the_second_one(self, root, table, step):
        for id in (1, 2):
            process = start(
                die, str(root), "commit.leaves-committed" if id == 1 else step, 1, [row(id)]
            )
            process.join(60)
            assert process.exitcode == -signal.SIGKILL
        table.append([row(3)])
        assert ids(table) == [3]
        assert on_main(root) == []
        publish(table)

    def test_the_same_transaction_is_tried_again(self, root, table):
        process = start(die, str(root), "commit.leaves-committed", 1, [row(1)])
        process.join(60)
        table.append([row(1)], transaction_id="again")
        table.append([row(1)], transaction_id="again")
        assert ids(table) == [1]
        publish(table)


class TestItComesBack:
    def test_while_its_folder_is_there(self, root, table):
        table.append([row(1), row(2, "stays")])
        table.delete("part = 'new'")
        table.append([row(3)])
        assert ids(table) == [2, 3]
        assert on_main(root) == [2]
        assert ids_at(root, 2) == [1, 2]
        table.rollback(2)
        assert ids(table) == [1, 2]
        publish(table)

    def test_after_its_folder_is_gone(self, root, table):
        """Nothing that this process has remembered of the first one is used for the second."""
        table.append([row(n) for n in range(10)])
        table.append([row(100, "stays")])
        for round in range(3):
            wanted = list(range(round, round + 10))
            assert ids(table, "part = 'new'") == wanted
            assert ids(table, f"id = {round} AND part = 'new'") == [round]
            table.delete("part = 'new'")
            table.vacuum(dt.timedelta(0), force=True)
            assert len(list(root.glob("*$dataset"))) == 1
            table.append([row(n + 1) for n in wanted])
        publish(table)

    def test_while_somebody_creates_it(self, root, table, between):
        table.append([row(1)])
        table.delete("TRUE")

        def other():
            shutil.rmtree(next(root.glob("*$dataset")))  # as a vacuum with force would do
            phalanx.open(root).append([row(2)])

        between(other)
        with pytest.raises(ConflictError), table.transaction() as tx:  # noqa: PT012
            tx._transaction._started -= 2 * 24 * 3600  # it looks whether its files are there
            tx.append([row(3)])
        assert ids(table) == [2]
        publish(table)


def test_a_snapshot_is_not_changed_by_what_others_do_on_main(root, table):
    table.append([row(1)])
    uri = table.partitions()["uri"][0].as_py()
    lance.write_dataset(pa.table({"id": [9], "part": ["new"]}), uri, mode="append")
    assert ids(table) == [1]
    assert [problem.kind for problem in table.check().problems] == ["foreign-commits"]
    table.append([row(2)])
    assert ids(table) == [1, 2]
    assert table.repair(stray="take").ok
    assert ids(table) == [1, 2, 9]
    publish(table)


@pytest.mark.parametrize("type", [pa.string(), pa.struct({"x": pa.list_(pa.string())})])
def test_a_dictionary_is_written_for_a_version_that_is_there(root, type):
    """Lance opens it. Such a leaf is created empty, as in an object store."""
    encoded = pa.dictionary(pa.int8(), pa.string())
    nested = pa.struct({"x": encoded}) if pa.types.is_struct(type) else encoded
    schema = pa.schema([("id", pa.int64()), ("part", pa.string()), ("d", nested)])
    table = phalanx.create(root, schema, ["part"])
    value = {"x": "a"} if pa.types.is_struct(type) else "a"
    table.append([row(n, f"{n % 3}") | {"d": value} for n in range(9)])
    assert ids(table) == list(range(9))
    assert not is_lasting_on_main(table)
    publish(table)


def is_lasting_on_main(table):
    versions = table.partitions()["version"].to_pylist()
    return any(RANDOM <= version < DETACHED for version in versions)


def test_nothing_is_left_of_what_was_prepared(root, table):
    table.append([row(n, f"{n}") for n in range(30)])
    names = {name for folder in root.glob("*$dataset") for name in os.listdir(folder)}
    assert names == {"_versions", "data"}


@pytest.mark.parametrize("change", ["delete", "update", "create_index"])
def test_what_was_computed_on_a_version_on_main_is_computed_again(root, monkeypatch, change):
    """A leaf of a table that became strong is at the second version on main."""
    schema = pa.schema([("x", pa.int64()), *SCHEMA])
    weak = phalanx.create(root, schema, ["part"], transactions="weak")
    weak.append([{"x": 0, **row(id)} for id in range(5)])
    weak.make_strong()
    table, other = phalanx.open(root).drop_column("x"), phalanx.open(root)
    assert table.partitions()["version"].to_pylist() == [2]
    land = commit.Transaction.commit

    def later(self):
        monkeypatch.setattr(commit.Transaction, "commit", land)
        other.delete("part = 'new'")
        other.append([row(id) for id in range(100, 105)])
        return land(self)

    monkeypatch.setattr(commit.Transaction, "commit", later)
    match change:
        case "delete":
            table.delete("id = 1", isolation="snapshot")
        case "update":
            table.update({"id": "id + 1000"}, where="id = 1", isolation="snapshot")
        case "create_index":
            table.create_index("id", "btree", min_rows=1)
    assert ids(table) == [*range(100, 105)]
    assert ids(table, "id = 101") == [101]
    assert table.check().ok
