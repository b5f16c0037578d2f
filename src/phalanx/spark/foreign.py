"""What users of Delta and Iceberg write, and what it is called here.

An option, statement or procedure of theirs that would otherwise be ignored, or end in an error of
Spark that explains nothing, is refused with one sentence that says what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from phalanx.errors import InvalidInput
from phalanx.spark.catalog import TableRequest
from phalanx.spark.conf import (
    LIMITS,
    SKIP_CHANGE_COMMITS,
    STARTING_TIMESTAMP,
    STARTING_VERSION,
    STREAM,
    TIMESTAMP_AS_OF,
    VERSION_AS_OF,
)
from phalanx.spark.dispatch import Reply, operation
from phalanx.spark.requests import Request

# Options of reads

_VERSION = f"use {VERSION_AS_OF.option} with a version or a tag"
_TIME = f"use {TIMESTAMP_AS_OF.option} with a time such as '2026-11-15 12:00:00'"
_BRANCH = f"a table has no branches, use {VERSION_AS_OF.option} with a version or a tag"
_STREAM = f"use readStream with {STARTING_VERSION.option} or {STARTING_TIMESTAMP.option}"
_SKIP = f"use {SKIP_CHANGE_COMMITS.option}"

#: Options of other formats that change what is read, and what to use instead.
OPTIONS: Mapping[str, str] = {
    # Iceberg
    "snapshot-id": _VERSION,
    "tag": _VERSION,
    "branch": _BRANCH,
    "as-of-timestamp": _TIME,
    "start-snapshot-id": _STREAM,
    "end-snapshot-id": _STREAM,
    "start-timestamp": _STREAM,
    "end-timestamp": _STREAM,
    "stream-from-timestamp": f"use {STARTING_TIMESTAMP.option}",
    "streaming-skip-delete-snapshots": _SKIP,
    "streaming-skip-overwrite-snapshots": _SKIP,
    "streaming-max-files-per-micro-batch": f"use {LIMITS['files'].option}",
    "streaming-max-rows-per-micro-batch": f"use {LIMITS['rows'].option}",
    # Delta
    "readChangeFeed": _STREAM,
    "readChangeData": _STREAM,
    "endingVersion": _STREAM,
    "endingTimestamp": _STREAM,
    "ignoreChanges": _SKIP,
    "ignoreDeletes": _SKIP,
}
_OPTIONS = {name.lower(): (name, advice) for name, advice in OPTIONS.items()}


def refuse_options(names: Iterable[str]) -> None:
    """Raise InvalidInput for an option of another format. One that nobody knows is ignored."""
    for given in names:
        if given.lower() in _OPTIONS:
            name, advice = _OPTIONS[given.lower()]
            raise InvalidInput(f"there is no option {name}: {advice}")


@dataclass(frozen=True, kw_only=True)
class CheckRead(Request):
    """The names of the options of a batch read."""

    options: Sequence[str]


@operation(CheckRead)
def check_read(request: CheckRead) -> Reply:
    """Raise InvalidInput for options that other formats, or only streams, have."""
    refuse_options(request.options)
    of_streams = {setting.name.lower(): setting.name for setting in STREAM}
    for given in request.options:
        if given.lower() in of_streams:
            raise InvalidInput(
                f"the option {of_streams[given.lower()]} is for streams: use readStream, or "
                f"{VERSION_AS_OF.option} to read one version"
            )
    return {}


# Procedures

#: Procedures of Iceberg by their names, and ours that do the same.
PROCEDURES: Mapping[str, str] = {
    "rollback_to_snapshot": "rollback",
    "rollback_to_timestamp": "rollback",
    "set_current_snapshot": "rollback",
    "create_tag": "tag",
    "rewrite_data_files": "optimize",
    "rewrite_manifests": "optimize",
    "rewrite_position_delete_files": "optimize",
    "remove_orphan_files": "vacuum",
    "add_files": "import_parquet",
    "migrate": "import_parquet",
    "snapshot": "import_parquet",
}

# Statements


@dataclass(frozen=True)
class Named:
    """A table of ours as statements name it."""

    catalog: str
    ident: Sequence[str]

    @property
    def name(self) -> str:
        return ".".join(map(_identifier, (self.catalog, *self.ident)))

    def call(self, procedure: str, *arguments: str | None) -> str:
        """A call of a procedure with the table as its first argument."""
        table = _literal(".".join(map(_identifier, self.ident)))
        given = ", ".join([table, *filter(None, arguments)])
        return f"CALL {_identifier(self.catalog)}.system.{procedure}({given})"


def _identifier(part: str) -> str:
    return part if re.fullmatch(r"\w+", part) else "`" + part.replace("`", "``") + "`"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _argument(name: str, text: str | None) -> str | None:
    return None if not text else f"{name} => {_literal(' '.join(text.split()))}"


_Advice = Callable[[Named, re.Match[str]], str]


def _optimize(table: Named, match: re.Match[str]) -> str:
    columns = (match["columns"] or "").strip("() \n")
    order = "zorder_by" if "," in columns else "sort_by"  # of one column they are the same
    return table.call("optimize", _argument("where", match["where"]), _argument(order, columns))


def _vacuum(table: Named, match: re.Match[str]) -> str:
    age = _literal(f"{match['hours']} hours") if match["hours"] else None
    return table.call("vacuum", age, "dry_run => true" if match["dry"] else None)


def _restore(table: Named, match: re.Match[str]) -> str:
    return table.call("rollback", _literal(match["version"].strip("'\"")))


def _tag(table: Named, match: re.Match[str]) -> str:
    name = _literal(match["tag"].strip("`'\""))
    if match["action"].upper().startswith("DROP"):
        return table.call("drop_tag", name)
    return table.call("tag", name, _literal(match["version"]) if match["version"] else None)


def _branch(table: Named, match: re.Match[str]) -> str:
    return table.call("tag", "'name'") + " to keep a version, because a table has no branches"


def _order(table: Named, match: re.Match[str]) -> str:
    return table.call("optimize", _argument("sort_by", match["columns"] or "column"))


def _distribution(table: Named, match: re.Match[str]) -> str:
    return f"ALTER TABLE {table.name} SET TBLPROPERTIES ('write.distribution' = 'hash')"


#: Statements of other formats after the name of the table, by how they begin, and what to write.
_STATEMENTS: Sequence[tuple[str, str, str, _Advice]] = (
    (
        "OPTIMIZE",
        r"OPTIMIZE",
        r"(?:\s+WHERE\s+(?P<where>.+?))?(?:\s+ZORDER\s+BY\s+(?P<columns>.+))?",
        _optimize,
    ),
    (
        "VACUUM",
        r"VACUUM",
        r"(?:\s+(?:FULL|LITE))?(?:\s+RETAIN\s+(?P<hours>\d+)\s+HOURS?)?(?P<dry>\s+DRY\s+RUN)?",
        _vacuum,
    ),
    (
        "RESTORE",
        r"RESTORE(?:\s+TABLE)?",
        r"(?:\s+TO)?\s+(?:VERSION|TIMESTAMP)\s+AS\s+OF\s+(?P<version>.+)",
        _restore,
    ),
    ("REORG TABLE", r"REORG\s+TABLE", r".*", lambda table, match: table.call("optimize")),
    (
        "DESCRIBE HISTORY",
        r"DESC(?:RIBE)?\s+HISTORY",
        r".*",
        lambda table, match: f"SELECT * FROM {table.name}.snapshots",
    ),
    (
        "DESCRIBE DETAIL",
        r"DESC(?:RIBE)?\s+DETAIL",
        r".*",
        lambda table, match: f"DESCRIBE EXTENDED {table.name}, or SELECT * FROM {table.name}.files",
    ),
    (
        "TAG",
        r"ALTER\s+TABLE",
        r"\s+(?P<action>CREATE(?:\s+OR\s+REPLACE)?|REPLACE|DROP)\s+TAG(?:\s+IF(?:\s+NOT)?\s+EXISTS)?"
        r"\s+(?P<tag>\S+)(?:\s+AS\s+OF\s+VERSION\s+(?P<version>\d+))?.*",
        _tag,
    ),
    (
        "BRANCH",
        r"ALTER\s+TABLE",
        r"\s+(?:CREATE|REPLACE|DROP)(?:\s+OR\s+REPLACE)?\s+BRANCH\b.*",
        _branch,
    ),
    (
        "WRITE ORDERED BY",
        r"ALTER\s+TABLE",
        r"\s+WRITE\s+(?:.*?\s)?(?:LOCALLY\s+)?ORDERED(?:\s+BY\s+(?P<columns>.+))?",
        _order,
    ),
    ("WRITE DISTRIBUTED BY", r"ALTER\s+TABLE", r"\s+WRITE\s+DISTRIBUTED\b.*", _distribution),
)

_PART = r"(?:`(?:[^`]|``)+`|[\w$-]+)"
_PATTERNS = [
    (name, re.compile(rf"{begin}\s+{_PART}(?:\.{_PART})*{rest}", re.I | re.S), advice)
    for name, begin, rest, advice in _STATEMENTS
]
_COMMENTS = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*", re.S)


@dataclass(frozen=True, kw_only=True)
class ForeignStatement(TableRequest):
    """A statement about a table of ours that no parser in the session knows."""

    text: str


@operation(ForeignStatement)
def foreign_statement(request: ForeignStatement) -> Reply:
    """One sentence about what to write instead; nothing where the statement is nobody's."""
    text = request.text[_COMMENTS.match(request.text).end() :]  # type: ignore[union-attr]
    table = Named(request.catalog.name, request.ident)
    for name, pattern, advice in _PATTERNS:
        match = pattern.fullmatch(text.strip().rstrip(";").rstrip())
        if match is not None:
            return {"sentence": f"Phalanx has no statement {name}: write {advice(table, match)}"}
    return {}
