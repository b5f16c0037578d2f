"""What a version of Spark has that others have not.

Code asks for a feature by its name, and never for a version: which minor versions have it is
written here once, with the sentence that tells a user what the others cannot do.
"""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.errors import PhalanxError

#: The minor versions of Spark that the bridge is written for, the oldest first.
MINORS = ("4.0", "4.1", "4.2", "4.3")


@dataclass(frozen=True)
class Feature:
    """Something that Spark can do since a minor version."""

    since: str
    #: What is not possible without it, as the end of a sentence that begins with Spark's version.
    without: str


FEATURES = {
    "partition_predicate": Feature(
        "4.2",
        "prunes by comparisons only: a filter on a partition column that calls functions, such as "
        "upper(country) = 'US', reads all partitions",
    ),
    "time": Feature("4.1", "has no type for a time of day"),
    "time_in_nanoseconds": Feature("4.3", "has no time of day that is finer than microseconds"),
    "partial_insert": Feature(
        "4.1",
        "wants a value for every column of an INSERT: name them all, with NULL or DEFAULT for what "
        "is absent",
    ),
    "merge_schema_evolution": Feature(
        "4.1", "has no MERGE WITH SCHEMA EVOLUTION: add columns with ALTER TABLE before"
    ),
    "insert_schema_evolution": Feature(
        "4.2",
        "has no INSERT WITH SCHEMA EVOLUTION and no option mergeSchema: add columns with ALTER "
        "TABLE before",
    ),
    "join_by_some_keys": Feature(
        "4.3", "shuffles a join by only some of the fields that both tables are partitioned by"
    ),
    "constraints": Feature(
        "4.1",
        "has no statements for CHECK constraints: those that a table has are checked as Python "
        "does it",
    ),
    "views": Feature("4.2", "has no permanent views in catalogs: use temporary views"),
    "sqlstate_of_tasks": Feature(
        "4.2", "gives no SQLSTATE to what fails in a task: look at the condition"
    ),
    "column_ids": Feature(
        "4.2",
        "does not notice that a column of a DataFrame was dropped, and that another one has taken "
        "its name since",
    ),
    "hidden_columns_of_streams": Feature(
        "4.2", "has no hidden columns, such as _partition, in streams"
    ),
    "doubled_quotes": Feature(
        "4.1",
        "reads two quotes inside a text as none: write \"it's\" or 'it\\'s', and correct such "
        "texts in what SHOW CREATE TABLE prints",
    ),
    "show_procedures": Feature("4.1", "has no SHOW PROCEDURES: CALL works"),
    "create_table_like": Feature("4.2", "has no CREATE TABLE … LIKE for tables of catalogs"),
    "recursive_queries": Feature("4.1", "has no WITH RECURSIVE"),
}


def minor_of(version: str) -> str:
    """The minor version of Spark, such as 4.3, of a full one. Raises PhalanxError if unknown."""
    minor = ".".join(version.split(".")[:2])
    if minor not in MINORS:
        oldest, newest = MINORS[0], MINORS[-1]
        major, number = newest.split(".")
        raise PhalanxError(
            f"this Phalanx works with Spark {oldest} to {newest}, and this is Spark {version}: "
            f"pip install 'pyspark>={oldest},<{major}.{int(number) + 1}'"
        )
    return minor


def minor() -> str:
    """The minor version of the Spark that is installed."""
    from pyspark.version import __version__

    return minor_of(__version__)


def has(name: str) -> bool:
    """Whether the Spark that is installed has a feature."""
    return lacking(name) is None


def lacking(name: str) -> str | None:
    """What the Spark that is installed cannot do for want of a feature, in one sentence."""
    feature = FEATURES[name]
    here = minor()
    if MINORS.index(here) >= MINORS.index(feature.since):
        return None
    return f"Spark {here} {feature.without}"
