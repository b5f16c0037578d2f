"""Hypothesis strategies: small random tables, specs for them, and filters that cut near their rows.

A filter is worth little if its constants lie far from the data, so they are taken from the rows,
as they are or moved by one unit.
"""

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionSpec, build_spec, expr
from tests.model import oracle
from tests.model.oracle import NULL, Condition, Constant, Row, Term

NEW_YORK = "America/New_York"
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True)
class Kind:
    """A type of column: the values to fill it with, how they compare, how it can be cut."""

    type: pa.DataType
    stored: st.SearchStrategy[Any]
    family: str
    order: Callable[[Any], Any] = lambda stored: stored
    entries: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()
    small: bool = False

    @property
    def zone(self) -> str | None:
        return self.type.tz if pa.types.is_timestamp(self.type) else None

    def array(self, stored: list[Any]) -> pa.Array:
        if pa.types.is_temporal(self.type):
            storage = pa.int32() if pa.types.is_date32(self.type) else pa.int64()
            return pa.array(stored, storage).view(self.type)
        if pa.types.is_float16(self.type):
            stored = [None if value is None else np.float16(value) for value in stored]
        return pa.array(stored, self.type)


def whole(type: pa.DataType, low: int, high: int) -> Kind:
    small = st.integers(max(low, -25), 25)
    ends = st.sampled_from([low, low + 1, high - 1, high])
    is_small = type == pa.int32()
    return Kind(
        type,
        small if is_small else small | ends,
        "number",
        entries=("{c}", "truncate(10, {c})", "truncate(3, {c})", "bucket(2, {c})", "bucket(5, {c})"),
        expressions=("col0 % 3", "abs(col0)", "col0 / 4") if is_small else ("col0 / 4",),
        small=is_small,
    )


def floating(type: pa.DataType) -> Kind:
    bits = type.bit_width
    values = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1.5, 0.1, 3.0, -7.25, 12.0, 60000.0]
    return Kind(
        type,
        st.sampled_from([float(oracle.rounded(str(v), bits)[1]) if v == v else v for v in values]),
        f"float{bits}",
        oracle.float_order,
        entries=("{c}", "truncate(2, {c})", "bucket(3, {c})"),
        expressions=("floor(col0)",) if bits > 16 else (),
    )


def decimal(type: pa.DataType) -> Kind:
    unit = Decimal(1).scaleb(-type.scale)
    top = 10 ** min(type.precision, 25) - 1
    steps = st.integers(-30, 30) | st.sampled_from([-1999, -1000, 500, 999, 1000, top, -top])
    return Kind(
        type,
        steps.map(lambda n: n * unit),
        "number",
        Fraction,
        entries=("{c}", "truncate(5, {c})", "bucket(3, {c})"),
    )


TEXTS = ["", "a", "ab", "abc", "abd", "b", "B", "ß", "aé", "日本", "日", "a\0", "a'b", "a%b", "a\\", "😀x", "\U0010ffff", "é"]


def text(type: pa.DataType) -> Kind:
    return Kind(
        type,
        st.sampled_from(TEXTS),
        "text",
        entries=("{c}", "truncate(1, {c})", "truncate(2, {c})", "bucket(3, {c})"),
        expressions=("upper(col0)", "left(col0, 2)", "character_length(col0)"),
    )


#: Seconds at which something begins: years, months, days, hours, and the clock in New York.
BEGINNINGS = [
    int((moment - dt.datetime(1970, 1, 1)).total_seconds())
    for moment in [
        dt.datetime(1950, 3, 1),
        dt.datetime(1969, 12, 31),
        dt.datetime(1970, 1, 1),
        dt.datetime(2024, 2, 29),
        dt.datetime(2024, 12, 30),  # A Monday.
        dt.datetime(2025, 1, 1),
        dt.datetime(2025, 1, 1, 5),  # Midnight in New York.
        dt.datetime(2025, 3, 9, 7),  # An hour is left out there.
        dt.datetime(2025, 11, 2, 6),  # An hour comes twice there.
        dt.datetime(2025, 12, 10, 10),
        dt.datetime(2025, 12, 11),
        dt.datetime(2100, 1, 1),
    ]
]


def timestamp(unit: str, zone: str | None = None) -> Kind:
    per_second = PER_SECOND[unit]
    moved = st.sampled_from([0, 0, -1, 1, per_second, 3_599 * per_second, -3_600 * per_second])
    return Kind(
        pa.timestamp(unit, zone),
        st.builds(lambda start, by: start * per_second + by, st.sampled_from(BEGINNINGS), moved),
        "time",
        lambda stored: Fraction(stored, per_second),
        entries=(
            "{c}",
            "year({c})",
            "month({c})",
            "day({c})",
            "hour({c})",
            "months({c})",
            "days({c})",
            "hours({c})",
            "bucket(3, {c})",
        ),
        expressions=(
            "date_trunc('week', col0)",
            "date_trunc('month', col0)",
            "date_trunc('hour', col0)",
            "cast(col0 as date)",
            "date_part('year', col0)",
            "date_part('quarter', col0)",
        ),
    )


def date(type: pa.DataType) -> Kind:
    per_day = 1 if pa.types.is_date32(type) else 86_400_000
    days = st.builds(
        lambda start, by: start // 86_400 + by,
        st.sampled_from(BEGINNINGS),
        st.sampled_from([0, 0, -1, 1, 6, 30]),
    )
    return Kind(
        type,
        days.map(lambda day: day * per_day),
        "time",
        lambda stored: Fraction(stored * 86_400, per_day),
        entries=("{c}", "year({c})", "month({c})", "day({c})", "days({c})", "bucket(3, {c})"),
        expressions=("date_trunc('week', col0)", "date_part('month', col0)"),
    )


KINDS = {
    "i8": whole(pa.int8(), -128, 127),
    "i16": whole(pa.int16(), -(2**15), 2**15 - 1),
    "i32": whole(pa.int32(), -(2**31), 2**31 - 1),
    "j32": whole(pa.int32(), -(2**31), 2**31 - 1),
    "i64": whole(pa.int64(), -(2**63), 2**63 - 1),
    "u8": whole(pa.uint8(), 0, 255),
    "u64": whole(pa.uint64(), 0, 2**64 - 1),
    "f16": floating(pa.float16()),
    "f32": floating(pa.float32()),
    "f64": floating(pa.float64()),
    "dec": decimal(pa.decimal128(9, 2)),
    "big": decimal(pa.decimal128(38, 10)),
    "s": text(pa.string()),
    "t": text(pa.large_string()),
    "b": Kind(
        pa.bool_(), st.booleans(), "bool", int, entries=("{c}", "bucket(2, {c})")
    ),
    "d32": date(pa.date32()),
    "d64": date(pa.date64()),
    "ts_s": timestamp("s"),
    "ts_ms": timestamp("ms"),
    "ts": timestamp("us"),
    "ts_ns": timestamp("ns"),
    "utc": timestamp("us", "UTC"),
    "ny": timestamp("us", NEW_YORK),
    "ny_s": timestamp("s", NEW_YORK),
}
#: Fields of a struct column.
NESTED = {"in.n": "i32", "in.when": "ts_ms"}


@dataclass
class Table:
    """Rows twice: as Arrow data, and as values that the oracle compares."""

    schema: TableSchema
    spec: PartitionSpec
    batch: pa.RecordBatch
    rows: list[Row]
    kinds: dict[str, Kind]

    def term(self, name: str) -> Term:
        kind = self.kinds[name]
        shown = ".".join(f'"{part}"' for part in name.split(".")) if "." in name else name
        return Term(shown, lambda row: row[name], kind.family, kind.zone)

    def __repr__(self) -> str:
        rows = "\n  ".join(str({k: str(v) for k, v in row.items()}) for row in self.rows)
        return f"{self.spec.spell(self.schema)} over\n  {rows}"


@st.composite
def tables(draw: st.DrawFn) -> Table:
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3, unique=True))
    count = draw(st.integers(1, 12))
    kinds = {name: KINDS[name] for name in names}
    nullable = {name: draw(st.booleans()) for name in names}
    if draw(st.booleans()):
        kinds |= {name: KINDS[kind] for name, kind in NESTED.items()}
    stored = {
        name: draw(
            st.lists(
                st.none() | kind.stored if nullable.get(name, True) else kind.stored,
                min_size=count,
                max_size=count,
            )
        )
        for name, kind in kinds.items()
    }
    arrays = {name: kind.array(stored[name]) for name, kind in kinds.items() if "." not in name}
    fields = [pa.field(name, array.type, nullable[name]) for name, array in arrays.items()]
    columns = list(arrays.values())
    if "in.n" in kinds:
        gone = draw(st.lists(st.booleans(), min_size=count, max_size=count))
        inner = [kinds[name].array(stored[name]) for name in NESTED]
        mask = pa.array(gone)
        columns.append(pa.StructArray.from_arrays(inner, ["n", "when"], mask=mask))
        fields.append(pa.field("in", columns[-1].type))
        for name in NESTED:
            stored[name] = [
                None if lost else value for lost, value in zip(gone, stored[name], strict=True)
            ]
    schema = TableSchema.assign(pa.schema(fields))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    rows = [
        {
            name: None if stored[name][i] is None else kind.order(stored[name][i])
            for name, kind in kinds.items()
        }
        for i in range(count)
    ]
    return Table(schema, draw(specs(schema, kinds)), batch, rows, kinds)


@st.composite
def specs(draw: st.DrawFn, schema: TableSchema, kinds: dict[str, Kind]) -> PartitionSpec:
    names = st.sampled_from(sorted(kinds))
    several = ["multi_bucket(3, {a}, {b})", "multi_bucket(2, {a})"]
    entries: list[Any] = []
    for i in range(draw(st.integers(0, 3))):
        name = draw(names)
        kind = kinds[name]
        choice = draw(st.sampled_from([*kind.entries, *kind.expressions, *several]))
        if choice in kind.expressions:
            entries.append(expr(choice, [name], name=f"e{i}"))
        else:
            entries.append(choice.format(c=name, a=name, b=draw(names)))
    if {"s", "t"} <= kinds.keys() and draw(st.booleans()):
        entries.append(expr("concat(col0, col1)", ["s", "t"], name="joined"))
    unique = [e for i, e in enumerate(entries) if e not in entries[:i]]
    try:
        return build_spec(1, unique, schema)
    except ValueError:  # The same field twice, as in days(ts) and year(ts).
        return build_spec(1, unique[:1], schema)


# Filters --------------------------------------------------------------------------------------


@st.composite
def constants(draw: st.DrawFn, term: Term, rows: list[Row]) -> Constant:
    """A constant to compare a term with, near one of the values it has."""
    near = draw(st.sampled_from([value for row in rows if (value := term.value(row)) is not None] or [None]))
    if near is None or draw(st.integers(0, 19)) == 0:
        return NULL if draw(st.booleans()) else draw(far(term))
    match term.family:
        case "number":
            moved = Fraction(near) + draw(st.sampled_from([0, 0, 0, 1, -1, Fraction(1, 2), Fraction(-1, 1000), 10]))
            constant = oracle.number(moved)
            return Constant(f"'{constant.sql}'", constant.value) if draw(st.integers(0, 9)) == 0 else constant
        case "bool":
            return Constant(["FALSE", "TRUE"][near], near)
        case "text":
            changed = draw(st.sampled_from([near, near, near[:1], near[:-1], near + "\0", near + "a"]))
            return Constant(oracle.quoted(changed), changed)
        case "time":
            return draw(moments(term, near))
    bits = int(term.family.removeprefix("float"))
    nan, value = near
    shown = "'NaN'" if nan else f"'{value}'" if math.isinf(value) else repr(value)
    if not nan and math.isfinite(value):
        beside = [value, value, value + 1, float(np.nextafter(value, math.inf)), -value]
        shown = repr(draw(st.sampled_from(beside)))
    return Constant(shown, oracle.rounded(shown.strip("'"), bits))


def far(term: Term) -> st.SearchStrategy[Constant]:
    """Constants that have nothing to do with the data."""
    match term.family:
        case "number":
            return st.sampled_from([-(10**40), -129, 0, 10**30]).map(oracle.number)
        case "text":
            return st.sampled_from(TEXTS).map(lambda t: Constant(oracle.quoted(t), t))
        case "bool":
            return st.sampled_from([Constant("FALSE", 0), Constant("TRUE", 1)])
        case "time":
            return st.sampled_from([-(10**9), 0, 3 * 10**9]).flatmap(
                lambda seconds: moments(term, Fraction(seconds))
            )
    bits = int(term.family.removeprefix("float"))
    shown = st.sampled_from(["1e300", "-1e300", "1e-320", "'NaN'", "'inf'", "'-inf'", "-0.0", "0"])
    return shown.map(lambda s: Constant(s, oracle.rounded(s.strip("'"), bits)))


@st.composite
def moments(draw: st.DrawFn, term: Term, near: Fraction) -> Constant:
    """A point in time near another, in one of the ways to write one."""
    by = draw(st.sampled_from([0, 0, 1, -1, 3_600, 86_400, -86_400, Fraction(1, 10**6), Fraction(-1, 2)]))
    at = Fraction(near) + by
    if draw(st.integers(0, 3)) == 0:
        unit = draw(st.sampled_from(["hour", "week", "month", "year"]))
        at = oracle.truncated(at, unit, term.zone)
    nanos = math.floor(at % 1 * 10**9)
    clock = oracle.local(at, term.zone)
    form = draw(st.sampled_from(["naive", "zulu", "offset", "date"]))
    prefix = draw(st.sampled_from(["", "TIMESTAMP "]))
    if form == "date":
        day = clock.replace(hour=0, minute=0, second=0)
        prefix = draw(st.sampled_from(["", "DATE "]))
        return Constant(f"{prefix}'{day.date()}'", oracle.instant(day, term.zone))
    if form == "naive" and oracle.instant(clock, term.zone) == math.floor(at):
        return Constant(f"{prefix}'{oracle.time_text(clock, nanos, ' ')}'", at)
    if form == "offset":
        ahead = oracle.local(at + 7_200, None)
        return Constant(f"{prefix}'{oracle.time_text(ahead, nanos)}+02:00'", at)
    return Constant(f"{prefix}'{oracle.time_text(oracle.local(at, None), nanos)}Z'", at)


@st.composite
def patterns(draw: st.DrawFn, term: Term, rows: list[Row]) -> str:
    near = draw(st.sampled_from([value for row in rows if (value := term.value(row)) is not None] or ["a"]))
    plain = "".join("\\" + char if char in "%_\\" else char for char in near[: draw(st.integers(0, 3))])
    return plain + draw(st.sampled_from(["", "%", "%", "_", "_%", "%%", "%b", "\\%", "\\_%", "\\\\"]))


@st.composite
def terms(draw: st.DrawFn, table: Table) -> Term:
    name = draw(st.sampled_from(sorted(table.kinds)))
    kind, column = table.kinds[name], table.term(name)
    functions = oracle.functions_of(
        column, pa.types.is_integer(kind.type), kind.small, not pa.types.is_date(kind.type)
    )
    return draw(st.sampled_from([column] * max(2, len(functions)) + functions))


OPERATORS = ["=", "=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]


@st.composite
def leaves(draw: st.DrawFn, table: Table) -> Condition:
    """A condition on one term."""
    term, rows = draw(terms(table)), table.rows
    near = constants(term, rows)
    forms = ["compare"] * 4 + ["in", "in", "between", "null"]
    forms += ["like"] * 3 if term.family == "text" else []
    forms += ["truth"] if term.family == "bool" else []
    forms += ["columns"] if {"i32", "j32"} <= table.kinds.keys() else []
    negated = draw(st.booleans())
    match draw(st.sampled_from(forms)):
        case "in":
            return oracle.membership(term, draw(st.lists(near, min_size=1, max_size=4)), negated)
        case "between":
            return oracle.between(term, draw(near), draw(near), negated)
        case "null":
            return oracle.is_null(term, negated)
        case "like":
            return oracle.like(term, draw(patterns(term, rows)), negated)
        case "truth":
            return oracle.truth(term)
        case "columns":
            op = draw(st.sampled_from(OPERATORS))
            return oracle.comparison(table.term("i32"), op, table.term("j32"))
    flip = draw(st.integers(0, 4)) == 0
    return oracle.comparison(term, draw(st.sampled_from(OPERATORS)), draw(near), flip)


@st.composite
def conditions(draw: st.DrawFn, table: Table, depth: int = 3) -> Condition:
    form = draw(st.sampled_from(["leaf", "leaf", "and", "or", "not", "is"])) if depth else "leaf"
    if form == "leaf":
        return draw(leaves(table))
    inner = conditions(table, depth - 1)
    if form == "not":
        return oracle.negation(draw(inner))
    if form == "is":
        wanted = draw(st.sampled_from([True, False, None]))
        return oracle.is_truth(draw(inner), wanted, draw(st.booleans()))
    several = draw(st.lists(inner, min_size=2, max_size=3))
    return (oracle.conjunction if form == "and" else oracle.disjunction)(several)
