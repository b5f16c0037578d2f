"""Values that make trouble elsewhere are values like any other."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import phalanx

STRINGS = [
    "/",
    "a/b/../c",
    "..",
    ".",
    "=",
    "country=US",
    "$",
    "v1$dataset",
    "'",
    '"',
    "it's",
    "\\",
    "\n",
    "\t\r",
    "\0",
    "a\0b",
    "",
    " ",
    "%",
    "_",
    "NULL",
    "null",
    "😀",
    "é",
    "e\u0301",
    "\u202e",
    "x" * 5000,
    None,
]


@pytest.fixture(scope="module")
def strings(tmp_path_factory):
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    table = phalanx.create(tmp_path_factory.mktemp("strings"), schema, ["s"])
    data = pa.table([pa.array(range(len(STRINGS))), pa.array(STRINGS)], schema=schema)
    table.append(data)
    table.append(data)
    return table


class TestStrings:
    """Any string is a value, and two strings are never the same."""

    def test_each_has_its_leaf(self, strings):
        found = {row["s"]: row["rows"] for row in strings.partitions().to_pylist()}
        assert found == dict.fromkeys(STRINGS, 2)

    def test_each_can_be_found(self, strings):
        for id, value in enumerate(STRINGS):
            where = "s IS NULL" if value is None else "s = '" + value.replace("'", "''") + "'"
            scan = strings.scan(where=where)
            assert scan.plan().selected == 1, value
            assert scan.to_arrow().to_pylist() == [{"id": id, "s": value}] * 2

    def test_nothing_lies_outside_of_the_table(self, strings):
        root = Path(strings.uri)
        names = [path.name for path in root.iterdir() if path.is_dir()]
        assert len(names) == len(STRINGS) + 1
        assert all("_v1$" in name or name == "__manifest" for name in names)


NAN = float("nan")


class TestOtherValues:
    @pytest.mark.parametrize(
        ("type", "values", "leaves"),
        [
            (pa.bool_(), [True, False, None], 3),
            (pa.int8(), [-128, 127, 0, None], 4),
            (pa.uint64(), [0, 2**64 - 1, None], 3),
            (pa.float32(), [1.5, NAN, -0.0, 0.0, float("inf"), float("-inf"), None], 6),
            (pa.float64(), [0.1, NAN, -0.0, 0.0, 5e-324, None], 5),
            (pa.decimal128(38, 2), [Decimal("1.20"), Decimal("-0.01"), Decimal(0), None], 4),
            (pa.decimal256(60, 3), [Decimal("1e50"), Decimal("-0.001"), None], 3),
            (pa.decimal128(5, -2), [Decimal(1200), Decimal(-500), None], 3),
            (pa.date32(), [dt.date(1969, 12, 31), dt.date(1, 1, 1), dt.date(9999, 12, 31)], 3),
            (pa.date64(), [dt.date(1969, 12, 31), dt.date(2025, 1, 1), None], 3),
            (pa.time32("s"), [dt.time(0), dt.time(23, 59, 59), None], 3),
            (pa.time64("ns"), [dt.time(0), dt.time(23, 59, 59, 999999), None], 3),
            (pa.float16(), [1.5, NAN, -0.0, 0.0, None], 4),
            (pa.duration("us"), [dt.timedelta(days=-1), dt.timedelta(0), None], 3),
            (pa.large_string(), ["", "a", None], 3),
            (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "a", None], 3),
        ],
        ids=str,
    )
    def test_identity(self, root, type, values, leaves):
        schema = pa.schema([("id", pa.int64()), ("x", type)])
        table = phalanx.create(root, schema, ["x"])
        data = pa.table([pa.array(range(len(values))), pa.array(values, type)], schema=schema)
        for _ in range(2):
            table.append(data)
        table = phalanx.open(root)
        assert table.partitions().num_rows == leaves
        found = table.scan().to_arrow()
        assert found.schema == schema
        assert repr(sorted(found.to_pylist(), key=repr)) == repr(
            sorted(data.to_pylist() * 2, key=repr)
        )
        assert sum(table.count_by(["x"])["count"].to_pylist()) == 2 * len(values)

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    @pytest.mark.parametrize("zone", [None, "UTC", "America/New_York", "+05:30"])
    def test_timestamps(self, root, unit, zone):
        """Also before 1970, whole or cut by time: an hour belongs to UTC, whatever the zone."""
        type = pa.timestamp(unit, zone)
        seconds = [-1, 0, 1_735_689_599, 1_735_689_600, -5_000_000_000, None]
        column = pa.array(seconds, pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(unit))
        column = column.cast(pa.int64()).cast(type)
        schema = pa.schema([("ts", type), ("again", type)])
        table = phalanx.create(root, schema, ["ts", "hours(again)"])
        table.append(pa.table([column, column], schema=schema))
        leaves = table.partitions()
        epoch = dt.datetime(1970, 1, 1)
        expected = {
            (t.year, t.month, t.day, t.hour)
            for t in (epoch + dt.timedelta(seconds=s) for s in seconds if s is not None)
        }
        names = ["again_year", "again_month", "again_day", "again_hour"]
        found = {tuple(row[name] for name in names) for row in leaves.to_pylist()}
        assert found == expected | {(None,) * 4}
        assert leaves.schema.field("ts").type == type
        assert sorted(
            table.scan().to_arrow()["ts"].cast(pa.int64()).to_pylist(), key=str
        ) == sorted(column.cast(pa.int64()).to_pylist(), key=str)
        moment = "2024-12-31T23:59:59" + ("Z" if zone else "")
        assert table.count(f"ts = '{moment}'") == 1
        assert table.count(f"again = '{moment}' OR again IS NULL") == 2
        assert table.scan(where=f"again = '{moment}'").plan().selected == 1
