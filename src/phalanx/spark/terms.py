"""Expressions of Spark that tasks evaluate over Arrow batches, exactly as Spark would.

That is true for few: columns, constants, casts that only widen, and sums, differences and products
of decimals whose digits all fit, or of doubles. Integers are left to Spark, whose answer to an
overflow depends on the session.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import InvalidInput
from phalanx.model.schema import TableSchema, extract
from phalanx.spark.filters import Expression, Untranslatable
from phalanx.spark.types import SparkType, cast, exchange_type, is_finer, spark_type

_OPERATORS = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_MOST_DIGITS = 38
#: The digits after the point that Spark keeps if a number could have more than that.
_KEPT_SCALE = 6
_EXACT = Context(prec=2 * _MOST_DIGITS)


@dataclass(frozen=True)
class Term(ABC):
    """An expression over the rows of a batch. Its type is the one in which Spark takes values."""

    type: pa.DataType

    @abstractmethod
    def of(self, batch: pa.RecordBatch) -> Any:
        """Its values: an array, or a scalar if they are all the same."""

    @property
    def columns(self) -> frozenset[str]:
        """The table's columns that it needs."""
        return frozenset()


@dataclass(frozen=True)
class ColumnTerm(Term):
    path: tuple[str, ...]

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        return cast(extract(batch, self.path), self.type, ".".join(self.path))

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self.path[:1])


@dataclass(frozen=True)
class ConstantTerm(Term):
    value: Any

    def of(self, batch: pa.RecordBatch) -> pa.Scalar:
        return pa.scalar(self.value, self.type)


@dataclass(frozen=True)
class Widened(Term):
    inner: Term

    def of(self, batch: pa.RecordBatch) -> Any:
        return self.inner.of(batch).cast(self.type)

    @property
    def columns(self) -> frozenset[str]:
        return self.inner.columns


@dataclass(frozen=True)
class Arithmetic(Term):
    operator: str
    left: Term
    right: Term

    def of(self, batch: pa.RecordBatch) -> Any:
        left, right = self.left.of(batch), self.right.of(batch)
        if self.type == pa.float64():
            return _OPERATORS[self.operator](left, right)
        left, right = _narrowed(left), _narrowed(right)
        if left is None or right is None:
            return pa.nulls(batch.num_rows, self.type)
        # Arrow goes by the types, which are those of the longest numbers. These may be in different
        # rows, and then all results fit.
        if left.type.precision + right.type.precision >= _MOST_DIGITS:
            left, right = (side.cast(_long(side.type)) for side in (left, right))
        try:
            result = _OPERATORS[self.operator](left, right)
            return result if result.type == self.type else result.cast(self.type)
        except pa.ArrowInvalid:
            raise InvalidInput(
                f"NUMERIC_VALUE_OUT_OF_RANGE: a result of {self.operator} has more digits than "
                f"DECIMAL({self.type.precision}, {self.type.scale}) holds"
            ) from None

    @property
    def columns(self) -> frozenset[str]:
        return self.left.columns | self.right.columns


def term_of(node: Expression, schema: TableSchema) -> Term:
    """An expression of Spark as a term. Raises Untranslatable."""
    if "column" in node:
        return _column(tuple(node["column"]), schema)
    if "type" in node:
        return _constant(node["value"], json.loads(node["type"]))
    args = [term_of(arg, schema) for arg in node["args"]]
    if node["call"] == "CAST":
        return _widened(args[0], _exchanged(json.loads(node["to"])))
    if node["call"] in _OPERATORS and len(args) == 2:
        return _arithmetic(node["call"], *args)
    raise Untranslatable(node["call"])


def _exchanged(type: SparkType) -> pa.DataType:
    try:
        return exchange_type(type)
    except InvalidInput as error:
        raise Untranslatable(str(error)) from None


def _column(path: tuple[str, ...], schema: TableSchema) -> Term:
    try:
        column = schema.column(path)
        if is_finer(column.type):
            raise Untranslatable("times finer than Spark's")
        return ColumnTerm(exchange_type(spark_type(column.type, ".".join(path))), path)
    except InvalidInput as error:
        raise Untranslatable(str(error)) from None


def _constant(value: Any, kind: Any) -> Term:
    if value is not None and kind == "double":
        return ConstantTerm(pa.float64(), float(value))
    if value is not None and isinstance(kind, str) and kind.startswith("decimal"):
        return ConstantTerm(exchange_type(kind), Decimal(value))
    raise Untranslatable(f"a constant of type {kind}")


def _widened(inner: Term, type: pa.DataType) -> Term:
    t, have = pa.types, inner.type
    if have == type:
        return inner
    if t.is_decimal(type):
        if t.is_decimal(have):
            whole, fraction = have.precision - have.scale, have.scale
        elif t.is_signed_integer(have):
            whole, fraction = len(str(2 ** (have.bit_width - 1))), 0
        else:
            raise Untranslatable("a cast to decimals")
        fits = whole <= type.precision - type.scale and fraction <= type.scale
    elif t.is_float64(type):
        fits = t.is_float32(have) or (t.is_signed_integer(have) and have.bit_width < 64)
    else:
        both = t.is_signed_integer(have) and t.is_signed_integer(type)
        fits = both and have.bit_width < type.bit_width
    if not fits:
        raise Untranslatable(f"a cast from {have} to {type}")
    return Widened(type, inner)


def _arithmetic(operator: str, left: Term, right: Term) -> Term:
    t = pa.types
    if left.type == right.type == pa.float64():
        return Arithmetic(pa.float64(), operator, left, right)
    if not (t.is_decimal(left.type) and t.is_decimal(right.type)):
        raise Untranslatable(f"{operator} of {left.type} and {right.type}")
    a, b = left.type, right.type
    if operator == "*":
        precision, scale = a.precision + b.precision + 1, a.scale + b.scale
    else:
        scale = max(a.scale, b.scale)
        precision = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    if precision > _MOST_DIGITS and scale > _KEPT_SCALE:
        raise Untranslatable("decimals that Spark would round")
    type = pa.decimal128(min(precision, _MOST_DIGITS), scale)
    return Arithmetic(type, operator, left, right)


def unscaled(number: Decimal, scale: int) -> int:
    """A decimal as a number of its last digits, exactly."""
    return int(number.scaleb(scale, _EXACT))


def _long(type: pa.DataType) -> pa.DataType:
    return pa.decimal256(type.precision, type.scale)


def _narrowed(values: Any) -> Any:
    """Decimals in the type of their longest number, so that results of Arrow have few digits.

    None if there are only NULLs.
    """
    extremes = pc.min_max(values) if isinstance(values, pa.Array) else None
    ends = [extremes["min"], extremes["max"]] if extremes else [values]
    numbers = [end.as_py() for end in ends if end.is_valid]
    if not numbers:
        return None
    scale = values.type.scale
    digits = max(len(str(abs(unscaled(number, scale)))) for number in numbers)
    return values.cast(pa.decimal128(max(digits, scale), scale))
