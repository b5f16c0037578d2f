"""A table of columns of several types, and what there is to see of them."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa

import phalanx
from phalanx.transaction.view import read_statistics

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("part", pa.string()),
        ("f", pa.float32()),
        ("day", pa.date32()),
        ("price", pa.decimal128(5, 2)),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)


def row(id, part="a", **others):
    found = {
        "id": id,
        "part": part,
        "f": id + 0.5,
        "day": dt.date(2025, 1, id),
        "price": Decimal(id),
        "s": {"x": id, "y": f"y{id}"},
    }
    return found | others


ROWS = [row(1), row(2, "b"), row(3, None, s=None, f=None)]


def column(table, name, where=None):
    """Values of a column by id."""
    found = phalanx.open(table.uri).scan(["id", name], where).to_arrow()
    return dict(zip(found["id"].to_pylist(), found[name].to_pylist(), strict=True))


def ids(table, where=None):
    return sorted(phalanx.open(table.uri).scan(["id"], where).to_arrow()["id"].to_pylist())


def leaves(table):
    return table.partitions().select(["uri", "version"]).to_pylist()


def field_id(table, name):
    return table._snapshot.head.schema.column((name,)).field_id


def highest(table, name):
    """The greatest value that statistics know, as a number."""
    snapshot = phalanx.open(table.uri)._snapshot
    rows = [snapshot.leaves.row(index) for index in range(len(snapshot.leaves))]
    id = snapshot.head.schema.column((name,)).field_id
    found = [stats[id] for stats in read_statistics(snapshot, rows).values() if id in stats]
    return max((stats.high for stats in found if stats.high is not None), default=None)
