"""Whatever a table holds: optimize keeps its rows."""

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import phalanx
from phalanx.storage import compaction
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import read_statistics
from tests.table.optimize.files import (
    rows_of,
)

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(-5, 5) | st.none(),
            "part": st.sampled_from(["a", "b", None]),
            "price": st.decimals(-99, 99, places=2) | st.none(),
            "tags": st.lists(st.sampled_from("xy") | st.none(), max_size=2) | st.none(),
            "at": st.fixed_dictionaries(
                {
                    "ts": st.datetimes(dt.datetime(1960, 1, 1), dt.datetime(2040, 1, 1))
                    | st.none(),
                    "deep": st.fixed_dictionaries({"x": st.integers(0, 3) | st.none()}) | st.none(),
                }
            )
            | st.none(),
        }
    ),
    max_size=6,
)
RICH = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        (
            "at",
            pa.struct([("ts", pa.timestamp("us")), ("deep", pa.struct([("x", pa.int32())]))]),
        ),
    ]
)


@given(
    appends=st.lists(ROWS, min_size=1, max_size=5),
    deletes=st.lists(
        st.sampled_from(["id < 0", "id = 3", "part = 'a' AND id > 0", "price > 10", "at IS NULL"]),
        max_size=2,
    ),
    options=st.sampled_from(
        [{}, {"target_rows": 2}, {"sort_by": ["id"]}, {"zorder_by": ["id", "price"]}]
    ),
    where=st.sampled_from([None, "part = 'a'", "part IS NULL", "id > 1"]),
    stream=st.booleans(),
)
@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_table_holds_the_same_before_and_after(
    tmp_path_factory, appends, deletes, options, where, stream
):
    table = phalanx.create(tmp_path_factory.mktemp("same") / "t", RICH, ["part"])
    for rows in appends:
        table.append(pa.Table.from_pylist(rows, RICH))
    for text in deletes:
        table.delete(text)
    before = rows_of(table)
    with pytest.MonkeyPatch.context() as patch:
        if stream:  # as if leaves were too large to be read in one go
            patch.setattr(compaction, "_SMALL_BYTES", 0)
        table.optimize(where, **options)
    after = rows_of(table)
    assert sorted(after, key=str) == sorted(before, key=str)
    assert options or after == before
    assert table.count() == len(before)
    assert rows_of(table, "id > 0") == [r for r in after if r["id"] is not None and r["id"] > 0]
    for leaf, found in measured(table):
        for column in ("id", "price"):
            values = leaf[column]
            stats = found[RICH.names.index(column)]
            assert stats.null_count in (None, values.null_count)
    assert table.check().ok


def measured(table):
    """The rows of every leaf, with its statistics."""
    snapshot = Snapshot.latest(table._snapshot.location)
    for index in range(len(snapshot.leaves)):
        leaf = snapshot.leaves.row(index)
        part = leaf.keys[0]
        where = "part IS NULL" if part is None else f"part = '{part}'"
        yield table.scan(where=where).to_arrow(), read_statistics(snapshot, [leaf])[leaf.object_id]
