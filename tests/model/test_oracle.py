"""The oracle of the property tests against Lance, whose answers are the ones that count."""

import itertools
import math
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from tests.model import oracle
from tests.model.oracle import Constant, Term

WORDS = ["", "a", "ab", "aXb", "a%b", "a_b", "a\\b", "a\\%b", "a\nb", "it's", "日本", "日", None]
PATTERNS = [
    "",
    "%",
    "a%",
    "a_b",
    r"a\%b",
    r"a\_b",
    r"a\\b",
    r"a\\\%b",
    r"a\Xb",
    "a\\",
    "%b",
    "_",
    "日_",
]
FLOATS = [0.0, -0.0, 0.1, 1.5, -1.5, math.inf, -math.inf, math.nan, None]
NUMBERS = ["0", "-0.0", "0.1", "1.5", "1e300", "-1e300"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> lance.LanceDataset:
    longest = max(len(WORDS), len(FLOATS))
    rows = pa.table(
        {
            "row": pa.array(range(longest)),
            "s": pa.array(WORDS + [None] * (longest - len(WORDS)), pa.string()),
            "f32": pa.array(FLOATS + [None] * (longest - len(FLOATS)), pa.float32()),
            "f64": pa.array(FLOATS + [None] * (longest - len(FLOATS)), pa.float64()),
        }
    )
    path: Path = tmp_path_factory.mktemp("oracle") / "rows.lance"
    return lance.write_dataset(rows, path)


def found_by_lance(dataset: lance.LanceDataset, sql: str) -> list[int]:
    return dataset.to_table(columns=["row"], filter=sql).column("row").to_pylist()


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_like(dataset, pattern, negated):
    condition = oracle.like(Term("s", lambda row: row["s"], "text"), pattern, negated)
    rows = [i for i, word in enumerate(WORDS) if condition.holds({"s": word})]
    assert rows == found_by_lance(dataset, condition.sql)


@pytest.mark.parametrize("column", ["f32", "f64"])
@pytest.mark.parametrize(
    ("op", "number"), [*itertools.product(["=", "<>", "<", "<=", ">", ">="], NUMBERS)]
)
def test_floats(dataset, column, op, number):
    """NaN is above all others, -0.0 is 0.0, and a constant is rounded to the column's type."""
    bits = int(column[1:])

    def value(row: dict[str, float | None]) -> tuple[bool, float] | None:
        return None if row["f"] is None else oracle.rounded(str(row["f"]), bits)

    constant = Constant(number, oracle.rounded(number, bits))
    condition = oracle.comparison(Term(column, value, f"float{bits}"), op, constant)
    rows = [i for i, number in enumerate(FLOATS) if condition.holds({"f": number})]
    assert rows == found_by_lance(dataset, condition.sql)
