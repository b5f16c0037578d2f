"""Settings of Phalanx in Spark: session confs, confs of a catalog, options of reads and writes.

Each is declared once, with what it takes, its default, its meaning and the places where it may be
given. Where several places give one, `resolve` decides: the option of a read or write takes
precedence over the session's conf, that over the table's property, and that over the default.

The package `phalanx.spark` has a function of the same name: import from this module by
`from phalanx.spark.conf import …`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from phalanx.model import properties
from phalanx.model.properties import TEXT, TRUTH, Kind, Property, whole_number

T = TypeVar("T")

#: How the names of session confs begin.
PREFIX = "spark.sql.phalanx."
#: The conf that makes a catalog one of Phalanx. Its own settings follow the name.
CATALOG_PREFIX = "spark.sql.catalog."


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One setting, and where it may be given."""

    kind: Kind[T]
    default: T
    #: What it does, for the docs.
    meaning: str
    #: The name as an option of a read or write. Spark does not tell upper from lower case.
    option: str | None = None
    #: The name as a conf of the session.
    conf: str | None = None
    #: The property of a table that says the same.
    table: Property[T] | None = None
    #: Other names of the option, which users of other formats know.
    aliases: tuple[str, ...] = ()

    @staticmethod
    def of_property(declared: Property[T]) -> Setting[T]:
        """A property of a table that one session, or one write, may override."""
        name = declared.name
        return Setting(
            declared.kind, declared.default, declared.meaning, name, PREFIX + name, declared
        )

    @property
    def name(self) -> str:
        """What it is called where a statement gives it, or else in the session."""
        return self.option or self.conf or ""


def resolve(
    setting: Setting[T],
    options: Mapping[str, str] | None = None,
    confs: Mapping[str, str] | None = None,
    table: Mapping[str, str] | None = None,
) -> T:
    """The value of a setting: from the options of a statement, the session's confs, or the table.

    Places where the setting cannot be given are not looked at. Raises InvalidInput for a value that
    it does not take, and says where the value came from.
    """
    option = _option(setting, options or {})
    if option is not None:
        return setting.kind.read(option, f"the option {setting.option}")
    if setting.conf is not None and confs and setting.conf in confs:
        return setting.kind.read(confs[setting.conf], f"the conf {setting.conf}")
    if setting.table is not None and table:
        return setting.table.of(table)
    return setting.default


def is_given(setting: Setting[Any], options: Mapping[str, str]) -> bool:
    """Whether the options of a statement give a setting."""
    return _option(setting, options) is not None


def _option(setting: Setting[Any], options: Mapping[str, str]) -> str | None:
    wanted = {name.lower() for name in (setting.option, *setting.aliases) if name}
    return next((text for name, text in options.items() if name.lower() in wanted), None)


# Confs of a session

PYTHON = Setting[str | None](
    TEXT,
    None,
    "the Python that plans queries; `session` and `conf` set it to the one that they run in",
    conf=PREFIX + "python",
)
PYTHON_PATH = Setting[str | None](
    TEXT,
    None,
    "where that Python finds Phalanx if it is not installed; `session` and `conf` set it",
    conf=PREFIX + "pythonPath",
)
KEYED_LEAVES = Setting(
    whole_number(0),
    64,
    "up to how many partition keys with few rows are reported to Spark, with a task for each",
    conf=PREFIX + "keyedLeaves",
)
CHANGED_BYTES = Setting(
    whole_number(0),
    512 * 1024 * 1024,
    "up to how many bytes of rows in memory UPDATE and MERGE read at once; of larger tables, Spark "
    "first finds out which partitions have rows to change",
    conf=PREFIX + "changedBytes",
)
START_AHEAD = Setting(
    TRUTH,
    True,
    "whether Python starts with the session, so that the first query finds it loaded; read when "
    "Spark starts",
    conf=PREFIX + "startAhead",
)
SESSION = (PYTHON, PYTHON_PATH, KEYED_LEAVES, CHANGED_BYTES, START_AHEAD)

# Confs of a catalog: `spark.sql.catalog.<name>.<conf>`

WAREHOUSE = Setting[str | None](
    TEXT,
    None,
    "the folder of its tables, or a URI: a table's root is `<warehouse>/<namespace>/<table>`",
    conf="warehouse",
)
STORAGE = Setting[str | None](
    TEXT, None, "an option of the object store, such as `storage.region`", conf="storage.<option>"
)
#: How the confs of an object store begin.
STORAGE_PREFIX = "storage."
CATALOG = (WAREHOUSE, STORAGE)

# Options of writes

TRANSACTION_ID = Setting[str | None](
    TEXT,
    None,
    "the id of the job's transaction: a job whose id is in the table already does nothing",
    option="transaction_id",
)
PARTITION_BY = Setting[str | None](
    TEXT,
    None,
    "the partition fields of the table that `append` or `overwrite` creates at a path, such as "
    "`days(ts), country`",
    option="partition_by",
)
#: Scala reads it: the table changes before the write begins.
MERGE_SCHEMA = Setting(
    properties.TRUTH,
    False,
    "adds the columns that only the rows have, and widens the types of others, as `WITH SCHEMA "
    "EVOLUTION` does in SQL",
    option="mergeSchema",
)


def _overwrite_mode(text: str) -> str:
    return properties.one_of("static", "dynamic").parse(text.lower())


#: Scala carries these two out, and takes them off the write: what is left has no effect there.
REPLACE_WHERE = Setting[str | None](
    TEXT,
    None,
    'with `mode("overwrite")`: replaces only the rows that match a condition, such as '
    "`day = '2026-11-15'`, as `overwrite(condition)` does",
    option="replaceWhere",
)
OVERWRITE_MODE = Setting[str | None](
    Kind("'static' or 'dynamic'", _overwrite_mode),
    None,
    'with `mode("overwrite")`: `dynamic` replaces only the partitions that get rows, `static` all '
    "rows; also called `overwrite-mode`",
    option="partitionOverwriteMode",
    aliases=("overwrite-mode",),
)
ISOLATION = Setting.of_property(properties.ISOLATION)
DISTRIBUTION = Setting.of_property(properties.DISTRIBUTION)
FILE_BYTES = Setting.of_property(properties.FILE_BYTES)
#: Only tables that are named by their paths have a choice; Scala looks at it.
PATH_CATALOG = Setting(
    TEXT,
    "phalanx",
    "for a table that is named by its path: the catalog whose storage options apply",
    option="catalog",
)
WRITE = (
    TRANSACTION_ID,
    PARTITION_BY,
    MERGE_SCHEMA,
    REPLACE_WHERE,
    OVERWRITE_MODE,
    ISOLATION,
    DISTRIBUTION,
    FILE_BYTES,
    PATH_CATALOG,
)

# Options of reads; Spark itself resolves the first two

VERSION_AS_OF = Setting[str | None](
    TEXT, None, "the version to read: a number, or the name of a tag", option="versionAsOf"
)
TIMESTAMP_AS_OF = Setting[str | None](
    TEXT, None, "the time whose newest version to read", option="timestampAsOf"
)
TIME_TRAVEL = (VERSION_AS_OF, TIMESTAMP_AS_OF)
#: Scala reads these two.
TREE_SCHEMA = Setting[str | None](
    TEXT,
    None,
    "the columns of a key=value tree that does not say so itself, such as `id BIGINT, month INT`",
    option="schema",
)
TREE_PARTITION_BY = Setting[str | None](
    TEXT,
    None,
    "the partition fields of such a tree, such as `year(ts), country`",
    option="partition_by",
)
READ = (*TIME_TRAVEL, TREE_SCHEMA, TREE_PARTITION_BY, PATH_CATALOG)

# Options of streams that read


def _starting_version(text: str) -> str:
    if text not in ("earliest", "latest"):
        whole_number(1).parse(text)
    return text


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _limit(what: str) -> Setting[int | None]:
    return Setting[int | None](
        whole_number(1),
        None,
        f"how many {what} one batch reads at most; it always reads one file",
        option=f"max{what.title()}PerTrigger",
    )


STARTING_VERSION = Setting(
    Kind("a version, 'earliest' or 'latest'", _starting_version),
    "earliest",
    "where the stream begins: with the rows that a version has added, with `earliest` (all rows "
    "in the table, and then new ones) or with `latest` (only new ones)",
    option="startingVersion",
)
STARTING_TIMESTAMP = Setting[dt.datetime | None](
    Kind("a time such as '2026-11-15 12:00:00'", dt.datetime.fromisoformat),
    None,
    "begins with the first version that was committed at that time or later",
    option="startingTimestamp",
)
#: What one batch reads at most, by what is counted.
LIMITS = {what: _limit(what) for what in ("files", "bytes", "rows", "versions")}
SKIP_CHANGE_COMMITS = Setting(
    Kind("true or false", _flag, lambda flag: str(flag).lower()),
    False,
    "leaves out versions that remove or change rows, with all of their rows",
    option="skipChangeCommits",
)
STREAM: tuple[Setting[Any], ...] = (
    STARTING_VERSION,
    STARTING_TIMESTAMP,
    *LIMITS.values(),
    SKIP_CHANGE_COMMITS,
)
