"""What tasks make of rows: parts that Spark combines to exactly its own results."""

import json
from collections import defaultdict
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.model.schema import TableSchema
from phalanx.spark import aggregate_tasks, reader
from phalanx.spark.aggregate_tasks import AggregateFunction, AggregateTask
from phalanx.spark.reader import Piece
from phalanx.spark.terms import term_of

NAN = float("nan")


class Unit:
    """Batches instead of a leaf."""

    def __init__(self, batches):
        self._batches = batches

    def scan(self, location, table, columns, in_order):
        return iter(self._batches)

    def count(self, location, table):
        return sum(len(batch) for batch in self._batches)


def run(schema, batches, groups, functions, types, known=(), constants=None):
    """What a task returns: `groups` are columns, or None where the piece has the value."""
    table = TableSchema.assign(schema)
    terms = [None if name is None else term_of({"column": [name]}, table) for name in groups]
    wanted = [
        AggregateFunction(name, None if column is None else term_of({"column": [column]}, table))
        for name, column in functions
    ]
    fields = [
        {"name": f"c{at}", "type": type, "nullable": True, "metadata": {}}
        for at, type in enumerate(types)
    ]
    piece = Piece(Unit(batches), group=constants)
    task = AggregateTask(
        "/nowhere", None, table, [piece], terms, wanted, known, json.dumps({"fields": fields})
    )
    return [tuple(row.values()) for batch in task([]) for row in batch.to_pylist()]


LONGS = pa.schema([("g", pa.string()), ("n", pa.int64())])
numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)


@given(
    st.lists(
        st.lists(st.tuples(st.none() | st.sampled_from("abc"), st.none() | numbers), min_size=1),
        max_size=4,
    )
)
def test_sums_that_may_overflow(batches):
    """No part is more than a long, and all parts of a group together are the sum."""
    made = [
        pa.record_batch([*map(list, zip(*rows, strict=True))], schema=LONGS) for rows in batches
    ]
    rows = run(LONGS, made, ["g"], [("SUM", "n"), ("COUNT", "n")], ["string", "long", "long"])
    wanted, given = defaultdict(lambda: [None, 0]), defaultdict(lambda: [None, 0])
    for group, value in [row for batch in batches for row in batch]:
        sums = wanted[group]
        if value is not None:
            wanted[group] = [(sums[0] or 0) + value, sums[1] + 1]
    for group, total, count in rows:
        sums = given[group]
        given[group] = [sums[0] if total is None else (sums[0] or 0) + total, sums[1] + count]
    assert given == wanted


def test_decimals_stay_within_their_type():
    """Spark casts a part to the type of what is summed."""
    schema = pa.schema([("d", pa.decimal128(3, 1))])
    batch = pa.record_batch([[Decimal("60.0"), Decimal("50.0"), None]], schema=schema)
    rows = run(schema, [batch], [], [("SUM", "d")], ["decimal(3,1)"])
    assert sorted(value for (value,) in rows if value is not None) == [50, 60]
    small = pa.record_batch([[Decimal("6.0"), Decimal("5.0"), None]], schema=schema)
    assert run(schema, [small], [], [("SUM", "d")], ["decimal(3,1)"]) == [(Decimal("11.0"),)]


def test_nan_is_the_greatest():
    schema = pa.schema([("g", pa.int32()), ("x", pa.float64())])
    batch = pa.record_batch([[1, 1, 2, 2], [NAN, 1.0, NAN, NAN]], schema=schema)
    rows = run(schema, [batch], ["g"], [("MAX", "x")], ["integer", "double"])
    assert any(group == 1 and value != value for group, value in rows)
    rows = run(schema, [batch], ["g"], [("MIN", "x")], ["integer", "double"])
    (one, two) = sorted(rows)
    assert one == (1, 1.0)
    assert two[1] != two[1]


def test_no_rows():
    functions = [("COUNT", None), ("SUM", "n"), ("MIN", "n")]
    assert run(LONGS, [], [], functions, ["long", "long", "long"]) == [(0, None, None)]
    assert run(LONGS, [], ["g"], functions, ["string", "long", "long", "long"]) == []


def test_known_rows_and_a_group_of_the_piece():
    batch = pa.record_batch([["x", "y"], [1, None]], schema=LONGS)
    functions = [("COUNT", None), ("COUNT", "n")]
    types = ["string", "string", "long", "long"]
    rows = run(LONGS, [batch], [None, "g"], functions, types, [("US", "x", 5, 5)], ("US", None))
    assert sorted(rows) == [("US", "x", 6, 6), ("US", "y", 1, 0)]


def test_as_many_groups_as_rows(monkeypatch):
    """Then they are not combined: a row is a part."""
    monkeypatch.setattr(aggregate_tasks, "_MANY", 8)
    monkeypatch.setattr(aggregate_tasks, "_TOGETHER", 8)
    monkeypatch.setattr(reader, "_JOINED_ROWS", 1)
    combined = []
    of = aggregate_tasks._Groups.combined

    def counted(self, rows):
        combined.append(self._worthwhile)
        return of(self, rows)

    monkeypatch.setattr(aggregate_tasks._Groups, "combined", counted)
    batches = [
        pa.record_batch([[f"{n}-{at}" for at in range(10)], list(range(10))], schema=LONGS)
        for n in range(3)
    ]
    rows = run(LONGS, batches, ["g"], [("SUM", "n")], ["string", "long"])
    assert len(rows) == 30
    assert combined == [True, False, False]


def test_rows_that_have_groups_in_common_only_with_rows_of_other_leaves(monkeypatch):
    """A batch is not judged by itself."""
    monkeypatch.setattr(aggregate_tasks, "_MANY", 8)
    monkeypatch.setattr(aggregate_tasks, "_TOGETHER", 100)
    monkeypatch.setattr(reader, "_JOINED_ROWS", 1)
    names = [str(at) for at in range(20)]
    batches = [pa.record_batch([names, [n] * 20], schema=LONGS) for n in range(12)]
    rows = run(LONGS, batches, ["g"], [("SUM", "n"), ("COUNT", None)], ["string", "long", "long"])
    assert sorted(rows) == sorted((name, sum(range(12)), 12) for name in names)


@pytest.mark.parametrize("of_the_piece", [True, False])
def test_rows_with_many_bytes_are_not_kept(monkeypatch, of_the_piece):
    monkeypatch.setattr(aggregate_tasks, "_MOST_BYTES", 1 << 16)
    monkeypatch.setattr(reader, "_JOINED_ROWS", 1)
    kept = []
    of = aggregate_tasks._Groups._keep

    def noted(self, *tables):
        kept.append(self._bytes)
        of(self, *tables)

    monkeypatch.setattr(aggregate_tasks._Groups, "_keep", noted)
    batches = [pa.record_batch([["x" * 10_000 + str(n)], [n]], schema=LONGS) for n in range(50)]
    groups, types, constants = ["g"], ["string", "long"], None
    if of_the_piece:
        groups, types, constants = [None, "g"], ["string", *types], ("US", None)
    rows = run(LONGS, batches, groups, [("SUM", "n")], types, constants=constants)
    assert sum(row[-1] for row in rows) == sum(range(50))
    assert max(kept) < 4 << 16


@pytest.mark.parametrize("kept", [4, 1 << 16])
def test_many_batches(monkeypatch, kept):
    monkeypatch.setattr(aggregate_tasks, "_MOST_KEPT", kept // 2)
    monkeypatch.setattr(aggregate_tasks, "_TOGETHER", 16)
    monkeypatch.setattr(reader, "_JOINED_ROWS", 1)
    batches = [pa.record_batch([["a", "b"] * 8, [n] * 16], schema=LONGS) for n in range(10)]
    rows = run(LONGS, batches, ["g"], [("MAX", "n"), ("SUM", "n")], ["string", "long", "long"])
    assert sum(total for _, _, total in rows) == 16 * 45
    assert max(most for _, most, _ in rows) == 9
    assert (len(rows) == 2) == (kept > 4)
