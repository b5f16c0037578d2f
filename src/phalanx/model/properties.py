"""Properties of a table: every name that means something to Phalanx, declared once.

A value is text. It is checked when a property is set, at CREATE, REPLACE and ALTER alike, and read
through its declaration: `ANCHOR.of(head.properties)`. Names that are declared nowhere here belong
to the table's users, except under the prefixes `retention.` and `write.`, where an unknown name is
most likely a typing error.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from phalanx.errors import InvalidInput
from phalanx.model.constraints import PREFIX

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


# Kinds of values


@dataclass(frozen=True)
class Kind(Generic[T_co]):
    """A kind of value that is written as text, such as a whole number or one of some words."""

    #: What it takes, in words: they complete the sentence "the property … is".
    takes: str
    #: Raises ValueError for a text that says no such value.
    parse: Callable[[str], T_co]
    #: The text of a value.
    spell: Callable[[Any], str] = str

    def read(self, text: str, name: str) -> T_co:
        """The value of a text. Raises InvalidInput, which calls the value `name`."""
        try:
            return self.parse(text)
        except InvalidInput as error:
            raise InvalidInput(f"{name}: {error}") from None
        except ValueError:
            raise InvalidInput(f"{name} is {self.takes}, not {text!r}") from None


def one_of(*words: str) -> Kind[str]:
    """One of some words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    if len(words) == 2:
        return Kind(f"{words[0]!r} or {words[1]!r}", parse)
    return Kind(f"one of {', '.join(words)}", parse)


def whole_number(least: int) -> Kind[int]:
    """A whole number that is not below `least`."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < least:
            raise ValueError(text)
        return int(text)

    return Kind(f"a whole number from {least}", parse)


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(\d{1,9})\s*(?:([smhdw])|(second|minute|hour|day|week)s?)")


def span_of(text: str) -> dt.timedelta:
    """A span of time such as '7 days', '12h' or '0'. Raises InvalidInput for any other text."""
    if text.strip() == "0":
        return dt.timedelta(0)
    match = _SPAN.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidInput(f"{text!r} is not a span of time: write it like '7 days' or '12 hours'")
    try:
        return dt.timedelta(seconds=int(match[1]) * _UNITS[match[2] or match[3][0]])
    except OverflowError:
        raise InvalidInput(f"{text!r} is too long a span of time") from None


def _truth(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


TEXT = Kind("a text", str)
TRUTH = Kind("'true' or 'false'", _truth, lambda truth: str(truth).lower())
SPAN = Kind("a span of time", span_of, lambda span: f"{span.days} days")


# The properties


_COLUMN = "<column>"


@dataclass(frozen=True)
class Property(Generic[T]):
    """One property. A name with `<column>` in it stands for one property of each column."""

    name: str
    kind: Kind[T]
    default: T
    #: What it does, for the docs.
    meaning: str
    #: Whether it may be set, or removed, after the table was created.
    changeable: bool = True
    #: Whether an invalid value in an existing table counts as not set. It is refused otherwise.
    forgiving: bool = False

    def of(self, properties: Mapping[str, str]) -> T:
        """The value that a table has. Raises InvalidInput for one that should not be there."""
        text = properties.get(self.name)
        if text is None:
            return self.default
        try:
            return self.read(text)
        except InvalidInput:
            if self.forgiving:
                return self.default
            raise

    def by_column(self, properties: Mapping[str, str]) -> dict[str, T]:
        """The values that columns have, for a property of columns."""
        values = {}
        for name, text in properties.items():
            if (match := self.match(name)) is not None:
                try:
                    values[match[1]] = self.read(text, name)
                except InvalidInput:
                    if not self.forgiving:
                        raise
        return values

    def read(self, text: str, name: str = "") -> T:
        """The value of a text. Raises InvalidInput where it is not one that the property takes."""
        return self.kind.read(text, f"the property {name or self.name}")

    def has_name(self, name: str) -> bool:
        """Whether it goes by a name."""
        return self.match(name) is not None

    def match(self, name: str) -> re.Match[str] | None:
        """How it goes by a name. The first group is the column, for a property of columns."""
        return self._pattern.fullmatch(name)

    @property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("(.+)".join(map(re.escape, self.name.split(_COLUMN))), re.DOTALL)


#: How long a file that nothing refers to is kept, and a snapshot after it was the newest.
DEFAULT_AGE = dt.timedelta(days=7)

TRANSACTIONS = Property(
    "transactions",
    one_of("strong", "weak"),
    "strong",
    "`strong`: all partitions change together, in one transaction; `weak`: each for itself",
    changeable=False,
)
LAYOUT = Property(
    "layout",
    one_of("flat", "hive"),
    "flat",
    "where leaves are: `flat` puts them all into the table's folder, `hive` into a tree such as "
    "`event_date=2025-12-10/country=US.lance`",
    changeable=False,
)
ISOLATION = Property(
    "isolation",
    one_of("serializable", "snapshot"),
    "serializable",
    "what a job conflicts with: with rows that others add to partitions that it has read "
    "(`serializable`), or only with changes of the same rows (`snapshot`)",
)
ANCHOR = Property(
    "anchor",
    one_of("maintenance", "commit", "never"),
    "maintenance",
    "when versions of leaves are published on their main branches, for plain Lance readers: at the "
    "end of `optimize`, `rewrite` and `vacuum`, after every `commit`, or `never`",
    forgiving=True,
)
KEEP_SNAPSHOTS = Property(
    "retention.snapshots",
    SPAN,
    DEFAULT_AGE,
    "how long a snapshot is kept after it was the newest: `30 days`, `12 hours`",
)
KEEP_AT_LEAST = Property(
    "retention.min_snapshots",
    whole_number(1),
    1,
    "how many of the newest snapshots are kept, however old they are",
)
DISTRIBUTION = Property(
    "write.distribution",
    one_of("hash", "none"),
    "hash",
    "`hash` brings the rows of a partition together before a job writes them, `none` writes them "
    "where they are",
)
FILE_BYTES = Property(
    "write.target_file_bytes",
    whole_number(1),
    128 * 1024 * 1024,
    "about how many bytes a job writes to a data file before it begins the next one",
)
_COMPRESSIONS = one_of("auto", "zstd", "none")
COMPRESSION = Property(
    "write.compression",
    _COMPRESSIONS,
    "auto",
    "compression of new files beyond Lance's own: `zstd` for all columns of text, binary and "
    "floating-point numbers and for nested ones, `none`, or `auto`: for columns whose "
    "first rows become smaller by 15 % (text and binary) or by a third (numbers and times)",
    forgiving=True,
)
COLUMN_COMPRESSION = Property[str | None](
    "write.compression.<column>",
    _COMPRESSIONS,
    None,
    "the same for one column; it takes precedence",
    forgiving=True,
)
MAX_NEW_LEAVES = Property[int | None](
    "write.max_new_leaves",
    whole_number(1),
    None,
    "the most leaves that one write may create; one that would create more is refused. If it is "
    "not set, a write that creates very many tiny leaves logs a warning",
)
MATERIALIZE = Property[bool | None](
    "materialize_partition_columns",
    TRUTH,
    None,
    "whether new data files hold the columns that the table is partitioned by: `true` puts them "
    "after the other columns, and `false` leaves out those of identity fields, which readers take "
    "from the partition values. If it is not set, files hold all columns in the table's order, but "
    "it is `false` for the layout `hive`",
)
VECTOR_DIMENSION = Property[int | None](
    "vector.<column>.dimension",
    whole_number(1),
    None,
    "stores a column of type `ARRAY<FLOAT>` or `ARRAY<DOUBLE>` as vectors of that many numbers",
    changeable=False,
)
COMMENT = Property[str | None]("comment", TEXT, None, "what the table is about")

PROPERTIES: tuple[Property[Any], ...] = (
    TRANSACTIONS,
    LAYOUT,
    ISOLATION,
    ANCHOR,
    KEEP_SNAPSHOTS,
    KEEP_AT_LEAST,
    DISTRIBUTION,
    FILE_BYTES,
    COMPRESSION,
    COLUMN_COMPRESSION,
    MAX_NEW_LEAVES,
    MATERIALIZE,
    VECTOR_DIMENSION,
    COMMENT,
)
#: What a catalog says of a table by itself. It is worked out and not stored.
DERIVED = ("provider", "location", "owner", "external", "version", "is_managed_location")
_OURS = ("retention.", "write.")
#: The id of one transaction. As a property it would make all of them the same.
_TRANSACTION_ID = "transaction_id"


def check_new(values: Mapping[str, str], columns: Sequence[str]) -> None:
    """Refuse properties that a new table with these columns cannot have. Raises InvalidInput."""
    if TRANSACTIONS.name in values:
        raise InvalidInput(
            f"{TRANSACTIONS.name} is not one of the properties here: give it by itself, as the "
            "argument of that name"
        )
    for name, value in values.items():
        _check(name, value)
    _check_columns(values, columns)


def check_changes(
    values: Mapping[str, str | None], columns: Sequence[str], is_constrained: bool = True
) -> None:
    """Refuse changes that an existing table cannot take; None removes a property.

    Without constraints, a property that has the name of one is free, and may be removed. Raises
    InvalidInput.
    """
    for name, value in values.items():
        declared = _declared(name)
        if value is None and name.startswith(PREFIX) and not is_constrained:
            continue
        if declared is not None and not declared.changeable:
            raise InvalidInput(
                f"the property {name!r} cannot be changed: it is set when the table is created"
            )
        _check(name, value)
    _check_columns({name: value for name, value in values.items() if value is not None}, columns)


def of_columns(properties: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Properties after columns were renamed: `names` has the new name of each column that stays."""
    kept = {}
    for name, value in properties.items():
        if (match := COLUMN_COMPRESSION.match(name)) is not None:
            if match[1] not in names:
                continue
            name = COLUMN_COMPRESSION.name.replace(_COLUMN, names[match[1]])
        kept[name] = value
    return kept


def restored(
    properties: Mapping[str, str], earlier: Mapping[str, str], names: Mapping[str, str]
) -> dict[str, str]:
    """Properties after a rollback of the schema: those of columns come back with their columns.

    `names` has the earlier name of each column that was there then and is there now.
    """
    returned = {}
    for name, value in earlier.items():
        match = COLUMN_COMPRESSION.match(name)
        if match is not None and match[1] not in names.values():
            returned[name] = value
    return of_columns(properties, names) | returned


def _check_columns(values: Mapping[str, str], columns: Sequence[str]) -> None:
    """Refuse a property of a column that the table does not have."""
    for name in values:
        if (match := COLUMN_COMPRESSION.match(name)) is not None and match[1] not in columns:
            raise InvalidInput(f"there is no column {match[1]!r} for the property {name}")


def _declared(name: str) -> Property[Any] | None:
    if not isinstance(name, str):
        raise InvalidInput("properties are strings")
    return next((one for one in PROPERTIES if one.has_name(name)), None)


def _check(name: str, value: str | None) -> None:
    """Refuse a value that a property does not take, and a name that is none."""
    declared = _declared(name)
    if name.startswith(PREFIX):
        raise InvalidInput(
            f"the property {name!r} is a constraint: Spark's ALTER TABLE … ADD CONSTRAINT adds one"
        )
    if value is None:
        return
    if not isinstance(value, str):
        raise InvalidInput("properties are strings")
    if declared is not None:
        declared.read(value, name)
    elif name == _TRANSACTION_ID:
        raise InvalidInput(
            f"{name} is not a property of a table: it names one transaction, so give it with each "
            "write, as its option or argument"
        )
    elif name.startswith(_OURS):
        prefix = name[: name.index(".") + 1]
        known = ", ".join(one.name for one in PROPERTIES if one.name.startswith(prefix))
        raise InvalidInput(f"there is no property {name}: there is {known}")
