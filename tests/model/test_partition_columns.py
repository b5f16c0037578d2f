"""Which columns files hold, and which their partition gives."""

import pyarrow as pa
import pytest

from phalanx.model.partition_columns import given_values, stored_columns
from phalanx.model.schema import TableSchema
from phalanx.model.specs import build_spec

SCHEMA = TableSchema.assign(
    pa.schema(
        [
            ("c", pa.string()),
            ("s", pa.struct([("a", pa.int64())])),
            ("f", pa.float64()),
            ("x", pa.int64()),
            ("d", pa.date32()),
            ("k", pa.dictionary(pa.int32(), pa.string())),
        ]
    )
)


def names(spec, materialize):
    return stored_columns(SCHEMA, build_spec(1, spec, SCHEMA), materialize).schema.tagged.names


@pytest.mark.parametrize(
    ("spec", "stored", "lean"),
    [
        (["c"], "s f x d k c", "s f x d k"),
        (["d", "c"], "s f x k d c", "s f x k"),
        (["f"], "c s x d k f", "c s f x d k"),
        (["s.a"], "c s f x d k", "c s f x d k"),
        (["k"], "c s f x d k", "c s f x d k"),
        (["year(d)", "bucket(4, c)", "truncate(2, x)"], "c s f x d k", "c s f x d k"),
        (["year(d)", "d", "truncate(1, c)"], "c s f x k d", "c s f x k"),
        ([], "c s f x d k", "c s f x d k"),
    ],
)
def test_what_files_hold(spec, stored, lean):
    assert names(spec, None) == ["c", "s", "f", "x", "d", "k"]
    assert names(spec, True) == stored.split()
    assert names(spec, False) == lean.split()


def test_a_file_is_never_without_columns():
    schema = TableSchema.assign(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    spec = build_spec(1, ["b", "a"], schema)
    columns = stored_columns(schema, spec, False)
    assert columns.schema.tagged.names == ["a"]
    assert given_values(columns, schema, spec, ("x", None)) == ((1, "x"), (0, None))


def test_values_of_another_type():
    """A rollback brings back an earlier type, but not the earlier type of the partition field."""
    schema = TableSchema.assign(pa.schema([("t", pa.timestamp("us")), ("x", pa.int64())]))
    spec = build_spec(1, ["t"], schema)
    earlier = TableSchema.assign(pa.schema([("t", pa.timestamp("ms")), ("x", pa.int64())]))
    columns = stored_columns(earlier, spec, False)
    assert given_values(columns, earlier, spec, (5_000,)) == ((0, 5),)
