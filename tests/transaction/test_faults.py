"""Faults at any moment: nothing is lost, nothing is doubled, and every table stays sound.

Each test counts the faults it has injected. `make soak ARGS=tests/transaction/test_faults.py` runs
the long ones; their counts are in docs/reliability.md.
"""

import contextlib
import datetime as dt
import os
import random
import signal
import time
import uuid

import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError, PhalanxError
from phalanx.table import vacuum as vacuuming
from tests.transaction.faults import DamagedCaches, FaultyStore, FullDisk, Interrupts
from tests.transaction.processes import start, together

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])
PARTS = ["a", "b", "c", None]
#: How many changes are made before the first fault.
_UNDISTURBED = 15


def row(id, part="a", n=0):
    return {"id": id, "part": part, "n": n}


# One process, one fault after the other


class Twin:
    """What a table should hold: its rows by id."""

    def __init__(self, rows):
        self.rows = {r["id"]: r for r in rows}

    def next(self, turn, chance):
        """A change to make, and the rows that the table holds afterwards."""
        rows = dict(self.rows)
        kind = chance.choice(["append", "append", "delete", "update", "merge", "replace", "move"])
        if kind == "append":
            new = [
                row(10 * turn + i, chance.choice(PARTS), turn) for i in range(chance.randint(1, 4))
            ]
            rows |= {r["id"]: r for r in new}
            return lambda t, **o: t.append(new, **o), rows
        if kind == "delete":
            gone = chance.sample(sorted(rows), min(len(rows), 3))
            ids = ", ".join(map(str, gone)) or "-1"
            return (
                lambda t, **o: t.delete(f"id IN ({ids})", **o),
                {id: r for id, r in rows.items() if id not in gone},
            )
        if kind == "update":
            part = chance.choice(["a", "b", "c"])
            changed = {id: {**r, "n": r["n"] + 1} for id, r in rows.items() if r["part"] == part}
            return lambda t, **o: t.update({"n": "n + 1"}, f"part = '{part}'", **o), rows | changed
        if kind == "merge":
            keys = [*chance.sample(sorted(rows), min(len(rows), 2)), 10 * turn + 9]
            new = [row(id, chance.choice(PARTS), turn) for id in keys]
            rows |= {r["id"]: r for r in new}
            return lambda t, **o: t.merge(new, ["id"], **o), rows
        if kind == "replace":
            new = [row(10 * turn + 8, "b", turn)]
            kept = {id: r for id, r in rows.items() if r["part"] != "b"}
            return lambda t, **o: t.overwrite(new, "partitions", **o), kept | {new[0]["id"]: new[0]}
        ids = chance.sample(sorted(rows), min(len(rows), 2))
        part = chance.choice(["a", "b", "c", "d"])
        chosen = ", ".join(map(str, ids)) or "-1"
        changed = {id: {**rows[id], "part": part} for id in ids}
        return (
            lambda t, **o: t.update({"part": f"'{part}'"}, f"id IN ({chosen})", **o),
            rows | changed,
        )


def rows_of(uri):
    found = phalanx.open(uri).scan().to_arrow().to_pylist()
    by_id = {r["id"]: r for r in found}
    assert len(by_id) == len(found), "a row is doubled"
    return by_id


def storm(uri, kind, faults, leaves=0):
    """Make changes until so many of them were disturbed; each ends as before or as after."""
    chance = random.Random(f"{kind.__name__} {faults}")
    table = phalanx.create(uri, SCHEMA, ["part"])
    table.append([row(-n - 1, f"p{n}") for n in range(leaves)] or [row(0)])
    twin = Twin(rows_of(uri).values())
    fault = kind(chance)
    turn = 0
    while fault.count < faults:
        turn += 1
        change, after = twin.next(turn, chance)
        handle = table if chance.random() < 0.5 else phalanx.open(uri)
        try:
            # First everything is loaded: an interrupted import is not ours to mend.
            with fault.during() if turn > _UNDISTURBED else contextlib.nullcontext():
                change(handle, transaction_id=f"turn-{turn}")
        except fault.kinds:
            found = rows_of(uri)
            assert found in (twin.rows, after), (turn, "half of a change")
            # The same handle goes on, and the same id makes the change once.
            change(handle, transaction_id=f"turn-{turn}")
        assert rows_of(uri) == after, turn
        twin.rows = after
        report = phalanx.check(uri)
        assert report.ok, (turn, str(report))
        if turn % 20 == 0:
            table = phalanx.open(uri)
            table.optimize()
            table.vacuum(dt.timedelta(0), force=True)
            # Small tables are not cached: the partitions that have lost their rows come back.
            parts = {r["part"] for r in twin.rows.values()}
            lost = [n for n in range(leaves) if f"p{n}" not in parts]
            new = [row(-1000 * turn - n, f"p{n}") for n in lost]
            if new:
                table.append(new)
                twin.rows |= {r["id"]: r for r in new}
    return fault.count, turn


@pytest.mark.parametrize(
    ("kind", "faults", "leaves"),
    [
        pytest.param(Interrupts, 15, 0, id="interrupts"),
        pytest.param(FullDisk, 15, 0, id="full-disk"),
        pytest.param(DamagedCaches, 5, 300, id="damaged-caches"),
        pytest.param(Interrupts, 4000, 0, id="interrupts-long", marks=pytest.mark.soak),
        pytest.param(FullDisk, 4000, 0, id="full-disk-long", marks=pytest.mark.soak),
        pytest.param(DamagedCaches, 300, 300, id="damaged-caches-long", marks=pytest.mark.soak),
    ],
)
def test_one_fault_after_the_other(tmp_path, kind, faults, leaves):
    cache = tmp_path / "cache"
    cache.mkdir()
    ((count, turns),) = together(
        (in_a_storm, str(tmp_path / "t"), str(cache), kind, faults, leaves), seconds=7200
    )
    print(f"\n{count} faults in {turns} changes")
    assert count >= faults


def in_a_storm(uri, cache, kind, faults, leaves):
    os.environ["PHALANX_CACHE"] = cache
    # Nobody else writes, so vacuum may delete young versions of the manifest, too: check reads all.
    vacuuming.SWAP_FLOOR = dt.timedelta(0)
    return storm(uri, kind, faults, leaves)


# Many processes


def until_it_lands(change, seconds=300):
    """Try a change again as long as the store fails, and return how often it was tried."""
    deadline = time.monotonic() + seconds
    for attempt in range(1, 1000):
        try:
            change()
            return attempt
        except (PhalanxError, OSError) as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"{attempt} attempts failed") from error
            time.sleep(random.uniform(0, 0.05))
    raise AssertionError("too many attempts")


def write_to_a_faulty_store(uri, options, worker, turns):
    attempts = 0
    for turn in range(turns):
        number = 1000 * worker + turn
        name = f"{worker}-{turn}"

        def change(number=number, name=name, turn=turn):
            table = phalanx.open(uri, storage_options=options)
            if turn % 3 == 2:
                mine = [row(number - 1, "hot", 7), row(number, f"w{worker}", 1)]
                table.merge(mine, ["id"], transaction_id=name)
            else:
                table.append([row(number, "hot", 1)], transaction_id=name)

        attempts += until_it_lands(change)
    return attempts


def expected_of(worker, turns):
    rows = {}
    for turn in range(turns):
        number = 1000 * worker + turn
        if turn % 3 == 2:
            rows[number - 1] = row(number - 1, "hot", 7)
            rows[number] = row(number, f"w{worker}", 1)
        else:
            rows[number] = row(number, "hot", 1)
    return rows


@pytest.mark.parametrize(
    ("workers", "turns", "rounds", "share"),
    [(2, 3, 1, 0.05), pytest.param(4, 12, 15, 0.05, marks=pytest.mark.soak)],
)
def test_a_faulty_object_store(s3_options, workers, turns, rounds, share):
    faults = 0
    for number in range(rounds):
        uri = f"s3://lake/{uuid.uuid4().hex}"
        phalanx.create(uri, SCHEMA, ["part"], storage_options=s3_options)
        with FaultyStore(s3_options["endpoint"], share, seed=number) as store:
            options = {**s3_options, "endpoint": store.endpoint}
            together(
                *((write_to_a_faulty_store, uri, options, w, turns) for w in range(workers)),
                seconds=900,
            )
            faults += store.count
        table = phalanx.open(uri, storage_options=s3_options)
        found = table.scan().to_arrow().to_pylist()
        expected = {k: v for w in range(workers) for k, v in expected_of(w, turns).items()}
        assert len(found) == len(expected), number
        assert {r["id"]: r for r in found} == expected, number
        report = table.check()
        assert report.ok, (number, str(report))
    print(f"\n{faults} faults of the store in {rounds} rounds")
    assert faults > 0


def merge_again_and_again(uri, worker, turns):
    """Count up a row of our own and one that all share."""
    table = phalanx.open(uri)
    tries = 0
    for turn in range(turns):
        while True:
            tries += 1
            try:
                with table.transaction(transaction_id=f"{worker}-{turn}") as tx:
                    shared = tx.scan(where="id = 0").to_arrow()["n"][0].as_py()
                    tx.merge([row(0, n=shared + 1), row(worker + 1, n=turn + 1)], ["id"])
                break
            except ConflictError:
                continue  # the handle is at the newest snapshot now
    return tries


@pytest.mark.parametrize(
    ("workers", "turns"), [(4, 3), pytest.param(16, 10, marks=pytest.mark.soak)]
)
def test_many_writers_that_merge_into_one_partition(root, workers, turns):
    phalanx.create(root, SCHEMA, ["part"]).append([row(0)])
    tries = together(
        *((merge_again_and_again, str(root), worker, turns) for worker in range(workers)),
        seconds=1800,
    )
    table = phalanx.open(root)
    counts = {r["id"]: r["n"] for r in table.scan().to_arrow().to_pylist()}
    assert counts == {0: workers * turns} | {w + 1: turns for w in range(workers)}
    assert table.count() == workers + 1
    assert table.check().ok
    print(f"\n{workers * turns} merges in {sum(tries)} attempts")


def append_to_a_weak_table(uri, worker, life, log):
    """Append until somebody kills us, and write down what was acknowledged."""
    table = phalanx.open(uri)
    with open(log, "a") as acknowledged:
        for turn in range(10**4):
            # A change that was cut off is not repeated: leaves of a weak table may have it already.
            number = ((worker * 1000 + life) * 10**4 + turn) * 10
            rows = [row(number + i, part) for i, part in enumerate(["hot", f"p{turn % 5}"])]
            table.append(rows)
            acknowledged.write(f"{number}\n")
            acknowledged.flush()


def wait_for_more(log):
    """Wait until a worker has written down another append."""
    size, deadline = log.stat().st_size, time.monotonic() + 60
    while log.stat().st_size == size:
        assert time.monotonic() < deadline, "a worker hangs"
        time.sleep(0.002)


@pytest.mark.parametrize(
    ("workers", "kills"), [(2, 4), pytest.param(4, 100, marks=pytest.mark.soak)]
)
def test_a_weak_table_under_load(tmp_path, workers, kills):
    """Each leaf changes as a whole; what was acknowledged is there, and nothing twice."""
    uri = str(tmp_path / "t")
    phalanx.create(uri, SCHEMA, ["part"], transactions="weak")
    chance = random.Random(kills)
    logs = [tmp_path / f"log-{worker}" for worker in range(workers)]
    for log in logs:
        log.touch()
    running = [start(append_to_a_weak_table, uri, w, 0, str(logs[w])) for w in range(workers)]
    try:
        for life in range(1, kills + 1):
            victim = chance.randrange(workers)
            wait_for_more(logs[victim])
            time.sleep(chance.uniform(0, 0.1))
            running[victim].kill()
            running[victim].join(30)
            assert running[victim].exitcode == -signal.SIGKILL
            running[victim] = start(append_to_a_weak_table, uri, victim, life, str(logs[victim]))
    finally:
        for process in running:
            process.kill()
            process.join(30)
    ids = phalanx.open(uri).scan().to_arrow()["id"].to_pylist()
    assert len(set(ids)) == len(ids), "a row is doubled"
    acknowledged = [int(line) for log in logs for line in log.read_text().split()]
    assert acknowledged
    missing = {n + i for n in acknowledged for i in (0, 1)} - set(ids)
    assert not missing
    assert phalanx.check(uri).ok
    print(f"\n{len(acknowledged)} acknowledged appends, {kills} kills")
