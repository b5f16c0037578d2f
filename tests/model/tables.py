"""Hypothesis strategies: small random tables, specs for them, and filters that cut near their rows.

A filter is worth little if its constants lie far from the data, so they are taken from the rows,
as they are or moved by one unit.
"""

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from phalanx.errors import InvalidInput
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionSpec, build_spec, expr
from tests.model import oracle
from tests.model.oracle import NULL, Condition, Constant, Row, Term

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@lru_cache
def below(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


class Pick:
    """Random choices, made in a way that is fast in Hypothesis and shrinks to the first option."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def one(self, options: Sequence[Any]) -> Any:
        return options[self._draw(below(len(options)))]

    def number(self, low: int, high: int) -> int:
        return low + self._draw(below(high - low + 1))

    def rarely(self, times: int = 10) -> bool:
        """True once in so many times."""
        return self._draw(below(times)) == times - 1


@dataclass(frozen=True)
class Kind:
    """A type of column: the values to fill it with, how they compare, how it can be cut."""

    type: pa.DataType
    stored: Sequence[Any]
    family: str
    order: Callable[[Any], Any] = lambda stored: stored
    entries: tuple[str, ...] = ("{c}", "bucket(2, {c})", "hash({c})")
    expressions: tuple[str, ...] = ()
    small: bool = False

    @property
    def zone(self) -> str | None:
        return self.type.tz if pa.types.is_timestamp(self.type) else None

    def array(self, stored: list[Any]) -> pa.Array:
        if pa.types.is_temporal(self.type):
            storage = pa.int32() if self.type.bit_width == 32 else pa.int64()
            return pa.array(stored, storage).view(self.type)
        if pa.types.is_dictionary(self.type):
            return pa.array(stored, self.type.value_type).dictionary_encode()
        if pa.types.is_float16(self.type):
            stored = [None if value is None else np.float16(value) for value in stored]
        return pa.array(stored, self.type)


def whole(type: pa.DataType, low: int, high: int, small: bool = False) -> Kind:
    numbers = list(range(max(low, -25), 26))
    return Kind(
        type,
        numbers if small else numbers + [low, low + 1, high - 1, high] * 4,
        "number",
        entries=(
            "{c}",
            "truncate(10, {c})",
            "truncate(3, {c})",
            "bucket(2, {c})",
            "bucket(5, {c})",
        ),
        expressions=("col0 % 3", "abs(col0)", "col0 / 4") if small else ("col0 / 4",),
        small=small,
    )


def floating(type: pa.DataType) -> Kind:
    bits = type.bit_width
    values = [0.0, -0.0, 1.5, -1.5, 0.1, 3.0, -7.25, 12.0, 60000.0, math.inf, -math.inf]
    rounded = [oracle.rounded(str(value), bits)[1] for value in values]
    return Kind(
        type,
        [*rounded, math.nan],
        f"float{bits}",
        oracle.float_order,
        entries=("{c}", "truncate(2, {c})", "bucket(3, {c})"),
        expressions=("floor(col0)",) if bits > 16 else (),
    )


def decimal(type: pa.DataType) -> Kind:
    unit = Decimal(1).scaleb(-type.scale)
    top = 10 ** min(type.precision, 25) - 1
    steps = [*range(-30, 31), -1999, -1000, 500, 999, 1000, top, -top]
    return Kind(
        type,
        [step * unit for step in steps],
        "number",
        Fraction,
        entries=("{c}", "truncate(5, {c})", "bucket(3, {c})"),
    )


TEXTS = ["a", "ab", "abc", "abd", "b", "", "B", "ß", "aé", "日本", "日", "a\0", "a'b", "a%b", "a_"]
TEXTS += ["a\\", "😀x", "\U0010ffff", "é", "a b", "\n"]


def text(type: pa.DataType) -> Kind:
    return Kind(
        type,
        TEXTS,
        "text",
        entries=("{c}", "truncate(1, {c})", "truncate(2, {c})", "bucket(3, {c})"),
        expressions=("upper(col0)", "left(col0, 2)", "character_length(col0)"),
    )


#: Seconds at which something begins: years, months, days, hours, and the clock in New York.
BEGINNINGS = [
    int((moment - dt.datetime(1970, 1, 1)).total_seconds())
    for moment in [
        dt.datetime(2025, 12, 11),
        dt.datetime(2025, 12, 10, 10),
        dt.datetime(2024, 2, 29),
        dt.datetime(2024, 12, 30),  # A Monday.
        dt.datetime(2025, 1, 1),
        dt.datetime(2025, 1, 1, 5),  # Midnight in New York.
        dt.datetime(2025, 3, 9, 7),  # An hour is left out there.
        dt.datetime(2025, 11, 2, 6),  # An hour comes twice there.
        dt.datetime(1950, 3, 1),
        dt.datetime(1969, 12, 31),
        dt.datetime(1970, 1, 1),
        dt.datetime(2100, 1, 1),
    ]
]


def timestamp(unit: str, zone: str | None = None) -> Kind:
    second = PER_SECOND[unit]
    return Kind(
        pa.timestamp(unit, zone),
        [
            start * second + by
            for start in BEGINNINGS
            for by in (0, 0, -1, 1, second, 3_599 * second, -3_600 * second)
        ],
        "time",
        lambda stored: Fraction(stored, second),
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
    return Kind(
        type,
        [(start // 86_400 + by) * per_day for start in BEGINNINGS for by in (0, 0, -1, 1, 6, 30)],
        "time",
        lambda stored: Fraction(stored * 86_400, per_day),
        entries=("{c}", "year({c})", "month({c})", "day({c})", "days({c})", "bucket(3, {c})"),
        expressions=("date_trunc('week', col0)", "date_part('month', col0)"),
    )


def clock(type: pa.DataType) -> Kind:
    second = PER_SECOND[type.unit]
    starts = [0, 1, 3_600, 43_200, 86_399]
    return Kind(
        type,
        [start * second + by for start in starts for by in (0, 1) if start + by < 86_400],
        "clock",
        lambda stored: Fraction(stored, second),
    )


KINDS = {
    "i32": whole(pa.int32(), -(2**31), 2**31 - 1, small=True),
    "j32": whole(pa.int32(), -(2**31), 2**31 - 1, small=True),
    "i8": whole(pa.int8(), -128, 127),
    "i16": whole(pa.int16(), -(2**15), 2**15 - 1),
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
    "word": text(pa.dictionary(pa.int32(), pa.string())),
    "bin": Kind(
        pa.binary(), [b"", b"a", b"a\0", b"b", b"\xff"], "bytes", entries=("bucket(3, {c})",)
    ),
    "b": Kind(pa.bool_(), [False, True], "bool", int),
    "time": clock(pa.time64("us")),
    "time_s": clock(pa.time32("s")),
    "d32": date(pa.date32()),
    "d64": date(pa.date64()),
    "ts_s": timestamp("s"),
    "ts_ms": timestamp("ms"),
    "ts": timestamp("us"),
    "ts_ns": timestamp("ns"),
    "utc": timestamp("us", "UTC"),
    "ny": timestamp("us", "America/New_York"),
    "ny_s": timestamp("s", "America/New_York"),
}
#: Fields of a struct column.
NESTED = {"st.n": "i32", "st.at": "ts_ms"}


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
        return Term(name, lambda row: row[name], kind.family, kind.zone)

    def __repr__(self) -> str:
        rows = "\n  ".join(str({k: str(v) for k, v in row.items()}) for row in self.rows)
        return f"{self.spec.spell(self.schema)} over\n  {rows}"


@st.composite
def cases(draw: st.DrawFn, filters: int) -> tuple[Table, list[Condition]]:
    """A table and some filters for it."""
    pick = Pick(draw)
    table = random_table(pick)
    return table, [condition(pick, table) for _ in range(filters)]


def random_table(pick: Pick) -> Table:
    everything = list(KINDS)
    names = sorted({pick.one(everything) for _ in range(pick.one([1, 1, 2, 3]))})
    kinds = {name: KINDS[name] for name in names}
    if pick.rarely(3):
        kinds |= {name: KINDS[kind] for name, kind in NESTED.items()}
    nullable = {name: "." in name or pick.one([False, True]) for name in kinds}
    count = pick.number(1, 12)
    stored = {
        name: [
            None if nullable[name] and pick.rarely(6) else pick.one(kind.stored)
            for _ in range(count)
        ]
        for name, kind in kinds.items()
    }
    columns = [kinds[name].array(stored[name]) for name in names]
    fields = [pa.field(name, kinds[name].type, nullable[name]) for name in names]
    if NESTED.keys() <= kinds.keys():
        gone = [pick.rarely(4) for _ in range(count)]
        for name in NESTED:
            stored[name] = [None if gone[i] else stored[name][i] for i in range(count)]
        inner = [kinds[name].array(stored[name]) for name in NESTED]
        inner_names = [name.partition(".")[2] for name in NESTED]
        columns.append(pa.StructArray.from_arrays(inner, inner_names, mask=pa.array(gone)))
        fields.append(pa.field("st", columns[-1].type))
    schema = TableSchema.assign(pa.schema(fields))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    rows = [
        {
            name: None if stored[name][i] is None else kind.order(stored[name][i])
            for name, kind in kinds.items()
        }
        for i in range(count)
    ]
    return Table(schema, random_spec(pick, schema, kinds), batch, rows, kinds)


def random_spec(pick: Pick, schema: TableSchema, kinds: dict[str, Kind]) -> PartitionSpec:
    names = list(kinds)
    entries: list[Any] = []
    for i in range(pick.one([1, 1, 1, 2, 3, 0])):
        name = pick.one(names)
        kind = kinds[name]
        if pick.rarely(8):
            entries.append(f"multi_bucket(3, {name}, {pick.one(names)})")
            continue
        choice = pick.one([*kind.entries, *kind.expressions])
        if choice in kind.expressions:
            entries.append(expr(choice, [name], name=f"e{i}"))
        else:
            entries.append(choice.format(c=name))
    if {"s", "t"} <= kinds.keys():
        entries.append(expr("concat(col0, col1)", ["s", "t"], name="joined"))
    try:
        return build_spec(1, entries, schema)
    except InvalidInput:  # The same field twice, as in days(ts) and year(ts).
        return build_spec(1, entries[:1], schema)


# Filters --------------------------------------------------------------------------------------

OPERATORS = ["=", "=", "<", "<=", ">", ">=", "<>", "!=", "==", "<=>"]


def condition(pick: Pick, table: Table, depth: int = 3) -> Condition:
    form = pick.one(["simple"] * 4 + ["and", "or", "not", "is"]) if depth else "simple"
    if form == "simple":
        return simple(pick, table)
    if form == "not":
        return oracle.negation(condition(pick, table, depth - 1))
    if form == "is":
        inner = condition(pick, table, depth - 1)
        return oracle.is_truth(inner, pick.one([True, False, None]), pick.one([False, True]))
    several = [condition(pick, table, depth - 1) for _ in range(pick.number(2, 3))]
    return (oracle.conjunction if form == "and" else oracle.disjunction)(several)


def simple(pick: Pick, table: Table) -> Condition:
    """A condition on one term."""
    term = random_term(pick, table)
    values = [value for row in table.rows if (value := term.value(row)) is not None]
    forms = ["compare"] * 4 + ["in", "in", "between", "null"]
    forms += ["like"] * 4 if term.family == "text" else []
    forms += ["truth"] if term.family == "bool" else []
    forms += ["columns"] if {"i32", "j32"} <= table.kinds.keys() else []
    negated = pick.one([False, True])
    match pick.one(forms):
        case "in":
            listed = [constant(pick, term, values) for _ in range(pick.number(1, 4))]
            return oracle.membership(term, listed, negated)
        case "between":
            low, high = constant(pick, term, values), constant(pick, term, values)
            return oracle.between(term, low, high, negated)
        case "null":
            return oracle.is_null(term, negated)
        case "like":
            return oracle.like(term, pattern(pick, values), negated)
        case "truth":
            return oracle.truth(term)
        case "columns":
            return oracle.comparison(table.term("i32"), pick.one(OPERATORS), table.term("j32"))
    op = pick.one(OPERATORS)
    return oracle.comparison(term, op, constant(pick, term, values), flip=pick.rarely(5))


def random_term(pick: Pick, table: Table) -> Term:
    """A column, rather one that the table is cut by, or a function of one."""
    sources = {id for field in table.spec.fields for id in field.source_ids}
    cut = [".".join(table.schema.columns[id].path) for id in sorted(sources)]
    name = pick.one(cut if cut and not pick.rarely(4) else list(table.kinds))
    kind, column = table.kinds[name], table.term(name)
    functions = oracle.functions_of(
        column, pa.types.is_integer(kind.type), kind.small, not pa.types.is_date(kind.type)
    )
    return pick.one(functions) if functions and pick.rarely(3) else column


def constant(pick: Pick, term: Term, values: list[Any]) -> Constant:
    """A constant to compare a term with, near one of the values it has."""
    if pick.rarely(15):
        return NULL
    match term.family:
        case "number":
            near = pick.one(values) if values else 0
            by = pick.one([0, 0, 0, 1, -1, Fraction(1, 2), Fraction(-1, 1000), 10, 10**30])
            number = oracle.number(Fraction(near) + by)
            return Constant(f"'{number.sql}'", number.value) if pick.rarely() else number
        case "bool":
            return pick.one([Constant("FALSE", 0), Constant("TRUE", 1)])
        case "text":
            near = pick.one(values) if values and not pick.rarely() else pick.one(TEXTS)
            changed = pick.one([near, near, near[:1], near[:-1], near + "\0", near + "a"])
            return Constant(oracle.quoted(changed), changed)
        case "bytes":
            near = pick.one(values) if values else b""
            changed = pick.one([near, near, near[:-1], near + b"\0", near + b"a"])
            return Constant(f"X'{changed.hex()}'", changed)
        case "time":
            return moment(pick, term, pick.one(values) if values else Fraction(0))
        case "clock":
            by = pick.one([0, 0, 1, -1, Fraction(1, 10**6), Fraction(-1, 2)])
            at = ((pick.one(values) if values else 0) + by) % 86_400
            shown = oracle.time_text(oracle.local(at, None), math.floor(at % 1 * 10**9))
            return Constant(f"{pick.one(['', 'TIME '])}'{shown.partition('T')[2]}'", at)
    bits = int(term.family.removeprefix("float"))
    nan, near = pick.one(values) if values else (False, 1.5)
    if nan or math.isinf(near) or pick.rarely():
        shown = pick.one(["'NaN'", "'inf'", "'-inf'", "1e300", "-1e300", "1e-320", "-0.0", "0"])
    else:
        beside = [near, near, near + 1, float(np.nextafter(near, math.inf)), -near]
        shown = repr(pick.one(beside))
    return Constant(shown, oracle.rounded(shown.strip("'"), bits))


def moment(pick: Pick, term: Term, near: Fraction) -> Constant:
    """A point in time near another, in one of the ways to write one."""
    units = [0, 0, 1, -1, 3_600, 86_400, -86_400, Fraction(1, 10**6), Fraction(-1, 2), 10**9]
    at = Fraction(near) + pick.one(units)
    if pick.rarely(4):
        at = oracle.truncated(at, pick.one(["hour", "week", "month", "year"]), term.zone)
    nanos = math.floor(at % 1 * 10**9)
    clock = oracle.local(at, term.zone)
    form = pick.one(["naive", "zulu", "offset", "date"])
    prefix = pick.one(["", "TIMESTAMP "])
    if form == "date":
        day = clock.replace(hour=0, minute=0, second=0)
        prefix = pick.one(["", "DATE "])
        return Constant(f"{prefix}'{day.date()}'", oracle.instant(day, term.zone))
    if form == "naive" and oracle.instant(clock, term.zone) == math.floor(at):
        return Constant(f"{prefix}'{oracle.time_text(clock, nanos, ' ')}'", at)
    if form == "offset":
        ahead = oracle.local(at + 7_200, None)
        return Constant(f"{prefix}'{oracle.time_text(ahead, nanos)}+02:00'", at)
    return Constant(f"{prefix}'{oracle.time_text(oracle.local(at, None), nanos)}Z'", at)


def pattern(pick: Pick, values: list[str]) -> str:
    near = pick.one(values) if values else "a"
    plain = near[: pick.number(0, 3)]
    for special in "\\%_":
        plain = plain.replace(special, "\\" + special)
    return plain + pick.one(["%", "%", "", "_", "_%", "%%", "%b", "\\%", "\\_%", "\\\\"])
