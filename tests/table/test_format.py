from phalanx.table.check import CheckReport
from phalanx.table.format import count_text, size_text


def test_one_and_many():
    assert [count_text(n, "leaf") for n in (0, 1, 2)] == ["0 leaves", "1 leaf", "2 leaves"]
    assert [count_text(n, "row") for n in (1, 1000)] == ["1 row", "1,000 rows"]
    assert str(CheckReport([], 1, 1, 2)) == "ok: 1 leaf, 1 snapshot, 2 files"


def test_sizes():
    assert [size_text(n) for n in (0, 999, 1500, 2 * 10**12)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.0 TB",
    ]
