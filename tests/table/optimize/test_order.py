"""Optimize sorts rows within a leaf, by columns or along a Z-order curve."""

import datetime as dt
import decimal
import itertools
import random

import numpy as np
import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput
from phalanx.model.ordering import Ordering
from phalanx.storage import compaction
from tests.table.optimize.files import (
    SCHEMA,
    row,
    rows_of,
    statistics_of,
)


class TestOrder:
    def test_rows_are_sorted_within_a_leaf(self, table):
        before = rows_of(table)
        table.optimize(sort_by=[("n", "descending"), "id"])
        found = rows_of(table, "part = 'a'")
        by_hand = sorted(
            (r for r in before if r["part"] == "a"),
            key=lambda r: (r["n"] is None, -(r["n"] or 0), r["id"]),
        )
        assert found == by_hand
        assert sorted(rows_of(table), key=str) == sorted(before, key=str)
        assert statistics_of(table, "a")[0].exact

    def test_a_leaf_of_more_than_fits_is_sorted_in_runs(self, root, monkeypatch):
        monkeypatch.setattr(compaction, "SORT_BYTES", 1000)
        monkeypatch.setattr(compaction, "_SMALL_BYTES", 0)
        table = phalanx.create(root, SCHEMA)
        noise = random.Random(3)
        ids = noise.sample(range(1000), 400)
        for start in range(0, 400, 100):
            table.append([row(i) for i in ids[start : start + 100]])
        table.optimize(sort_by=["id"])
        found = [r["id"] for r in rows_of(table)]
        assert sorted(found) == sorted(ids)
        falls = sum(a > b for a, b in itertools.pairwise(found))
        assert 0 < falls < 10

    def test_zorder_brings_neighbors_together_in_every_column(self):
        side = np.arange(32)
        x, y = (axis.ravel() for axis in np.meshgrid(side, side))
        shuffled = np.random.default_rng(1).permutation(len(x))
        data = pa.table({"x": x[shuffled], "y": y[shuffled]})
        ordering = Ordering((("x", False), ("y", False)), zorder=True)
        ordered = data.take(ordering.order(data))
        for start in range(0, 1024, 64):
            part = ordered.slice(start, 64)
            for name in ("x", "y"):
                values = part[name].to_numpy()
                assert values.max() - values.min() == 7

    def test_zorder_of_a_table_keeps_the_rows(self, table):
        before = sorted(rows_of(table), key=str)
        table.optimize(zorder_by=["id", "n", "part"])
        assert sorted(rows_of(table), key=str) == before

    @pytest.mark.parametrize(
        "values",
        [
            [dt.date(2024, 1, 2), None, dt.date(1969, 5, 1)],
            [decimal.Decimal("1.50"), decimal.Decimal("-2.25"), None],
            ["b", None, "a", ""],
            [b"b", None, b"a"],
            [True, None, False],
            [dt.timedelta(1), None, dt.timedelta(-1)],
            pa.array([np.float16(1.5), None, np.float16(-1)], pa.float16()),
            pa.array(["b", "a", None, "b"]).dictionary_encode(),
        ],
    )
    def test_types_that_can_be_sorted(self, values):
        array = values if isinstance(values, pa.Array) else pa.array(values)
        data = pa.table({"x": array, "y": pa.array(range(len(array)))})
        for ordering in (
            Ordering((("x", False),)),
            Ordering((("x", False), ("y", False)), zorder=True),
        ):
            found = data.take(ordering.order(data))
            assert sorted(found["y"].to_pylist()) == list(range(len(array)))
        plain = data.take(Ordering((("x", False),)).order(data))["x"].to_pylist()
        assert plain == [*sorted(v for v in plain if v is not None), *[None] * plain.count(None)]

    def test_a_column_that_is_renamed_meanwhile(self, table, meanwhile):
        stale = phalanx.open(table.uri)
        meanwhile(lambda: phalanx.open(table.uri).rename_column("n", "m"))
        before = sorted(map(str, (tuple(r.values()) for r in rows_of(table))))
        with pytest.raises(InvalidInput, match="unknown column 'n'"):
            table.optimize(sort_by=["n"])
        stale.optimize(sort_by=["m"])
        assert sorted(map(str, (tuple(r.values()) for r in rows_of(stale)))) == before

    def test_what_has_no_order_is_refused(self, root):
        table = phalanx.create(root, pa.schema([("xs", pa.list_(pa.int64()))]))
        with pytest.raises(InvalidInput, match="have no order"):
            table.optimize(sort_by=["xs"])
