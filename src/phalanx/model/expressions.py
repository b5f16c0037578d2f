"""DataFusion, used as a calculator: it evaluates terms and custom partition expressions.

A custom expression is SQL over `col0`, `col1`, …. The specification has six requirements for it,
which `check` enforces before a table is created with it:

1. deterministic and 2. stateless: no volatile function, aggregate, window or subquery;
3. resistant to promotion: the same values in a wider type (int64 for int32, double for float, a
   decimal of more digits) give the same;
4. resistant to removal: only `col0` … `colN` are read, and all of them may be NULL;
5. safe with NULL: it does not fail on NULL (what it returns is up to the expression);
6. consistent with its result type: one type, of which a partition value can be.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.dialect import Dialect, to_text
from phalanx.model.domains import NullnessDomain, domain_of
from phalanx.model.literals import Literal, literal_of, quote, spell_literal
from phalanx.model.predicates import Call, Column, Predicate, Term, columns_of
from phalanx.model.promotion import promotions
from phalanx.model.spelling import arrow_literal, type_name

_names = itertools.count()

#: Functions that always return the same, but not in every installation.
_STATEFUL = {"version"}


@cache
def _context() -> Any:
    # Loaded when it is needed: that takes about 60 ms, and most queries evaluate nothing here.
    import datafusion

    # One partition: with more, DataFusion may hand the rows back in another order.
    return datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))


@cache
def volatile_functions() -> frozenset[str]:
    """The functions that can give another value for the same arguments."""
    import datafusion  # Loaded when it is needed, as above.

    config = datafusion.SessionConfig().with_information_schema(True)
    rows = datafusion.SessionContext(config).sql(
        "SELECT DISTINCT routine_name FROM information_schema.routines WHERE NOT is_deterministic"
    )
    return frozenset(rows.to_pydict()["routine_name"]) | _STATEFUL


class _Frame:
    """A batch of columns that expressions can be evaluated on; deregistered at the end."""

    def __init__(self, columns: Mapping[str, pa.Array], length: int) -> None:
        columns = dict(columns) or {"nothing": pa.nulls(length, pa.int8())}
        self._length = length
        self._name = f"phalanx_{next(_names)}"
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        self._frame = _context().create_dataframe([[batch]], name=self._name)

    def __enter__(self) -> _Frame:
        return self

    def __exit__(self, *_: object) -> None:
        _context().deregister_table(self._name)

    def parse(self, sql: str) -> Any:
        return self._frame.parse_sql_expr(sql)

    def evaluate(self, expression: Any) -> pa.Array:
        selected = self._frame.select(expression.alias("r"))
        chunks = [batch.column(0) for batch in selected.collect()]
        values = (
            pa.concat_arrays(chunks) if chunks else pa.nulls(0, selected.schema().field("r").type)
        )
        if len(values) != self._length:
            raise InvalidInput("an expression must give one value for each row")
        return plain(values)


class _DataFusion(Dialect):
    """Columns by field id, constants with their types."""

    def name(self, column: Column) -> str:
        return _name(column.field_id)

    def constant(self, key: Any, type: pa.DataType) -> str:
        return arrow_literal(key, type)

    def literal(self, literal: Literal) -> str:
        if literal.kind == "timestamp":
            zone = 'Some("UTC")' if literal.zoned else "None"
            count, unit = literal.value, "Nanosecond"
            if not -(2**63) <= count < 2**63:
                count, unit = count // 1_000, "Microsecond"
            return f"arrow_cast({count}, 'Timestamp({unit}, {zone})')"
        if literal.kind == "date":
            return f"arrow_cast({literal.value}, 'Date32')"
        return spell_literal(literal)


class _Checked(_DataFusion):
    """SQL in which integer arithmetic fails on overflow, where DataFusion wraps around.

    Operands are cast to decimals, which hold every result, and the cast back to an integer fails
    where the result does not fit. NULL stays NULL, and what is not computed cannot fail.
    """

    def term(self, term: Term) -> str:
        match term:
            case Call(function="+" | "-" | "*" as op, args=(left, right)) if _is_whole(term):
                return self._fitting(f"{self._wide(left)} {op} {self._wide(right)}", term)
            case Call(function="negate", args=(inner,)) if _is_whole(term):
                return self._fitting(f"0 - {self._wide(inner)}", term)
        return super().term(term)

    def _wide(self, term: Term) -> str:
        return f"CAST({self.term(term)} AS DECIMAL(20, 0))"

    def _fitting(self, sql: str, term: Term) -> str:
        return f"arrow_cast({sql}, {quote(type_name(type_of(term)))})"


def _is_whole(term: Call) -> bool:
    """Whether an operation takes and returns integers. The difference of two dates does not."""
    t = pa.types
    types = [type_of(arg) for arg in term.args]
    return bool(
        t.is_integer(type_of(term)) and all(t.is_integer(type) or t.is_null(type) for type in types)
    )


_DIALECT, _CHECKED = _DataFusion(), _Checked()


def _name(field_id: int) -> str:
    return f"c{field_id}".replace("-", "_")


def evaluate(
    term: Term, columns: Mapping[int, pa.Array], length: int, checked: bool = False
) -> pa.Array:
    """The term's value for each row; `columns` are arrays by field id.

    Integers wrap around on overflow, as they do in Lance's filters. With `checked` an overflow is
    an error, because what gets stored must be what was meant.

    Raises InvalidInput where DataFusion cannot compute it.
    """
    dialect = _CHECKED if checked else _DIALECT
    try:
        with _Frame({_name(id): array for id, array in columns.items()}, length) as frame:
            return frame.evaluate(frame.parse(dialect.term(term)))
    except Exception as error:
        raise InvalidInput(f"cannot evaluate {to_text(term)}: {_reason(error)}") from None


def evaluate_predicate(
    predicate: Predicate, columns: Mapping[int, pa.Array], length: int
) -> pa.Array:
    """Whether the predicate is true for each row; `columns` are arrays by field id."""
    with _Frame({_name(id): array for id, array in columns.items()}, length) as frame:
        return frame.evaluate(frame.parse(_DIALECT.predicate(predicate)))


@lru_cache(maxsize=4096)
def type_of(term: Term) -> pa.DataType:
    """The type of a term. Raises InvalidInput where DataFusion finds none.

    It is the type of the result for a row of NULLs. What a plan announces can be another one.
    """
    nulls = {column.field_id: pa.nulls(1, column.type) for column in columns_of(term)}
    return evaluate(term, nulls, 1).type


def fold(term: Term) -> Literal:
    """The value of a term without columns."""
    return literal_of(evaluate(term, {}, 1)[0])


# Custom partition expressions ----------------------------------------------------------------


def evaluate_custom(sql: str, arrays: Sequence[pa.Array]) -> pa.Array:
    """A custom expression over `col0`, `col1`, …."""
    columns = {f"col{i}": array for i, array in enumerate(arrays)}
    try:
        with _Frame(columns, len(arrays[0])) as frame:
            return frame.evaluate(frame.parse(sql))
    except Exception as error:
        raise InvalidInput(f"cannot evaluate the expression {sql!r}: {_reason(error)}") from None


@lru_cache(maxsize=1024)
def type_of_custom(sql: str, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """The type of a custom expression. Nothing else about it is checked."""
    return evaluate_custom(sql, [pa.nulls(1, type) for type in types]).type


@lru_cache(maxsize=1024)
def same_custom(sql: str, other: str, types: tuple[pa.DataType, ...]) -> bool:
    """Whether DataFusion reads two texts as one expression. Its operators may bind differently."""
    try:
        with _Frame({f"col{i}": pa.nulls(0, type) for i, type in enumerate(types)}, 0) as frame:
            return _shape(frame.parse(sql)) == _shape(frame.parse(other))
    except Exception:
        return False


def _shape(expression: Any) -> tuple[Any, ...]:
    """An expression as nested names: a name alone leaves out some parentheses."""
    if expression.variant_name() in ("Column", "Literal"):
        return (expression.canonical_name(),)
    operands = (_shape(operand) for operand in expression.rex_call_operands())
    return (expression.canonical_name(), *operands)


@lru_cache(maxsize=1024)
def check(sql: str, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """Hold a custom expression to the specification's six requirements.

    Returns its result type. Raises InvalidInput with the requirement that it breaks.
    """
    nulls = [pa.nulls(1, type) for type in types]
    try:
        with _Frame({f"col{i}": array for i, array in enumerate(nulls)}, 1) as frame:
            expression = frame.parse(sql)
            _refuse_forbidden(sql, expression)
            result = frame.evaluate(expression).type
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(f"the expression {sql!r} cannot be used: {_reason(error)}") from None
    if isinstance(domain_of(result), NullnessDomain):
        raise InvalidInput(
            f"the expression {sql!r} gives {result}, which cannot be the type of a partition value"
        )
    _check_promotion(sql, types)
    return result


def _refuse_forbidden(sql: str, expression: Any) -> None:
    variant = expression.variant_name()
    for word in ("Aggregate", "Window", "Subquery", "Exists", "GroupingSet", "Unnest", "Wildcard"):
        if word in variant:
            raise InvalidInput(
                f"the expression {sql!r} cannot be used: a partition expression looks at one row, "
                f"so it has no aggregate, window or subquery"
            )
    if variant == "ScalarFunction":
        function = expression.canonical_name().partition("(")[0]
        if function in volatile_functions():
            raise InvalidInput(
                f"the expression {sql!r} cannot be used: {function}() is volatile, and a row must "
                f"always come to the same partition"
            )
    if variant in ("Column", "Literal"):
        return
    for operand in expression.rex_call_operands():
        _refuse_forbidden(sql, operand)


def _check_promotion(sql: str, types: Sequence[pa.DataType]) -> None:
    """Compare what an expression makes of the same values in a narrow and in a wide type.

    Samples can only refute it: `change_type` looks at the rows that a table has.
    """
    for index, type in enumerate(types):
        pairs = [(type, wide) for wide in promotions(type)]
        if pa.types.is_int64(type):
            pairs = [(pa.int32(), type)]  # The specification's example: int32(5) and int64(5).
        for narrow, wide in pairs:
            samples = _samples(narrow)
            arrays = [_cycle(_samples(t), len(samples)) for t in types]
            arrays[index] = samples
            before = _outcomes(sql, arrays)
            arrays[index] = samples.cast(wide)
            after = _outcomes(sql, arrays)
            if any(row not in after or _differ(before[row], after[row]) for row in before):
                raise InvalidInput(
                    f"the expression {sql!r} cannot be used: it gives another value when "
                    f"col{index} is promoted from {narrow} to {wide}"
                )


def _outcomes(sql: str, arrays: Sequence[pa.Array]) -> dict[int, Any]:
    """The value of each row that can be evaluated; other rows could never be written."""
    try:
        return dict(enumerate(evaluate_custom(sql, arrays).to_pylist()))
    except InvalidInput:
        values: dict[int, Any] = {}
        for row in range(len(arrays[0])):
            with suppress(InvalidInput):
                one = evaluate_custom(sql, [array.slice(row, 1) for array in arrays])
                values[row] = one[0].as_py()
        return values


def _differ(a: Any, b: Any) -> bool:
    return bool(a != b and (a == a or b == b))


def _floats(dtype: Any) -> list[Any]:
    """Samples of a type of floats. Most of them have no short decimal form in a wider type."""
    limits = np.finfo(dtype)
    small = [limits.smallest_subnormal, limits.smallest_normal, limits.eps, 1 / 3, 0.1, 0.7, 2.3]
    large = [1.5, 10.3, 79.99, 1234.567, 33554440.0, limits.max]
    # Fixed numbers of all magnitudes that look like random ones.
    spread = [math.sin(n) * 10.0 ** (n % 11 - 4) for n in range(1, 45)]
    with np.errstate(over="ignore"):
        numbers = np.array([*small, *large, *spread]).astype(dtype)
    numbers = numbers[np.isfinite(numbers)]
    return [None, *(dtype(n) for n in (0.0, math.inf, -math.inf, math.nan)), *numbers, *-numbers]


_FLOATS = {dtype().itemsize * 8: _floats(dtype) for dtype in (np.float16, np.float32, np.float64)}


def _samples(type: pa.DataType) -> pa.Array:
    """A few values of a type, NULL among them, to try an expression on."""
    t = pa.types
    if t.is_integer(type):
        top = 2 ** (type.bit_width - (1 if t.is_signed_integer(type) else 0)) - 1
        signed = [-top - 1, -19, -10, -1] if t.is_signed_integer(type) else []
        return pa.array([None, 0, 1, 5, 10, 19, top, *signed], type)
    if t.is_floating(type):
        return pa.array(_FLOATS[type.bit_width], type)
    if t.is_boolean(type):
        return pa.array([None, True, False])
    if t.is_timestamp(type) or t.is_date(type):
        days = pa.array([None, 0, 20_000, -20_000], pa.int32()).view(pa.date32())
        return days.cast(type)
    if t.is_time(type):
        return pa.array([None, 0, 3_600], pa.int32()).cast(pa.time32("s")).cast(type)
    if t.is_decimal(type):
        top = 10**type.precision - 1
        return domain_of(type).array([None, 0, 1, -1, top // 3, -(top // 7), top, -top])
    domain = domain_of(type)
    if isinstance(domain, NullnessDomain):
        return pa.nulls(2, type)
    if t.is_fixed_size_binary(type):
        return pa.array([None, b"\x01" * type.byte_width], type)
    text = [None, "", "a", "5", "2025-12-31", "Ünïcode"]
    return pa.array(text, pa.string()).cast(type)


def _cycle(array: pa.Array, length: int) -> pa.Array:
    return array.take(pa.array([i % len(array) for i in range(length)], pa.int32()))


def plain_type(type: pa.DataType) -> pa.DataType:
    """A type as it is stored: DataFusion's string views are strings."""
    if pa.types.is_string_view(type):
        return pa.string()
    if pa.types.is_binary_view(type):
        return pa.binary()
    return type.value_type if pa.types.is_dictionary(type) else type


def plain(array: pa.Array) -> pa.Array:
    stored = plain_type(array.type)
    return array if stored == array.type else array.cast(stored)


def _reason(error: Exception) -> str:
    """DataFusion's reason in one line, without its internal table names."""
    text = str(error).split("\n")[0]
    for prefix in ("DataFusion error: ", "Schema error: ", "Error during planning: "):
        text = text.removeprefix(prefix)
    if parser_error := re.fullmatch(r'SQL error: ParserError\("(.*)"\)', text):
        text = parser_error[1]
    if "AggregateFunction(" in text or "WindowFunction(" in text:
        return "a filter looks at one row, so it has no aggregate and no window"
    text = text.split(" Did you mean ")[0].split(" Valid fields are ")[0]
    return text[:300]
