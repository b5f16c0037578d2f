"""Compare what a query gives on Phalanx tables and on plain Parquet copies of them."""

import re
from collections import Counter
from decimal import Decimal

_TABLE = re.compile(r"\blake\.(\w+)\.(\w+)\b")


def copy_name(table):
    """What the Parquet copy of `lake.<namespace>.<table>` is called."""
    return _TABLE.sub(r"copy_\1_\2", table)


def make_copy(spark, rows, table, folder):
    """Keep rows as plain Parquet, under the name that `same` puts in the place of `table`."""
    path = str(folder / copy_name(table))
    rows.write.mode("overwrite").parquet(path)
    spark.read.schema(rows.schema).parquet(path).createOrReplaceTempView(copy_name(table))


def make_both(spark, table, rows, folder, partitioned_by="", properties=""):
    """Make a table and its copy of the same rows."""
    rows = rows if hasattr(rows, "write") else spark.sql(rows)
    make_copy(spark, rows, table, folder)
    rows.createOrReplaceTempView("rows_to_write")
    partitioned = f"PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
    with_properties = f"TBLPROPERTIES ({properties})" if properties else ""
    spark.sql(
        f"CREATE TABLE {table} USING phalanx {partitioned} {with_properties} "
        "AS SELECT * FROM rows_to_write"
    )


def same(spark, query):
    """Run a query on tables and on their copies; both must give the same rows, in any order.

    The rows come back, so that a test can also say which ones they are.
    """
    expected = spark.sql(_TABLE.sub(r"copy_\1_\2", query)).collect()
    found = spark.sql(query).collect()
    given, wanted = multiset(found), multiset(expected)
    assert given == wanted, f"{query}\nmissing: {few(wanted - given)}\nextra: {few(given - wanted)}"
    return found


def few(rows):
    return f"{sum(rows.values())} rows such as {list(rows.items())[:5]}"


def multiset(rows):
    return Counter(plain(row) for row in rows)


def plain(value):
    """A value that is equal to another one where Spark's values are the same; NaN is NaN."""
    match value:
        case bool() | None | str() | bytes() | Decimal():
            return (type(value).__name__, value)
        case float():
            # Sums may differ in their last digits: rows come in another order.
            return ("float", f"{value:.11g}")
        case bytearray():
            return ("bytes", bytes(value))
        case dict():
            return ("map", frozenset((plain(k), plain(v)) for k, v in value.items()))
        case list() | tuple():
            return tuple(plain(item) for item in value)
    return value
