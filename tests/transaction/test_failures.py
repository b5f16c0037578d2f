"""Whatever fails, wherever: the table is as it was or as it was to be, and goes on."""

import contextlib
import itertools
import random
import shutil
import signal
import time

import pyarrow as pa
import pytest

import phalanx
from phalanx.storage.location import Location
from phalanx.storage.manifest import GUARD_KEY, ManifestVersion
from tests.transaction.processes import start
from tests.transaction.sabotage import failing, named_in_source, steps

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])
ID = "the transaction"


def row(id, part="a", n=0):
    return {"id": id, "part": part, "n": n}


def prepare(root, mode="strong"):
    """Two fragments in one leaf, one in another, and one leaf that was there once."""
    table = phalanx.create(root, SCHEMA, ["part"], transactions=mode)
    table.append([row(1), row(2), row(3, "b"), row(4, "gone")])
    table.append([row(5), row(6, None)])
    table.delete("part = 'gone'")
    return table


def prepare_for_compaction(root):
    table = prepare(root)
    while table.version < 15:
        table.update({"n": "n + 1"}, "id = 3")
    return table


def prepare_anchored(root):
    return prepare(root).set_properties({"anchor": "commit"})


def prepare_weak(root):
    return prepare(root, "weak")


def several(table, **options):
    with table.transaction(**options) as tx:
        tx.append([row(7, "new"), row(8)])
        tx.delete("id = 1")
        assert tx.count() == 6
        tx.update({"n": "n + 1"}, "part = 'a'")
        tx.merge([row(3, "c", 9)], ["id"])


def append_behind(table, **options):
    """Another writer comes first, so the append is rebased."""
    with table.transaction(**options) as tx:
        tx.append([row(7), row(8, "new")])
        if not tx.repeated:
            come_first(table)


def come_first(table):
    phalanx.open(table.uri).merge([row(9, "new"), row(1, n=5)], ["id"])


def compact_manifest(table, **_):
    ManifestVersion(Location(table.uri)).compact(True)


def make_strong(table, **_):
    table.make_strong()


OPERATIONS = {
    "append": (prepare, lambda t, **o: t.append([row(7), row(8, "new")], **o)),
    "append durably": (prepare, lambda t, **o: t.append([row(7)], durable=True, **o)),
    "append and anchor": (prepare_anchored, lambda t, **o: t.append([row(7), row(8, "new")], **o)),
    "append and compact": (prepare_for_compaction, lambda t, **o: t.append([row(7)], **o)),
    "append behind another": (prepare, append_behind),
    "overwrite": (prepare, lambda t, **o: t.overwrite([row(7), row(8, "new")], **o)),
    "overwrite partitions": (prepare, lambda t, **o: t.overwrite([row(7)], "partitions", **o)),
    "overwrite where": (prepare, lambda t, **o: t.overwrite([row(1, n=1)], where="id = 1", **o)),
    "delete": (prepare, lambda t, **o: t.delete("id = 1 OR part = 'b'", **o)),
    "update": (prepare, lambda t, **o: t.update({"part": "'b'", "n": "n + 1"}, "id < 4", **o)),
    "merge": (prepare, lambda t, **o: t.merge([row(1, "b", 9), row(7, "new")], ["id"], **o)),
    "rollback": (prepare, lambda t, **o: t.rollback(2, **o)),
    "tag": (prepare, lambda t, **o: t.tag("then", version=2, **o)),
    "transaction": (prepare, several),
    "compact": (prepare_for_compaction, compact_manifest),
    "make strong": (prepare_weak, make_strong),
}
WEAK_OPERATIONS = {
    f"weak {name}": (prepare_weak, change)
    for name, (make, change) in OPERATIONS.items()
    if name in ("append", "overwrite", "overwrite partitions", "delete", "update", "merge")
}


def state(uri):
    """All that a user sees of a table, which must agree with itself."""
    table = phalanx.open(uri)
    rows = sorted(table.scan().to_arrow().to_pylist(), key=str)
    partitions = table.partitions().to_pylist()
    assert table.count() == len(rows) == sum(leaf["rows"] for leaf in partitions)
    assert len({leaf["part"] for leaf in partitions}) == len(partitions)
    history = table.snapshots()
    assert history["version"].to_pylist() == list(range(1, table.version + 1))
    return rows, table.tags()


class Bench:
    """Tables to break, one copy for each case."""

    def __init__(self, folder):
        self._folder, self._made, self._numbers = folder, {}, itertools.count()

    def copy(self, name):
        """A fresh copy of the table that an operation starts from."""
        prepared = self.facts(name)["prepared"]
        return str(shutil.copytree(prepared, self._folder / f"copy-{next(self._numbers)}"))

    def facts(self, name):
        """The table an operation starts from, the states it may be in, and the steps."""
        if name not in self._made:
            make, change = (OPERATIONS | WEAK_OPERATIONS)[name]
            prepared = self._folder / f"prepared-{len(self._made)}"
            make(prepared)
            facts = self._made[name] = {"prepared": prepared}
            facts["states"] = [state(prepared)]
            if change is append_behind:  # the other's commit counts, whatever becomes of ours
                uri = self.copy(name)
                come_first(phalanx.open(uri))
                facts["states"].append(state(uri))
            uri = self.copy(name)
            facts["steps"] = steps(lambda: change(phalanx.open(uri), transaction_id=ID))
            facts["after"] = state(uri)
            facts["states"].append(facts["after"])
        return self._made[name]

    def cells(self, name, action):
        """In CI every step once, half of them by exception and half by kill, but those around
        the swap by both. In the soak every step by both, every time it is reached.
        """
        for number, (step, count) in enumerate(sorted(self.facts(name)["steps"].items())):
            if action == "soak":
                for visit in range(1, count + 1):
                    yield step, visit, "raise"
                    yield step, visit, "kill"
            elif "swap" in step or ("raise", "kill")[number % 2] == action:
                yield step, 1 if number % 4 < 2 else count, action


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("bench"))


def run(uri, name):
    (OPERATIONS | WEAK_OPERATIONS)[name][1](phalanx.open(uri), transaction_id=ID)


def fail(uri, name, step, visit, action):
    """Run an operation that fails at a step; returns whether it ended well all the same."""
    if action == "kill":
        process = start(run_and_die, uri, name, step, visit)
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        return False
    try:
        with failing(step, "raise", visit):
            run(uri, name)
    except (OSError, phalanx.PhalanxError):
        return False
    return True


def run_and_die(uri, name, step, visit):
    with failing(step, "kill", visit):
        run(uri, name)


ACTIONS = ["raise", "kill", pytest.param("soak", marks=pytest.mark.soak)]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_table_is_as_before_or_as_after(bench, name, action):
    after, states = bench.facts(name)["after"], bench.facts(name)["states"]
    cells = list(bench.cells(name, action))
    for cell in cells:
        uri = bench.copy(name)
        done = fail(uri, name, *cell)
        found = state(uri)
        assert found == after if done else found in states, cell
        # Repeating it is the way to be sure, and the next one works as ever.
        run(uri, name)
        assert state(uri) == after, cell
        table = phalanx.open(uri)
        assert table.snapshots()["transaction_id"].to_pylist().count(ID) <= 1, cell
        table.append([row(100), row(101, "next")])
        assert state(uri)[0] == sorted([*after[0], row(100), row(101, "next")], key=str), cell
        shutil.rmtree(uri)
    print(f"\n{name}, {action}: {len(cells)} cells")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", WEAK_OPERATIONS)
def test_a_leaf_of_a_weak_table_is_as_before_or_as_after(bench, name, action):
    """Leaves are committed one by one, so that is all that can be said."""
    (before, _), (after, _) = bench.facts(name)["states"]
    for cell in bench.cells(name, action):
        uri = bench.copy(name)
        done = fail(uri, name, *cell)
        found, _ = state(uri)
        assert not done or found == after, cell
        for part in {x["part"] for x in before + after}:
            here = [[x for x in rows if x["part"] == part] for rows in (found, before, after)]
            assert here[0] in here[1:], (cell, part)
        phalanx.open(uri).append([row(100), row(101, "next")])
        assert state(uri)[0] == sorted([*found, row(100), row(101, "next")], key=str), cell
        shutil.rmtree(uri)


def create(uri):
    phalanx.create(uri, SCHEMA, ["part"])


def create_and_die(uri, step, visit):
    with failing(step, "kill", visit):
        create(uri)


def test_a_table_is_made_or_not(tmp_path):
    cells = steps(lambda: create(tmp_path / "first"))
    assert len(cells) > 4
    numbers = itertools.count()
    for step, count in cells.items():
        for visit, action in itertools.product(range(1, count + 1), ("raise", "kill")):
            uri = str(tmp_path / f"table-{next(numbers)}")
            if action == "kill":
                start(create_and_die, uri, step, visit).join(60)
            else:
                with failing(step, "raise", visit), contextlib.suppress(OSError):
                    with contextlib.suppress(phalanx.PhalanxError):
                        create(uri)
            with contextlib.suppress(phalanx.TableExists):
                create(uri)
            table = phalanx.open(uri).append([row(1)])
            assert (table.version, state(uri)[0]) == (2, [row(1)]), (step, visit, action)
            # Whoever wrote last has completed what other clients look at.
            metadata = ManifestVersion(Location(uri)).metadata
            assert {GUARD_KEY, "schema", "partition_spec_v1"} <= set(metadata), (step, visit)


def test_there_are_enough_cells_and_no_failpoint_is_left_out(bench):
    cells = [
        (name, *cell)
        for name in OPERATIONS
        for action in ("raise", "kill")
        for cell in bench.cells(name, action)
    ]
    assert len(set(cells)) == len(cells) >= 100
    assert named_in_source() - {step for _, step, _, _ in cells} == set()


# Killed at any moment


def change_at_random(uri, seed, first):
    """One change after the other, each with its number as its id, until somebody kills us."""
    table = phalanx.open(uri)
    for number in itertools.count(first):
        CHANGES[random.Random(f"{seed}-{number}").randrange(len(CHANGES))](table, number)


CHANGES = [
    lambda t, n: t.append([row(n, f"p{n % 3}", n), row(n, "hot", n)], transaction_id=str(n)),
    lambda t, n: t.delete(f"id % 5 = {n % 5} AND part <> 'hot'", transaction_id=str(n)),
    lambda t, n: t.update({"n": "n + 1"}, f"part = 'p{n % 3}'", transaction_id=str(n)),
    lambda t, n: t.update({"part": f"'p{n % 3}'"}, f"id % 7 = {n % 7}", transaction_id=str(n)),
    lambda t, n: t.merge([row(n - 3, "p1", n), row(n, "m", n)], ["id"], transaction_id=str(n)),
    lambda t, n: t.overwrite([row(n, "p2", n)], "partitions", transaction_id=str(n)),
    lambda t, n: t.rollback(max(1, t.version - 2), transaction_id=str(n)),
]


@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=pytest.mark.soak)])
def test_killed_at_any_moment(tmp_path, kills):
    """What was committed is a prefix of what was to be done, and nothing of the rest is there.

    The same changes are made to a second table by somebody whom nobody kills.
    """
    seed = f"{kills} kills"
    killed, left_alone = str(tmp_path / "killed"), str(tmp_path / "left alone")
    for uri in (killed, left_alone):
        phalanx.create(uri, SCHEMA, ["part"])
    delays = random.Random(seed)
    done = 0
    for kill in range(kills):
        process = start(change_at_random, killed, seed, done)
        time.sleep(0.1 + delays.uniform(0, 0.5))
        process.kill()
        process.join(30)
        assert process.exitcode == -signal.SIGKILL
        ids = phalanx.open(killed).snapshots()["transaction_id"].to_pylist()[1:]
        assert ids == [str(number) for number in range(len(ids))], kill
        twin = phalanx.open(left_alone)
        for number in range(done, len(ids)):
            CHANGES[random.Random(f"{seed}-{number}").randrange(len(CHANGES))](twin, number)
        assert state(killed) == state(left_alone), (kill, done, len(ids))
        done = len(ids)
    print(f"\n{done} changes in {kills} lives")
    assert done >= kills
