"""Numbers, ages and times that nobody means: an answer, or one clear sentence."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pytest

import phalanx
from phalanx import InvalidInput, PhalanxError
from phalanx.transaction.epochs import Epoch
from tests.table.rows import ROWS

HUGE = [2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 2**70, 10**400]
ODD = [0, -1, -(2**31), -(2**63), -(2**70)]
NO_NUMBERS = [True, False, 1.0, 1e300, math.nan, math.inf, Decimal(3), np.int64(3), "3", [], b"1"]
AGES = [
    *(dt.timedelta.max, dt.timedelta.min, dt.timedelta(0), dt.timedelta(microseconds=-1)),
    *(dt.timedelta(days=400_000), dt.timedelta(days=800_000), dt.timedelta(days=999_999_999)),
    *(0, 7, -1, 2**70, math.nan, True, "7 days", dt.datetime.max, np.timedelta64(3)),
]
EAST, WEST = (dt.timezone(dt.timedelta(hours=hours, minutes=59)) for hours in (23, -24))
TIMES = [
    *(
        time.replace(tzinfo=zone)
        for time in (dt.datetime.min, dt.datetime.max)
        for zone in (None, dt.UTC, EAST, WEST)
    ),
    *(dt.date(2025, 1, 1), dt.time(1), np.datetime64("2025-01-01")),
]
VERSIONS = [*HUGE, *ODD, *NO_NUMBERS, *TIMES, "", "no tag", "x" * 10_000, "\0", ()]

#: A call with one argument, and the values that are tried. `None` means the default.
CALLS = {
    "open": (lambda t, v: phalanx.open(t.uri, v), VERSIONS),
    "rollback": (lambda t, v: t.rollback(v), VERSIONS),
    "tag": (lambda t, v: t.tag("name", v), VERSIONS),
    "tag name": (lambda t, v: t.tag(v), VERSIONS),
    "drop_tag": (lambda t, v: t.drop_tag(v), VERSIONS),
    "limit": (lambda t, v: t.scan(limit=v).to_arrow(), [*HUGE, *ODD, *NO_NUMBERS]),
    "limit of a count": (lambda t, v: t.scan(limit=v).count(), [*HUGE, *ODD, *NO_NUMBERS]),
    "limit and filter": (
        lambda t, v: t.scan(where="id > 1", limit=v).to_arrow(),
        [*HUGE, *ODD, *NO_NUMBERS],
    ),
    "limit, unordered": (
        lambda t, v: list(t.scan(limit=v).to_batches(ordered=False)),
        [*HUGE, *ODD, *NO_NUMBERS],
    ),
    "limit in a transaction": (
        lambda t, v: t.transaction().scan(limit=v).to_arrow(),
        [*HUGE, *ODD, *NO_NUMBERS],
    ),
    "append": (lambda t, v: t.append(ROWS, buffer_bytes=v), [*HUGE, *ODD, *NO_NUMBERS]),
    "overwrite": (lambda t, v: t.overwrite(ROWS, buffer_bytes=v), [*HUGE, *ODD, *NO_NUMBERS]),
    "transaction_id": (lambda t, v: t.append(ROWS, transaction_id=v), VERSIONS),
    "epoch": (lambda t, v: t.transaction(epoch=Epoch("q", v)), [*HUGE, *ODD, *NO_NUMBERS]),
    "query": (lambda t, v: t.transaction(epoch=Epoch(v, 1)), VERSIONS),
    "vacuum": (lambda t, v: t.vacuum(v), AGES),
    "vacuum, forced": (lambda t, v: t.vacuum(v, force=True), AGES),
    "vacuum, dry": (lambda t, v: t.vacuum(v, dry_run=True), AGES),
    "expire_snapshots": (lambda t, v: t.expire_snapshots(v), AGES),
    "target_rows": (lambda t, v: t.optimize(target_rows=v), [*HUGE, *ODD, *NO_NUMBERS]),
    "target_bytes": (lambda t, v: t.optimize(target_bytes=v), [*HUGE, *ODD, *NO_NUMBERS]),
    "both targets, sorted": (
        lambda t, v: t.optimize(target_rows=v, target_bytes=v, sort_by=["id"]),
        [*HUGE, *ODD, *NO_NUMBERS],
    ),
    "step_rows": (lambda t, v: t.rewrite(step_rows=v), [*HUGE, *ODD, *NO_NUMBERS]),
    "step_bytes": (lambda t, v: t.rewrite(step_bytes=v), [*HUGE, *ODD, *NO_NUMBERS]),
    "max_steps": (lambda t, v: t.rewrite(max_steps=v), [*HUGE, *ODD, *NO_NUMBERS]),
    "advise": (lambda t, v: str(t.advise(v)), [*HUGE, *ODD, *NO_NUMBERS]),
    "bucket": (
        lambda t, v: t.evolve_partitioning([f"bucket({v}, id)"]),
        [*HUGE, *ODD, *NO_NUMBERS],
    ),
    "truncate": (
        lambda t, v: t.evolve_partitioning([f"truncate({v}, id)"]),
        [*HUGE, *ODD, *NO_NUMBERS],
    ),
    "a constant": (lambda t, v: t.count(f"id = {v}"), [*HUGE, *ODD, *NO_NUMBERS]),
    "a constant in arithmetic": (lambda t, v: t.count(f"id + {v} > 3"), [*HUGE, *ODD]),
    "a new value": (lambda t, v: t.update({"id": f"{v}"}, "id = 1"), [*HUGE, *ODD]),
    "a row": (lambda t, v: t.append([{"id": v, "part": "a"}]), [*HUGE, *ODD, *NO_NUMBERS]),
    "a key": (lambda t, v: t.merge([{"id": v, "part": "a"}], on=["id"]), [*HUGE, *ODD]),
    "a default": (
        lambda t, v: t.add_column("more", "int64", default=v),
        [*HUGE, *ODD, *NO_NUMBERS, *TIMES],
    ),
    "a default that is a time": (
        lambda t, v: t.add_column("more", "timestamp[ns, UTC]", default=v),
        [*HUGE, *ODD, *NO_NUMBERS, *TIMES],
    ),
    "a property": (
        lambda t, v: t.set_properties({"retention.min_snapshots": v}),
        [*HUGE, *ODD, *NO_NUMBERS, *map(str, [*HUGE, *ODD])],
    ),
    "an age as a property": (
        lambda t, v: t.set_properties({"retention.snapshots": f"{v} weeks"}).expire_snapshots(),
        [*HUGE, *ODD, *NO_NUMBERS],
    ),
    "an age of files": (
        lambda t, v: t.set_properties({"retention.snapshots": f"{v} weeks"}).vacuum(),
        [*HUGE, *ODD, *NO_NUMBERS],
    ),
    "snapshots to keep": (
        lambda t, v: t.set_properties({"retention.min_snapshots": f"{v}"}).vacuum(),
        [*HUGE, *ODD, *NO_NUMBERS],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_only_errors_of_our_own(strong, name):
    call, values = CALLS[name]
    for value in values:
        try:
            call(strong.refresh(), value)
        except PhalanxError as error:
            text = str(error)
            assert 0 < len(text) < 2_000, value
            assert "\n" not in text, (value, text)
    assert strong.refresh().check().ok


@pytest.mark.parametrize("limit", HUGE)
def test_a_huge_limit_is_none(table, limit):
    assert table.scan(limit=limit).to_arrow().num_rows == table.count()
    assert table.scan(where="id > 1", limit=limit).count() == table.count("id > 1")


@pytest.mark.parametrize("number", [*ODD[1:], *NO_NUMBERS])
def test_what_is_no_limit(table, number):
    with pytest.raises(InvalidInput, match="a limit is a whole number from 0, not "):
        table.scan(limit=number)
