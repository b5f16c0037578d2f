"""Values as text and as JSON."""

import datetime as dt
import decimal
import json
import math

import pyarrow as pa
import pytest

from phalanx.table.cells import cell_text, harmless, json_value, rows_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "true"),
        (b"\x00\xff", "0x00ff"),
        (dt.datetime(2025, 1, 2, 3), "2025-01-02 03:00:00"),
        ({"a": [1, None]}, "{a: [1, NULL]}"),
        (list(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, …]"),
        ("x" * 100, "x" * 59 + "…"),
        ("a\x1b[31mb\nc\u202e", "a\\x1b[31mb\\nc\\u202e"),
    ],
)
def test_text(value, text):
    assert cell_text(value) == text


def test_control_characters_never_pass():
    for number in (*range(32), 127, 0x9B):
        assert chr(number) not in harmless(f"a{chr(number)}b")


def test_json():
    value = {
        "a": math.nan,
        "b": b"\x01",
        "c": decimal.Decimal("1.50"),
        "d": dt.date(2025, 1, 2),
        "e": [dt.timedelta(seconds=1)],
        "f": 2**70,
        "g": -math.inf,
    }
    text = json.dumps(json_value(value), allow_nan=False)
    assert json.loads(text) == {
        "a": "nan",
        "b": "AQ==",
        "c": "1.50",
        "d": "2025-01-02",
        "e": ["0:00:01"],
        "f": 2**70,
        "g": "-inf",
    }


def test_times_that_python_cannot_hold():
    batch = pa.record_batch(
        {
            "far": pa.array([2**60, None], pa.timestamp("us")),
            "fine": pa.array([1, 2], pa.timestamp("ns", "UTC")),
            "nested": pa.array([[2**60], []], pa.list_(pa.timestamp("us"))),
        }
    )
    first, second = rows_of(batch)
    assert str(2**60) in first["far"]
    assert first["fine"] == "1970-01-01 00:00:00.000000001Z"
    assert second == {"far": None, "fine": "1970-01-01 00:00:00.000000002Z", "nested": []}
    assert str(2**60) in first["nested"][0]
