"""Many writers at once: nothing is lost, nothing is there twice, and histories are serial."""

import datetime as dt
import os
import random
import threading
import time
from collections import Counter

import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from tests.transaction.processes import Background, together

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])


def row(id, part, n=0):
    return {"id": id, "part": part, "n": n}


def rows(table):
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda found: found["id"])


def parts(table):
    """The partition values of the leaves, and how many rows each has."""
    found = table.partitions()
    return dict(zip(found["part"].to_pylist(), found["rows"].to_pylist(), strict=True))


def check_history(table, versions):
    """Versions are contiguous, transactions different, and every name is there once."""
    history = table.snapshots()
    assert history["version"].to_pylist() == list(range(1, versions + 1))
    assert len(set(history["transaction_id"].to_pylist())) == versions
    assert table.version == versions
    manifest = ManifestVersion(Location(table.uri))
    ids = manifest._read(["object_id"], "TRUE")["object_id"].to_pylist()
    assert [id for id, count in Counter(ids).items() if count > 1] == []
    columns = ["object_id", "partition_field_part"]
    for kind in ("namespace", "table"):
        found = manifest._read(columns, f"object_type = '{kind}' AND object_id <> 'v1'")
        values = found["partition_field_part"].to_pylist()
        assert sorted(values) == sorted(parts(table)), kind


# Appends


def disjoint(worker, turn, workers):
    return [f"own-{worker}"]


def hot(worker, turn, workers):
    return ["hot"]


def pairs(worker, turn, workers):
    return [f"pair-{(worker + turn) % workers}", f"pair-{(worker + turn + 1) % workers}"]


def same_new(worker, turn, workers):
    return [f"new-{turn}", f"new-{turn}-too"]


def append_many(uri, choose, worker, workers, turns):
    """Returns when it began and ended."""
    table = phalanx.open(uri)
    began = time.time()
    for turn in range(turns):
        base = (worker * turns + turn) * 2
        table.append([row(base + i, part) for i, part in enumerate(choose(worker, turn, workers))])
    return began, time.time()


SIZES = [
    pytest.param(4, 10, id="4x10"),
    pytest.param(8, 50, id="8x50", marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("workers", "turns"), SIZES)
@pytest.mark.parametrize("choose", [disjoint, hot, pairs, same_new])
def test_every_row_is_there_once(root, choose, workers, turns):
    table = phalanx.create(root, SCHEMA, ["part"])
    times = together(*((append_many, str(root), choose, w, workers, turns) for w in range(workers)))
    seconds = max(ended for _, ended in times) - min(began for began, _ in times)
    print(f"\n{choose.__name__}: {workers * turns / seconds:.0f} commits/s by {workers} writers")

    table.refresh()
    expected = [
        row((worker * turns + turn) * 2 + i, part)
        for worker in range(workers)
        for turn in range(turns)
        for i, part in enumerate(choose(worker, turn, workers))
    ]
    assert rows(table) == expected
    assert parts(table) == Counter(found["part"] for found in expected)
    check_history(table, 1 + workers * turns)


def test_every_version_holds_what_was_there_then(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    together(*((append_many, str(root), pairs, w, 4, 5) for w in range(4)))
    history = table.refresh().snapshots()
    total = 0
    for snapshot in history.to_pylist():
        total += snapshot["rows_added"]
        then = phalanx.open(root, version=snapshot["version"])
        assert then.version == snapshot["version"]
        assert then.scan().to_arrow().num_rows == then.count() == total
    assert total == 40


def append_as(uri, id, part):
    table = phalanx.open(uri)
    with table.transaction(transaction_id="the one") as tx:
        tx.append([row(id, part)])
    return tx.repeated


def test_of_retries_that_race_one_lands(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    repeated = together(*((append_as, str(root), 7, "a") for _ in range(4)))
    assert sorted(repeated) == [False, True, True, True]
    assert rows(table.refresh()) == [row(7, "a")]
    check_history(table, 2)


def create_and_append(uri, worker):
    """Several create the table, and write at once to whatever table there is then."""
    try:
        table = phalanx.create(uri, SCHEMA, ["part"])
        made = True
    except phalanx.TableExists:
        table = phalanx.open(uri)
        made = False
    table.append([row(worker, "a")])
    return made


def test_of_several_creators_one_wins(root):
    made = together(*((create_and_append, str(root), worker) for worker in range(4)))
    assert sorted(made) == [False, False, False, True]
    assert rows(phalanx.open(root)) == [row(worker, "a") for worker in range(4)]


def test_threads_with_a_handle_each_are_writers_too(root):
    phalanx.create(root, SCHEMA, ["part"])
    threads = [
        threading.Thread(target=append_many, args=(root, pairs, worker, 4, 5))
        for worker in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = phalanx.open(root)
    assert table.count() == 40
    check_history(table, 21)


# Changes


def increment(uri, turns):
    table = phalanx.open(uri)
    for _ in range(turns):
        assert table.update({"n": "n + 1"}, "id = 1") == 1


def upsert(uri, worker, turns):
    """Everybody brings the same keys, each with a value of its own."""
    table = phalanx.open(uri)
    for turn in range(turns):
        table.merge([row(100 + turn, "m", worker), row(200 + turn, f"m{turn}", worker)], ["id"])


@pytest.mark.parametrize(("workers", "turns"), SIZES)
def test_no_increment_is_lost_and_no_key_is_inserted_twice(root, workers, turns):
    table = phalanx.create(root, SCHEMA, ["part"])
    table.append([row(0, "a"), row(1, "a"), row(2, "b")])
    calls = [(increment, str(root), turns) for _ in range(workers // 2)]
    calls += [(upsert, str(root), w, turns // 2) for w in range(workers - workers // 2)]
    together(*calls, seconds=600)
    table.refresh()
    assert table.scan(where="id = 1").to_arrow().to_pylist() == [row(1, "a", workers // 2 * turns)]
    keys = sorted(table.scan(["id"], "id >= 100").to_arrow()["id"].to_pylist())
    assert keys == [base + turn for base in (100, 200) for turn in range(turns // 2)]
    assert table.count("id < 100") == 3


# Transfers

ACCOUNTS, BANKS, EACH = 4, 4, 100


def transfer(uri, worker, turns):
    """Move money between accounts of two banks; returns how often another came first."""
    choice = random.Random(worker)
    conflicts = 0
    table = phalanx.open(uri)
    for turn in range(turns):
        one, other = choice.sample(range(BANKS), 2)
        account, amount = choice.randrange(ACCOUNTS), choice.randrange(1, 5)
        source = f"part = 'bank-{one}' AND id = {one * ACCOUNTS + account}"
        target = f"part = 'bank-{other}' AND id = {other * ACCOUNTS + account}"
        while True:
            try:
                with table.transaction() as tx:
                    (has,) = tx.scan(["n"], source).to_arrow()["n"].to_pylist()
                    (had,) = tx.scan(["n"], target).to_arrow()["n"].to_pylist()
                    assert tx.update({"n": str(has - amount)}, source) == 1
                    # One in three adds instead of setting what was worked out from the read.
                    new = f"n + {amount}" if turn % 3 == 0 else str(had + amount)
                    assert tx.update({"n": new}, target) == 1
                break
            except ConflictError:
                conflicts += 1
                table.refresh()
    return conflicts


def total_of(uri):
    table = phalanx.open(uri)
    counts = table.scan(["n"]).to_arrow()["n"]
    assert len(counts) == table.count() == BANKS * ACCOUNTS
    return sum(counts.to_pylist())


def compact(uri):
    ManifestVersion(Location(uri)).compact(True)
    time.sleep(0.1)


def vacuum(uri):
    """Returns how many files went."""
    report = phalanx.open(uri).vacuum(dt.timedelta(minutes=30), force=True)
    time.sleep(0.2)
    return report.files


def open_accounts(root):
    """Accounts with an hour of history behind them: every file is that old."""
    table = phalanx.create(root, SCHEMA, ["part"])
    accounts = [row(id, f"bank-{id // ACCOUNTS}", EACH) for id in range(BANKS * ACCOUNTS)]
    table.append([row(77, "bank-0"), row(78, "closed")]).overwrite(accounts)
    table.update({"n": "n + 1"})
    table.update({"n": "n - 1"}, "id % 2 = 0 OR id > 0")
    then = time.time() - 3600
    for folder, _, names in os.walk(root):
        for name in names:
            os.utime(os.path.join(folder, name), (then, then))
    return table


@pytest.mark.parametrize(
    ("workers", "turns"), [(4, 5), pytest.param(8, 50, marks=pytest.mark.soak)]
)
def test_transfers_neither_make_nor_lose_money(root, workers, turns):
    table, uri = open_accounts(root), str(root)
    first = table.version
    with Background((total_of, uri), (compact, uri), (vacuum, uri)) as beside:
        conflicts = together(*((transfer, uri, w, turns) for w in range(workers)), seconds=900)
    sums, compactions, removed = beside.results
    print(
        f"\n{sum(conflicts)} conflicts, {len(sums)} sums, {len(compactions)} compactions, "
        f"{sum(removed)} files removed in {len(removed)} vacuums"
    )
    assert set(sums) == {BANKS * ACCOUNTS * EACH}
    assert len(compactions) > 1
    assert sum(removed) > 10

    table.refresh()
    history = table.snapshots()
    versions, operations = history["version"].to_pylist(), history["operation"].to_pylist()
    assert versions == list(range(versions[0], table.version + 1))
    assert operations[versions.index(first + 1) :].count("update") == workers * turns
    for version in versions if workers == 4 else versions[::7]:
        then = phalanx.open(root, version=version).scan(["n"]).to_arrow()["n"].to_pylist()
        assert sum(then) == BANKS * ACCOUNTS * EACH, version
    assert table.check().ok


# Weak tables


def become_strong(uri):
    time.sleep(0.3)
    phalanx.open(uri).make_strong()


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize(("workers", "turns"), SIZES)
def test_weak_writers(root, workers, turns, stays):
    """Every row is there once, also where the table becomes strong in the middle of it."""
    phalanx.create(root, SCHEMA, ["part"], transactions="weak")
    calls = [(append_many, str(root), pairs, w, workers, turns) for w in range(workers)]
    together(*calls, *([] if stays else [(become_strong, str(root))]), seconds=600)
    table = phalanx.open(root)
    expected = [
        row((worker * turns + turn) * 2 + i, part)
        for worker in range(workers)
        for turn in range(turns)
        for i, part in enumerate(pairs(worker, turn, workers))
    ]
    assert rows(table) == expected
    assert parts(table) == Counter(found["part"] for found in expected)
    check_history(table, 1 + workers * turns + (not stays))
