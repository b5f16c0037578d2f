"""Events with a time and a country, as tables that are only looked at hold them."""

import datetime as dt

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("ts", pa.timestamp("us", "UTC")),
        ("country", pa.string()),
    ]
)


def rows(count, first=0, countries=("DE", "US", None)):
    """Rows in three months; three of them in turn have the same country."""
    return [
        {
            "id": n,
            "ts": dt.datetime(2025, n % 3 + 1, 5, tzinfo=dt.UTC),
            "country": countries[n // 3 % len(countries)],
        }
        for n in range(first, first + count)
    ]
