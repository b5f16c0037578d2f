"""Check beside processes that write, compact, publish, expire and vacuum: no false alarm."""

import datetime as dt
import itertools
import time

import pytest

import phalanx
from phalanx.table import vacuum as vacuuming
from tests.table.damage import check, create, repair, row
from tests.transaction.processes import Background

NOTHING = dt.timedelta(0)
_numbers = itertools.count(1000)


def write(root):
    """Add rows to leaves that are there and to new ones, and remove some."""
    table = phalanx.open(root)
    number = next(_numbers)
    table.append([row(number), row(number, "b"), row(number, f"p{number % 5}")])
    if number % 3 == 0:
        table.delete(f"part = 'p{number % 5}'")
    if number % 4 == 0:
        table.update({"id": "id + 1"}, "part = 'a'")


def keep_up(root):
    """Everything that upkeep does, as hard as it can: nothing is too young to be deleted."""
    vacuuming.SWAP_FLOOR = NOTHING
    table = phalanx.open(root)
    write(root)
    table.refresh().optimize()
    table.expire_snapshots(NOTHING)
    table.vacuum(NOTHING, force=True)


def false_alarms(root, seconds, *background):
    """Check again and again beside others; returns what was reported, and how many checks."""
    table, alarms, count = create(root), [], 0
    table.set_properties({"anchor": "commit"})
    with Background(*((function, root) for function in background)) as others:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            alarms += check(table).damage
            alarms += repair(table, dry_run=True).unmended
            count += 1
    assert count
    assert all(others.results), "nobody was beside it"
    return alarms


@pytest.mark.parametrize("background", [write, keep_up])
def test_no_false_alarm(root, background):
    assert false_alarms(root, 4, background) == []
    assert check(phalanx.open(root)).ok


@pytest.mark.soak
@pytest.mark.parametrize("background", [(write, write), (keep_up,)], ids=["writers", "upkeep"])
def test_no_false_alarm_for_long(root, background):
    assert false_alarms(root, 120, *background) == []
