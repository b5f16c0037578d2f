"""A table with columns of every kind, and conditions on it."""

import pyarrow as pa

from phalanx.model.filters import bind
from phalanx.model.parser import parse
from phalanx.model.predicates import Predicate
from phalanx.model.schema import TableSchema

SCHEMA = TableSchema.assign(
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("i", pa.int32()),
            pa.field("j", pa.int32()),
            pa.field("u", pa.uint8()),
            pa.field("f", pa.float64()),
            pa.field("f32", pa.float32()),
            pa.field("dec", pa.decimal128(9, 2)),
            pa.field("s", pa.string()),
            pa.field("b", pa.bool_()),
            pa.field("d", pa.date32()),
            pa.field("d64", pa.date64()),
            pa.field("ts", pa.timestamp("us")),
            pa.field("ny", pa.timestamp("us", "America/New_York")),
            pa.field("t", pa.time64("us")),
            pa.field("bin", pa.binary()),
            pa.field("l", pa.list_(pa.int32())),
            pa.field("st", pa.struct([("x", pa.int32()), ("Y z", pa.string())])),
            pa.field("date", pa.string()),
            pa.field("dur", pa.duration("s")),
        ]
    )
)


def bound(text: str) -> Predicate:
    """The predicate that a condition means."""
    return bind(parse(text), SCHEMA.column)
