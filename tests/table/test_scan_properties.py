"""Random tables and filters: a scan gives the rows that plain Python says it should.

A condition is its SQL and a function from a row to True, False or None, as in SQL. Nothing here
uses the model that it judges.
"""

import datetime as dt
import math
import operator
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import lance
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import phalanx

NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
FLOATS = [-math.inf, -2.5, -0.0, 0.0, 0.25, 2.0, math.inf, math.nan, NEGATIVE_NAN]
DAYS = [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(2025, 3, 1)]
TIMES = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_000),
    dt.datetime(2024, 12, 31, 23, 30),
    dt.datetime(2025, 1, 1),
    dt.datetime(2025, 1, 1, 0, 0, 0, 1_000),
    dt.datetime(2025, 6, 15, 12),
]
STRINGS = ["", "a", "ab", "b", "B", "ä", "a%", "a_b", "it's", "\\", "😀"]


@dataclass(frozen=True)
class Kind:
    """A type, values of it, constants to compare it with, and fields to cut it by."""

    type: pa.DataType
    values: list[Any]
    #: SQL and value; None is NULL.
    constants: list[tuple[str, Any]]
    fields: list[str]
    #: What Python compares in place of the value.
    order: Callable[[Any], Any] = lambda value: value


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


NUMBERS = [("-20", -20), ("-7", -7), ("0", 0), ("2.5", Decimal("2.5")), ("7", 7), ("1e3", 1000)]
FLOAT = Kind(
    pa.float64(),
    FLOATS,
    [*NUMBERS, ("0.25", 0.25), ("'NaN'", math.nan), ("'-Infinity'", -math.inf)],
    ["{c}", "bucket(3, {c})", "truncate(2, {c})"],
    lambda value: (math.isnan(value), 0 if math.isnan(value) else value),
)
TIME_CONSTANTS = [(f"TIMESTAMP '{t.isoformat()}'", t) for t in TIMES] + [
    ("'2025-01-01'", dt.datetime(2025, 1, 1)),
    ("'2024-06-01T00:00:00'", dt.datetime(2024, 6, 1)),
]
TIME_FIELDS = ["{c}", "year({c})", "months({c})", "days({c})", "hour({c})", "bucket(3, {c})"]
KINDS = [
    Kind(
        pa.int32(),
        [-20, -11, -10, -1, 0, 1, 7, 19],
        NUMBERS,
        ["{c}", "bucket(3, {c})", "truncate(10, {c})"],
    ),
    Kind(pa.int64(), [-(2**63), -7, 0, 7, 2**63 - 1], NUMBERS, ["{c}", "truncate(5, {c})"]),
    Kind(pa.uint8(), [0, 1, 7, 255], NUMBERS, ["{c}", "bucket(2, {c})", "truncate(4, {c})"]),
    FLOAT,
    Kind(pa.float32(), FLOAT.values, FLOAT.constants, FLOAT.fields, FLOAT.order),
    Kind(
        pa.string(),
        STRINGS,
        [(quoted(text), text) for text in [*STRINGS, "aa", "zzz"]],
        ["{c}", "bucket(3, {c})", "truncate(1, {c})"],
    ),
    Kind(pa.bool_(), [True, False], [("TRUE", True), ("FALSE", False)], ["{c}"]),
    Kind(
        pa.date32(),
        DAYS,
        [(quoted(d.isoformat()), d) for d in [*DAYS, dt.date(2024, 6, 1)]]
        + [("DATE '2025-01-01'", dt.date(2025, 1, 1))],
        ["{c}", "year({c})", "days({c})", "bucket(3, {c})"],
    ),
    Kind(pa.timestamp("us"), TIMES, TIME_CONSTANTS, TIME_FIELDS),
    Kind(
        pa.timestamp("ms", "UTC"),
        [t.replace(tzinfo=dt.UTC) for t in TIMES],
        [(sql, t.replace(tzinfo=dt.UTC)) for sql, t in TIME_CONSTANTS]
        + [("'2025-01-01T05:30:00+05:30'", dt.datetime(2025, 1, 1, tzinfo=dt.UTC))],
        TIME_FIELDS,
    ),
    Kind(
        pa.decimal128(9, 2),
        [Decimal("-3.50"), Decimal("-0.01"), Decimal("0.00"), Decimal("2.50"), Decimal("1000.00")],
        [*NUMBERS, ("-0.005", Decimal("-0.005"))],
        ["{c}", "bucket(3, {c})", "truncate(2, {c})"],
    ),
]


# Conditions ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    sql: str
    holds: Callable[[dict[str, Any]], bool | None]

    def __repr__(self):
        return self.sql


def invert(value):
    return None if value is None else not value


def both(values):
    return False if False in values else None if None in values else True


def either(values):
    return True if True in values else None if None in values else False


COMPARISONS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compared(kind, op, left, right):
    if left is None or right is None:
        return None
    return COMPARISONS[op](kind.order(left), kind.order(right))


def same(kind, left, right):
    if left is None or right is None:
        return left is right
    return kind.order(left) == kind.order(right)


@st.composite
def comparisons(draw, columns):
    name, kind = draw(st.sampled_from(columns))
    op = draw(st.sampled_from(list(COMPARISONS)))
    sql, value = draw(st.sampled_from(kind.constants))
    if draw(st.booleans()):
        return Condition(f"{name} {op} {sql}", lambda row: compared(kind, op, row[name], value))
    return Condition(f"{sql} {op} {name}", lambda row: compared(kind, op, value, row[name]))


@st.composite
def memberships(draw, columns):
    name, kind = draw(st.sampled_from(columns))
    options = st.sampled_from([*kind.constants, ("NULL", None)])
    items = draw(st.lists(options, min_size=1, max_size=4))
    sql = f"{name} IN ({', '.join(text for text, _ in items)})"

    def holds(row):
        return either([compared(kind, "=", row[name], value) for _, value in items])

    if draw(st.booleans()):
        return Condition(sql, holds)
    return Condition(sql.replace(" IN ", " NOT IN ", 1), lambda row: invert(holds(row)))


@st.composite
def ranges(draw, columns):
    name, kind = draw(st.sampled_from(columns))
    low, high = draw(st.sampled_from(kind.constants)), draw(st.sampled_from(kind.constants))

    def holds(row):
        above = compared(kind, ">=", row[name], low[1])
        return both([above, compared(kind, "<=", row[name], high[1])])

    if draw(st.booleans()):
        return Condition(f"{name} BETWEEN {low[0]} AND {high[0]}", holds)
    text = f"{name} NOT BETWEEN {low[0]} AND {high[0]}"
    return Condition(text, lambda row: invert(holds(row)))


@st.composite
def nullness(draw, columns):
    name, kind = draw(st.sampled_from(columns))
    match draw(st.integers(0, 3)):
        case 0:
            return Condition(f"{name} IS NULL", lambda row: row[name] is None)
        case 1:
            return Condition(f"{name} IS NOT NULL", lambda row: row[name] is not None)
    sql, value = draw(st.sampled_from([*kind.constants, ("NULL", None)]))
    if draw(st.booleans()):
        return Condition(f"{name} <=> {sql}", lambda row: same(kind, row[name], value))
    text = f"{name} IS DISTINCT FROM {sql}"
    return Condition(text, lambda row: not same(kind, row[name], value))


def like(text, pattern):
    """SQL's LIKE, where % and _ are the wildcards and there is nothing to escape."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(text[i:], pattern[1:]) for i in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and like(text[1:], pattern[1:])


@st.composite
def special(draw, columns):
    """What only some types have."""
    name, kind = draw(st.sampled_from(columns))
    type = kind.type
    if pa.types.is_boolean(type):
        return draw(
            st.sampled_from(
                [
                    Condition(name, lambda row: row[name]),
                    Condition(f"NOT {name}", lambda row: invert(row[name])),
                    Condition(f"{name} IS NOT TRUE", lambda row: row[name] is not True),
                    Condition(f"{name} IS FALSE", lambda row: row[name] is False),
                ]
            )
        )
    if pa.types.is_string(type):
        pattern = draw(st.sampled_from(["a%", "%", "", "a", "_", "%b", "a%b", "it%", "ä%", "_b%"]))
        negated = draw(st.booleans())

        def matches(row):
            found = None if row[name] is None else like(row[name], pattern)
            return invert(found) if negated else found

        return Condition(f"{name} {'NOT ' * negated}LIKE {quoted(pattern)}", matches)
    if pa.types.is_temporal(type):
        year = draw(st.sampled_from([1969, 2024, 2025]))
        op = draw(st.sampled_from(list(COMPARISONS)))

        def in_year(row):
            return None if row[name] is None else COMPARISONS[op](row[name].year, year)

        return Condition(f"year({name}) {op} {year}", in_year)
    if type == pa.int32():
        rest = draw(st.integers(-2, 2))

        def remainder(row):
            return None if row[name] is None else int(math.fmod(row[name], 3)) == rest

        return Condition(f"{name} % 3 = {rest}", remainder)
    return draw(comparisons(columns))


def conditions(columns):
    leaves = st.one_of(
        comparisons(columns),
        memberships(columns),
        ranges(columns),
        nullness(columns),
        special(columns),
    )

    def joined(word, combine):
        def join(parts):
            text = f" {word} ".join(f"({part})" for part in parts)
            return Condition(text, lambda row: combine([part.holds(row) for part in parts]))

        return join

    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(joined("AND", both)),
            st.lists(inner, min_size=2, max_size=3).map(joined("OR", either)),
            inner.map(lambda c: Condition(f"NOT ({c})", lambda row: invert(c.holds(row)))),
        ),
        max_leaves=5,
    )


# Tables -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    schema: pa.Schema
    partition_by: list[str]
    rows: list[dict[str, Any]]
    conditions: list[Condition]


@st.composite
def cases(draw):
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    columns = [(f"c{i}", kind) for i, kind in enumerate(kinds)]
    cut = draw(st.lists(st.sampled_from(columns), max_size=3, unique_by=lambda c: c[0]))
    partition_by = [draw(st.sampled_from(kind.fields)).format(c=name) for name, kind in cut]
    row = st.fixed_dictionaries(
        {name: st.sampled_from([*kind.values, None]) for name, kind in columns}
    )
    rows = [{"id": i, **r} for i, r in enumerate(draw(st.lists(row, max_size=14)))]
    schema = pa.schema([("id", pa.int64()), *((name, kind.type) for name, kind in columns)])
    chosen = draw(st.lists(conditions(columns), min_size=4, max_size=4))
    return Case(schema, partition_by, rows, chosen)


def leaves_of(table):
    """The ids of the rows of every leaf, read without Phalanx."""
    found = {}
    for leaf in table.partitions().to_pylist():
        dataset = lance.dataset(leaf["uri"], version=leaf["version"])
        found[leaf["uri"]] = dataset.to_table(columns=["id"])["id"].to_pylist()
    return found


def check(table, case, leaves, condition):
    matching = {row["id"] for row in case.rows if condition.holds(row) is True}
    scan = table.scan(columns=["id"], where=condition.sql)
    plan = scan.plan()
    assert plan.total == len(leaves)
    selected = {leaf.uri: leaf for leaf in plan.leaves}
    for uri, ids in leaves.items():
        if uri not in selected:
            assert matching.isdisjoint(ids), "never, and there is one"
        elif selected[uri].residual is None:
            assert matching.issuperset(ids), "always, and there is another"
    found = scan.to_arrow()["id"].to_pylist()
    assert len(found) == len(set(found))
    assert set(found) == matching
    assert scan.count() == len(matching)


@settings(
    max_examples=75,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases())
def test_a_scan_is_a_filter_over_all_rows(case):
    with tempfile.TemporaryDirectory() as root:
        table = phalanx.create(root, case.schema, case.partition_by)
        table.append(case.rows)
        leaves = leaves_of(table)
        assert sorted(id for ids in leaves.values() for id in ids) == list(range(len(case.rows)))
        for condition in case.conditions:
            check(table, case, leaves, condition)
