"""Whatever fails, wherever: the table is as it was or as it was to be, and goes on."""

import contextlib
import datetime as dt
import itertools
import os
import random
import shutil
import signal
import time

import lance
import numpy as np
import pyarrow as pa
import pytest

import phalanx
from phalanx.model.predicates import EVERYTHING
from phalanx.storage import notes
from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location
from phalanx.storage.manifest import GUARD_KEY, ManifestVersion
from phalanx.table.operations.change_rows import ChangeRows
from phalanx.table.repair import repair_table
from phalanx.transaction import commit
from tests.transaction.processes import CONTEXT, start
from tests.transaction.sabotage import failing, named_in_source, steps

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])
ID = "the transaction"


def row(id, part="a", n=0):
    return {"id": id, "part": part, "n": n}


NEXT = [row(100), row(101, "next")]


def prepare(root, mode="strong"):
    """Two fragments in one leaf, one in another, and one leaf that was there once."""
    table = phalanx.create(root, SCHEMA, ["part"], transactions=mode)
    table.append([row(1), row(2), row(3, "b"), row(4, "gone")])
    table.append([row(5), row(6, None)])
    table.delete("part = 'gone'")
    return table


def prepare_narrow(root):
    """Partitioned by a number that can become wider."""
    schema = SCHEMA.set(2, pa.field("n", pa.float32()))
    table = phalanx.create(root, schema, ["part", "n"])
    return table.append([row(1, n=0.1), row(2, "b", 0.5), row(3, "b", None)])


def prepare_to_optimize(root):
    table = prepare(root)
    table.append([row(7, "b"), row(8)])
    table.delete("id = 2")
    return table


def prepare_for_compaction(root):
    """The next append makes one small fragment of the manifest too many, and there is no note."""
    table = prepare(root)
    while table._snapshot.manifest.small_fragments < commit._MOST_FRAGMENTS:
        os.unlink(root / notes.NOTES_FILE)
        table.append([row(3)])
    os.unlink(root / notes.NOTES_FILE)
    return table


def prepare_to_gather(root):
    """The next new partition makes one small fragment too many, and the note knows them."""
    table = prepare(root)
    while table._snapshot.manifest.small_fragments < commit._MOST_FRAGMENTS:
        table.append([row(3, f"p{table.version}")])
    return table


def prepare_anchored(root):
    return prepare(root).set_properties({"anchor": "commit"})


def prepare_tree(root):
    """Leaves in key=value folders, where plain Lance readers see a partition that is gone."""
    table = phalanx.create(root, SCHEMA, ["part"], layout="hive")
    return table.append([row(1), row(2), row(3, "b"), row(4, "c"), row(5, None)])


def prepare_weak(root):
    return prepare(root, "weak")


def prepare_for_vacuum(root):
    """History that is two days old, and what failed writers have left behind."""
    table = prepare(root)
    table.tag("early", version=2)
    table.overwrite([row(1), row(2, "b")])
    with contextlib.suppress(ZeroDivisionError), table.transaction() as tx:
        tx.append([row(9), row(9, "never")])
        1 / 0  # noqa: B018
    then = time.time() - 2 * 24 * 3600
    for folder, _, names in os.walk(root):
        for name in names:
            os.utime(os.path.join(folder, name), (then, then))
    return table.append([row(3, "c")])


def prepare_for_repair(root):
    """What a client does that nobody keeps from it: columns are lost, and rows, one is there twice,
    and rows are written to a leaf.
    """
    table = prepare(root)
    foreign = pa.Table.from_pylist([row(50)], SCHEMA)
    lance.write_dataset(foreign, table.partitions()["uri"][0].as_py(), mode="append")
    manifest = lance.dataset(str(root / "__manifest"))
    known = ["object_id", "object_type", "location", "metadata", "base_objects"]
    rows = manifest.to_table(columns=known)
    lance.write_dataset(pa.concat_tables([rows, rows.slice(0, 2)]), manifest.uri, mode="overwrite")
    lance.dataset(manifest.uri).delete("object_type = 'namespace' AND object_id <> 'v1'")
    return table


def several(table, **options):
    with table.transaction(**options) as tx:
        tx.append([row(7, "new"), row(8)])
        tx.delete("id = 1")
        assert tx.count() == 6
        tx.update({"n": "n + 1"}, "part = 'a'")
        tx.merge([row(3, "c", 9)], ["id"])


def grow(table, **options):
    """A column with a default: what is added to a leaf makes all of its rows be written anew."""
    with table.transaction(**options) as tx:
        tx.add_column("more", pa.int64(), default=1)
        tx.append([row(7) | {"more": 2}, row(8, "new") | {"more": None}])


def append_behind(table, **options):
    """Another writer comes first, so the append is rebased."""
    with table.transaction(**options) as tx:
        tx.append([row(7), row(8, "new")])
        if not tx.repeated:
            come_first(table)


def come_first(table):
    phalanx.open(table.uri).merge([row(9, "new"), row(1, n=5)], ["id"])


def change_rows(table, **options):
    """What Spark does: a row goes by its id."""
    snapshot = table._snapshot
    leaf = snapshot.leaves.row(0)
    rows = Leaf(snapshot.location, leaf.location, snapshot.head.schema).scan(
        leaf.read_version, ["id"], None, row_ids=True
    )
    ids = np.array([next(rows).column("_rowid")[0].as_py()])
    change = ChangeRows("update", snapshot, {leaf.object_id: ids}, [], "serializable")
    with table.transaction(**options) as tx:
        tx.change_rows(change, EVERYTHING)


def compact_manifest(table, **_):
    ManifestVersion(Location(table.uri)).compact(True)


def make_strong(table, **_):
    table.make_strong()


def vacuum(table, **_):
    table.vacuum(dt.timedelta(hours=1), force=True)


def optimize(table, **_):
    table.optimize()


def prepare_to_rewrite(root):
    """Three leaves of one spec, one of the next, and rows that are deleted."""
    table = prepare(root)
    table.append([row(7, "b"), row(8)])
    table.delete("id = 2")
    table.evolve_partitioning(["part", "bucket(2, id)"])
    return table.append([row(9)])


def rewrite(table, **_):
    """Step by step: what was done before a failure stays done."""
    table.rewrite(step_rows=3)
    assert set(table.partitions()["spec"].to_pylist()) == {table.spec.id}


def prepare_to_index(root):
    """Vectors in two leaves."""
    schema = SCHEMA.append(pa.field("vec", pa.list_(pa.float32(), 2)))
    table = phalanx.create(root, schema, ["part"])
    rows = [row(id, "ab"[id % 2]) | {"vec": [float(id), 1.0]} for id in range(20)]
    return table.append(rows)


def create_index(table, **_):
    if not table.indexes().num_rows:
        table.create_index("vec", "IVF_FLAT", min_rows=1, num_partitions=1)
    assert table.search([3.0, 1.0], k=1)["id"].to_pylist() == [3]


OPERATIONS = {
    "append": (prepare, lambda t, **o: t.append([row(7), row(8, "new")], **o)),
    "append to new partitions": (
        prepare,
        lambda t, **o: t.append([row(7, "x"), row(8, "y"), row(9, "z")], **o),
    ),
    "append durably": (prepare, lambda t, **o: t.append([row(7)], durable=True, **o)),
    "append and anchor": (prepare_anchored, lambda t, **o: t.append([row(7), row(8, "new")], **o)),
    "append and compact": (prepare_for_compaction, lambda t, **o: t.append([row(7)], **o)),
    "append and gather": (prepare_to_gather, lambda t, **o: t.append([row(7, "new")], **o)),
    "append behind another": (prepare, append_behind),
    "overwrite": (prepare, lambda t, **o: t.overwrite([row(7), row(8, "new")], **o)),
    "overwrite partitions": (prepare, lambda t, **o: t.overwrite([row(7)], "partitions", **o)),
    "overwrite where": (prepare, lambda t, **o: t.overwrite([row(1, n=1)], where="id = 1", **o)),
    "delete": (prepare, lambda t, **o: t.delete("id = 1 OR part = 'b'", **o)),
    "delete in a tree": (prepare_tree, lambda t, **o: t.delete("id = 1 OR part = 'b'", **o)),
    "update": (prepare, lambda t, **o: t.update({"part": "'b'", "n": "n + 1"}, "id < 4", **o)),
    "merge": (prepare, lambda t, **o: t.merge([row(1, "b", 9), row(7, "new")], ["id"], **o)),
    "change rows": (prepare, change_rows),
    "rollback": (prepare, lambda t, **o: t.rollback(2, **o)),
    "tag": (prepare, lambda t, **o: t.tag("then", version=2, **o)),
    "evolve partitioning": (prepare, lambda t, **o: t.evolve_partitioning(["n", "part"], **o)),
    "add a column and rows": (prepare, grow),
    "widen a partition column": (prepare_narrow, lambda t, **o: t.change_type("n", "float64", **o)),
    "transaction": (prepare, several),
    "compact": (prepare_for_compaction, compact_manifest),
    "make strong": (prepare_weak, make_strong),
    "vacuum": (prepare_for_vacuum, vacuum),
    "optimize": (prepare_to_optimize, optimize),
    "rewrite": (prepare_to_rewrite, rewrite),
    "create an index": (prepare_to_index, create_index),
}
#: What goes through the same steps as others do: those steps are killed there, and in the soak.
LIKE_OTHERS = (
    "append behind another",
    "overwrite partitions",
    "overwrite where",
    "update",
    "merge",
    "evolve partitioning",
    "add a column and rows",
    "widen a partition column",
)
LIKE_APPEND = (
    "append to new partitions",
    "append durably",
    "append and anchor",
    "append and compact",
    "append and gather",
)
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
    measures = ("rows", "bytes", "fragments", "version", "uri")
    places = {str({k: v for k, v in leaf.items() if k not in measures}) for leaf in partitions}
    assert len(places) == len(partitions)
    versions = table.snapshots()["version"].to_pylist()
    assert versions[-1] == table.version
    assert len(versions) == versions[-1] - versions[0] + 1 or table.tags()
    for tag in table.tags():
        phalanx.open(uri, version=tag).scan().to_arrow()
    return rows, table.tags(), table.specs, table.schema


class Bench:
    """Tables to break, one copy for each case."""

    def __init__(self, folder):
        self._folder, self._made, self._numbers = folder, {}, itertools.count()

    def copy(self, name):
        """A fresh copy of the table that an operation starts from."""
        prepared = self.facts(name)["prepared"]
        copy = shutil.copytree(prepared, self._folder / f"copy-{next(self._numbers)}")
        # The note of the last swap is about other files: make one about these.
        there, here = ManifestVersion(Location(prepared)), ManifestVersion(Location(copy))
        tail = notes.read(there.location, there.identity)
        if tail is not None:
            notes.write(here.location, here.identity, tail)
        return str(copy)

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
        found = sorted(self.facts(name)["steps"].items())
        if action == "soak":
            for (step, count), how in itertools.product(found, ("raise", "kill")):
                yield from ((step, visit, how) for visit in range(1, count + 1))
            return
        # Before Lance writes something, all is as the step before has left it; and what an
        # append does by the way needs no second look.
        found = [one for one in found if not one[0].startswith("lance.") or "after" in one[0]]
        if name in LIKE_APPEND:
            found = [one for one in found if one[0] not in self.facts("append")["steps"]]
        if name in ("optimize", "rewrite"):
            own = (name, "lance.restore", "commit.before-swap", "commit.after-swap")
            found = [one for one in found if one[0].startswith(own)]
        if name in LIKE_OTHERS and action == "kill":
            found = [one for one in found if "swap" in one[0]]
        for number, (step, count) in enumerate(found):
            if "swap" in step or ("raise", "kill")[number % 2] == action:
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
        # Threads share the steps of several leaves in another order each time, so that the last
        # visits may not come.
        done = process.exitcode == 0 and visit > 1
        assert done or process.exitcode == -signal.SIGKILL
        return done
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
        if cell[-1] == "kill":
            # Other clients are told of a new schema after the swap, if need be by the next writer.
            told = {"copy-differs"} if found[-1] != states[0][-1] else set()
            assert {p.kind for p in phalanx.open(uri).check().problems if not p.harmless} <= told
        # Repeating it is the way to be sure, and the next one works as ever.
        run(uri, name)
        table = phalanx.open(uri).append(NEXT)
        defaults = {"more": 1, "vec": None}
        others = {name: defaults[name] for name in table.schema.names if name in defaults}
        rows = [*after[0], *({**found, **others} for found in NEXT)]
        assert state(uri) == (sorted(rows, key=str), *after[1:]), cell
        assert cell[-1] != "kill" or table.check().ok, cell
        assert table.snapshots()["transaction_id"].to_pylist().count(ID) <= 1, cell
        shutil.rmtree(uri)
    print(f"\n{name}, {action}: {len(cells)} cells")


@pytest.mark.parametrize("action", ACTIONS[::2])
@pytest.mark.parametrize("name", WEAK_OPERATIONS)
def test_a_leaf_of_a_weak_table_is_as_before_or_as_after(bench, name, action):
    """Leaves are committed one by one, so that is all that can be said."""
    (before, *_), (after, *_) = bench.facts(name)["states"]
    cells = list(bench.cells(name, action))
    for cell in cells:
        uri = bench.copy(name)
        done = fail(uri, name, *cell)
        found, *_ = state(uri)
        assert not done or found == after, cell
        for part in {x["part"] for x in before + after}:
            here = [[x for x in rows if x["part"] == part] for rows in (found, before, after)]
            assert here[0] in here[1:], (cell, part)
        phalanx.open(uri).append(NEXT)
        assert state(uri)[0] == sorted([*found, *NEXT], key=str), cell
        shutil.rmtree(uri)
    print(f"\n{name}, weak, {action}: {len(cells)} cells")


def create(uri):
    phalanx.create(uri, SCHEMA, ["part"])


def create_and_die(uri, step, visit):
    with failing(step, "kill", visit):
        create(uri)


def test_a_table_is_made_or_not(tmp_path):
    cells = steps(lambda: create(tmp_path / "first"))
    assert len(cells) >= 4
    numbers = itertools.count()
    for step, count in cells.items():
        for visit, action in itertools.product(range(1, count + 1), ("raise", "kill")):
            uri = str(tmp_path / f"table-{next(numbers)}")
            if action == "kill":
                start(create_and_die, uri, step, visit).join(60)
            else:
                failures = contextlib.suppress(OSError, phalanx.PhalanxError)
                with failures, failing(step, "raise", visit):
                    create(uri)
            with contextlib.suppress(phalanx.TableExists):
                create(uri)
            table = phalanx.open(uri).append([row(1)])
            assert (table.version, state(uri)[0]) == (2, [row(1)]), (step, visit, action)
            # Whoever wrote last has completed what other clients look at.
            metadata = ManifestVersion(Location(uri)).metadata
            assert {GUARD_KEY, "schema", "partition_spec_v1"} <= set(metadata), (step, visit)


def repair(uri):
    repair_table(Location(uri), stray="drop")


def repair_and_die(uri, step, visit):
    with failing(step, "kill", visit):
        repair(uri)


def test_a_repair_that_fails_can_be_repeated(tmp_path):
    """Until it is through, the table says that it is damaged, or is as it should be."""
    prepare(tmp_path / "whole")
    whole = state(tmp_path / "whole")
    prepare_for_repair(tmp_path / "damaged")
    numbers = itertools.count()

    def damaged():
        return str(shutil.copytree(tmp_path / "damaged", tmp_path / f"copy-{next(numbers)}"))

    uri = damaged()
    reached = steps(lambda: repair(uri))
    assert state(uri) == whole
    assert set(reached) >= {name for name in named_in_source() if name.startswith("repair.")}
    chosen = sorted(step for step in reached if not step.endswith(".before"))
    for step, action in zip(chosen, itertools.cycle(("raise", "kill"))):
        uri = damaged()
        if action == "kill":
            start(repair_and_die, uri, step, 1).join(60)
        else:
            failures = contextlib.suppress(OSError, phalanx.PhalanxError)
            with failures, failing(step, "raise"):
                repair(uri)
        with contextlib.suppress(phalanx.CorruptTable):
            assert state(uri) == whole, (step, action)
        repair(uri)
        assert state(uri) == whole, (step, action)
        table = phalanx.open(uri).append([row(100)])
        assert table.check().ok, (step, action)


def test_there_are_enough_cells_and_no_failpoint_is_left_out(bench):
    cells = [
        (name, *cell)
        for name in OPERATIONS
        for action in ("raise", "kill")
        for cell in bench.cells(name, action)
    ]
    assert len(set(cells)) == len(cells) >= 100
    left_out = named_in_source() - {step for _, step, _, _ in cells}
    # Those of repairs are below, those of other formats in tests/interop.
    elsewhere = ("repair.", "export.", "adopt.", "upgrade.")
    assert {name for name in left_out if not name.startswith(elsewhere)} == set()


# Killed at any moment


def change_at_random(uri, seed, first, ready):
    """One change after the other, each with its number as its id, until somebody kills us."""
    table = phalanx.open(uri)
    ready.set()
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
    start_time = time.perf_counter()
    phalanx.create(tmp_path / "scratch", SCHEMA, ["part"]).append([row(0, "p0", 0)])
    # A life is long enough for some changes, however busy the machine is.
    longest = max(0.5, 10 * (time.perf_counter() - start_time))
    delays = random.Random(seed)
    done = 0
    for kill in range(kills):
        ready = CONTEXT.Event()
        process = start(change_at_random, killed, seed, done, ready)
        assert ready.wait(60)
        time.sleep(delays.uniform(0, longest))
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
    assert done > 0
