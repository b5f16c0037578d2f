"""Columns of a wider type."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

import phalanx
from phalanx.transaction.view import read_statistics
from tests.table.operations.evolve.columns import (
    column,
    highest,
    ids,
    row,
)


class TestWiden:
    @pytest.fixture
    def wide(self, table):
        table.change_type("id", pa.int64()).change_type("f", pa.float64())
        table.change_type("day", pa.timestamp("us")).change_type("price", pa.decimal128(20, 2))
        return table.change_type("s.x", pa.int64())

    def check(self, table):
        assert ids(table, "id = 2") == [2]
        assert ids(table, "id < 3000000000") == [1, 2, 3]
        assert ids(table, "f = 1.5") == [1]
        assert ids(table, "f IS NULL") == [3]
        assert ids(table, "day = TIMESTAMP '2025-01-02T00:00:00'") == [2]
        assert ids(table, "day < TIMESTAMP '2025-01-02T00:00:00.000001'") == [1, 2]
        assert ids(table, "price >= 2.00") == [2, 3]
        assert ids(table, "s.x = 1") == [1]
        assert ids(table, "s.x IS NULL") == [3]
        found = phalanx.open(table.uri).scan().to_arrow().sort_by("id").to_pylist()
        assert found[0]["day"] == dt.datetime(2025, 1, 1)
        assert found[0]["s"] == {"x": 1, "y": "y1"}
        assert found[2]["s"] is None

    def test_reading(self, wide):
        self.check(wide)

    def test_written_anew_with_the_next_rows(self, wide):
        big = {"id": 2**40 + 1, "part": "a", "s": {"x": 2**40}, "price": Decimal(10**12)}
        wide.append([big])
        assert ids(wide, "s.x > 5") == [2**40 + 1]
        assert ids(wide, "price > 1000") == [2**40 + 1]
        wide.delete("id > 1000")
        self.check(wide)
        assert wide.check().ok

    def test_changes(self, wide):
        assert wide.delete("f = 1.5") == 1
        assert wide.update({"f": "f * 2"}, "s.x = 2") == 1
        assert column(wide, "f") == {2: 5.0, 3: None}
        counts = wide.merge([{"id": 2, "part": "b", "f": 0.0}], ["id"])
        assert counts["updated"] == 1
        assert column(wide, "f") == {2: 0.0, 3: None}

    def test_statistics(self, wide):
        assert highest(wide, "id") == 3
        assert highest(wide, "price") == 300
        assert highest(wide, "day") is None, "days are no microseconds"
        noon = dt.datetime(1970, 1, 1, 0, 0, 0, 5)
        wide.append([{"id": 9, "part": "new", "day": noon}])
        assert highest(wide, "day") == 5

    def test_floats_are_compared_as_doubles(self, root):
        table = phalanx.create(root, pa.schema([("id", pa.int32()), ("f", pa.float32())]))
        table.append([{"id": 1, "f": 0.1}])
        table.change_type("f", pa.float64())
        assert ids(table, "f = 0.1") == []
        assert ids(table, "f > 0.1") == [1]

    def test_counts_after_rows_were_written_anew(self, table):
        table.append([row(4), row(5)])
        table.delete("id = 4")
        table.change_type("id", pa.int64())
        table.append([row(6)])
        found = {r["part"]: r for r in table.partitions().to_pylist()}["a"]
        assert (found["rows"], found["fragments"]) == (3, 2)
        assert ids(table, "part = 'a'") == [1, 5, 6]
        assert table.check().ok


class TestStatisticsOfDatesThatBecameTimestamps:
    """Days and microseconds are both numbers, and must not be taken for each other."""

    SCHEMA = pa.schema([("k", pa.int32()), ("d", pa.date32())])

    def known(self, table, version=None):
        snapshot = phalanx.open(table.uri, version=version)._snapshot
        rows = [snapshot.leaves.row(i) for i in range(len(snapshot.leaves))]
        return [found.get(1) for found in read_statistics(snapshot, rows).values()]

    @pytest.fixture
    def dated(self, tmp_path):
        table = phalanx.create(tmp_path / "dated", self.SCHEMA, ["k"])
        return table.append([{"k": 1, "d": dt.date(2020, 1, 1)}])

    def test_changed_and_added_to_at_once(self, dated):
        with dated.transaction() as tx:
            tx.change_type("d", pa.timestamp("us"))
            tx.append([{"k": 1, "d": dt.datetime(2021, 1, 1)}])
        assert all(found is None or not found.exact for found in self.known(dated))

    def test_added_to_and_changed_at_once(self, dated):
        with dated.transaction() as tx:
            tx.append([{"k": 2, "d": dt.date(2021, 1, 1)}])
            tx.change_type("d", pa.timestamp("us"))
        assert all(found is None or not found.exact for found in self.known(dated))

    def test_an_earlier_version_after_a_rollback(self, dated):
        dated.change_type("d", pa.timestamp("us"))
        version = dated.version
        dated.append([{"k": 1, "d": dt.datetime(2020, 1, 3)}])
        dated.rollback(2)
        assert self.known(dated, version) == [None]
