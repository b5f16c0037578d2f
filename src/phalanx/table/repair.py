"""The mending of a damaged table: what is to be written, worked out before anything is.

Of what is written down more than once the part counts that the others agree with. What another
client has dropped comes back from the last version of the manifest that had it, or else from
the texts in the rows' metadata.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from phalanx.errors import ConflictError, CorruptTable, InvalidInput
from phalanx.model.specs import PartitionSpec
from phalanx.model.spelling import read_value, value_text
from phalanx.storage import names, raw_manifest
from phalanx.storage.files import DatasetFolder, VersionFiles
from phalanx.storage.head import HEAD_ID, HEAD_TYPE, Head
from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location
from phalanx.storage.manifest import GUARD_KEY, ManifestVersion, SwapLost, published_texts
from phalanx.storage.manifest_update import (
    INDEXED,
    NAMESPACE,
    READ_VERSION,
    STREAM,
    TABLE,
    TAG,
    TRANSACTION,
    VERSION,
    ManifestUpdate,
)
from phalanx.storage.names import is_leaf_id, transaction_row
from phalanx.storage.raw_manifest import RawRow
from phalanx.storage.records import TransactionRecord
from phalanx.table.book import (
    Book,
    Problem,
    agree,
    committed_in,
    earlier_books,
    sequence_in,
    version_in,
)
from phalanx.table.check import check_table
from phalanx.transaction import lock
from phalanx.transaction.failpoints import reach

_TRIES = 100
_OURS = (HEAD_TYPE, TRANSACTION, TAG, STREAM, VERSION)
#: What no copy can bring back.
BEYOND_REPAIR = frozenset(
    {
        "manifest-unreadable",
        "snapshot-unreadable",
        "tag-broken",
        "column-type",
        "leaf-missing",
        "leaf-outside",
        "leaf-twice",
        "version-missing",
        "file-missing",
        "file-damaged",
        "schema-drift",
    }
)


@dataclass(frozen=True)
class RepairReport:
    """What `repair` has mended, or would, and what it cannot mend."""

    dry_run: bool
    mended: list[Problem]
    unmended: list[Problem]

    @property
    def ok(self) -> bool:
        """Whether nothing is left that repair cannot mend."""
        return not self.unmended

    def __str__(self) -> str:
        if not self.mended and not self.unmended:
            return "nothing to repair"
        verb = "would mend" if self.dry_run else "mended"
        lines = [f"{verb} {problem}" for problem in self.mended]
        return "\n".join([*lines, *(f"cannot mend {problem}" for problem in self.unmended)])


class Plan:
    """What is to be written to make a table whole."""

    def __init__(self, location: Location) -> None:
        """Raises UnsupportedTable for a table that is not ours to mend."""
        self._location = location
        self.mended: list[Problem] = []
        self.unmended: list[Problem] = []
        self._book = Book.open(ManifestVersion(location), statistics=True)
        self._head = self._book.head
        self._head.check_writable()
        self._columns = self._book.missing_columns()
        self._rows: dict[str, RawRow] = {}
        self._changed: set[str] = set()
        self._removed: set[str] = set()
        self._twice: list[int] = []
        self._to_create: list[str] = []
        self._folders: dict[str, DatasetFolder] = {}
        self._contents: dict[tuple[str, int | None], VersionFiles | None] = {}
        self._merge_twins()
        self._mend_head()
        before = self._before()
        if before is not None:
            self._bring_back(before)
        self._fill_columns(before)
        self._mend_leaves()
        self._mend_namespaces()
        self._mend_timelines()
        self._mend_copies()
        self._mend_mains()

    # What is wrong

    def _fix(self, kind: str, what: str, where: str) -> None:
        self.mended.append(Problem(kind, what, where))

    def _leaves(self) -> list[RawRow]:
        return [r for r in self._rows.values() if r.type == TABLE and is_leaf_id(r.id)]

    def _merge_twins(self) -> None:
        """Of several rows with one id only the last stays."""
        for row in self._book.rows:
            known = self._rows.get(row.id)
            if known is None:
                self._rows[row.id] = row
                continue
            if row is self._book.head_row:
                keep, drop = row, known
            elif known is self._book.head_row or known.number > row.number:
                keep, drop = known, row
            else:
                keep, drop = row, known
            self._rows[row.id] = keep
            self._twice.append(drop.number)
            kind = "head-twice" if row.id == HEAD_ID else "row-twice"
            self._fix(kind, "the row that was written last stays", row.id)
            if row.type == TABLE and version_in(keep) != version_in(drop):
                what = (
                    f"version {version_in(drop)} of the leaf in {drop.location} is not part of the "
                    "table now: rows that only it has can be read there with plain Lance"
                )
                self.unmended.append(Problem("rows-lost", what, row.id))

    def _mend_head(self) -> None:
        row = self._book.head_row
        if row is None:
            self._fix("head-missing", "the head row is written anew", HEAD_ID)
        elif "sequence" not in row.columns or "committed_at" not in row.columns:
            self._fix("head-damaged", "the head row is written anew", HEAD_ID)
        self._rows.pop(HEAD_ID, None)

    def _before(self) -> Book | None:
        """The table before another client damaged it, where one has."""
        if not self._is_damaged:
            return None
        return next(earlier_books(self._book.manifest), None)

    @property
    def _is_damaged(self) -> bool:
        """Whether another client has rewritten the manifest, or a repair of that broke off."""
        kinds = {problem.kind for problem in self.mended}
        return bool(self._columns or kinds & {"head-missing", "head-damaged"})

    def _bring_back(self, before: Book) -> None:
        """Rows that were there before the damage and are gone."""
        gone = [row for row in before.rows if row.id not in self._rows and row.id != HEAD_ID]
        lost = set()
        for row in gone:
            if (
                row.type == TABLE
                and is_leaf_id(row.id)
                and not self._is_whole(row, version_in(row))
            ):
                what = "the leaf was dropped by another client, and its files with it"
                self.unmended.append(Problem("leaf-missing", what, row.id))
                lost.add(row.id)
        for row in gone:
            leaf = row.id.rpartition("$")[0] if row.type == VERSION else row.id
            ours = row.type in _OURS or row.id.split("$")[0].removeprefix("v").isdigit()
            needed = row.type != NAMESPACE or not lost or self._has_others(row.id, before, lost)
            if ours and leaf not in lost and needed:
                self._rows[row.id] = row
                self._changed.add(row.id)
                self._fix("row-missing", f"a row of type {row.type} comes back", row.id)

    def _has_others(self, namespace: str, before: Book, lost: set[str]) -> bool:
        """Whether not all leaves in a namespace are lost."""
        inside = [r.id for r in before.leaves() if r.id.startswith(f"{namespace}$")]
        return not inside or not lost.issuperset(inside)

    def _fill_columns(self, before: Book | None) -> None:
        """The values of columns that another client has dropped."""
        known = {} if before is None else {row.id: row for row in before.rows}
        for column in self._columns:
            self._fix("column-missing", "the column is filled again", column.name)
        if not self._is_damaged:
            return
        for row in list(self._rows.values()):
            earlier = known.get(row.id)
            if earlier is row:
                continue
            held = (dict(row.columns), dict(row.values))
            same = earlier is not None and version_in(earlier) == version_in(row)
            if earlier is not None and (same or row.type != TABLE):
                row.columns = {**earlier.columns, **row.columns}
                row.values = {**earlier.values, **row.values}
            else:
                self._from_copies(row)
            if row.id in self._rows and held != (row.columns, row.values):
                self._changed.add(row.id)

    def _from_copies(self, row: RawRow) -> None:
        """Columns from what the row's metadata and its neighbors say."""
        columns = row.columns
        match row.type:
            case "table" if is_leaf_id(row.id):
                self._leaf_from_copies(row)
            case "namespace":
                self._values_from_copies(row, row.id.split("$"))
            case "transaction":
                sequence, committed = sequence_in(row), committed_in(row)
                if sequence is None or committed is None:
                    what = "a transaction whose version nobody remembers leaves the history"
                    self._drop(row, "transaction-lost", what)
                else:
                    columns |= {"sequence": sequence, "committed_at": committed}
            case "tag":
                columns.setdefault("sequence", int(row.copy("version") or 0))
            case "table_version" if READ_VERSION not in columns:
                leaf = self._rows.get(row.id.rpartition("$")[0])
                if leaf is None or row.id != f"{leaf.id}${self._last_number(leaf)}":
                    what = "which version it was nobody remembers"
                    self._drop(row, "timeline-lost", what)
                elif self._book.strong:
                    columns.setdefault(READ_VERSION, version_in(leaf))

    def _leaf_from_copies(self, row: RawRow) -> None:
        columns = row.columns
        spec = self._book.spec_of(row)
        if spec is None:
            return
        self._values_from_copies(row, row.id.split("$")[:-1])
        columns.setdefault("spec_id", spec.id)
        columns.setdefault("sequence", self._head.sequence)
        if self._book.strong:
            version = version_in(row)
            if version is None:
                what = "which version of the leaf is the table's nobody remembers"
                self.unmended.append(Problem("version-lost", what, row.id))
            else:
                columns.setdefault(READ_VERSION, version)
            columns.setdefault("version_number", self._last_number(row))

    def _values_from_copies(self, row: RawRow, parts: Sequence[str]) -> None:
        """Partition values by the texts in the metadata; a text that is not there is NULL."""
        spec = self._book.spec_of(row)
        if spec is None:
            return
        for depth, found in enumerate(spec.fields[: len(parts) - 1], 1):
            if found.field_id in row.values:
                continue
            source = self._rows.get("$".join(parts[: depth + 1])) or row
            text = (row if row.type == TABLE else source).copy(f"partition.{found.field_id}")
            if text is None:
                continue
            try:
                row.values[found.field_id] = read_value(text, found.result_type)
            except InvalidInput as error:
                what = f"the value of {found.field_id} is lost: {error}"
                self.unmended.append(Problem("value-lost", what, row.id))

    def _last_number(self, leaf: RawRow) -> int:
        known = leaf.columns.get("version_number")
        return self._numbers.get(leaf.id, 1) if known is None else int(known)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The highest number in the timeline of each leaf."""
        found: dict[str, int] = {}
        for id, row in self._rows.items():
            leaf, _, number = id.rpartition("$")
            if row.type == VERSION and number.isdigit():
                found[leaf] = max(found.get(leaf, 1), int(number))
        return found

    def _drop(self, row: RawRow, kind: str, what: str) -> None:
        self._fix(kind, what, row.id)
        self._removed.add(row.id)
        self._rows.pop(row.id, None)
        self._changed.discard(row.id)

    def _mend_leaves(self) -> None:
        """Leaf rows whose columns and copies disagree, and counts that are wrong."""
        for row in self._leaves():
            spec = self._book.spec_of(row)
            if spec is None:
                continue
            if row.columns.get("spec_id") != spec.id:
                self._set(row, "spec_id", spec.id, "spec-differs")
            if self._book.strong:
                self._mend_version(row)
                self._mend_counts(row)
            self._mend_values(row, spec)
            self._mend_metadata(row, self._described(row, spec))

    def _set(self, row: RawRow, column: str, value: Any, kind: str) -> None:
        row.columns[column] = value
        self._changed.add(row.id)
        self._fix(kind, f"{column} is set to {value}", row.id)

    def _mend_version(self, row: RawRow) -> None:
        """The version that most agree on: the column, its copy, the timeline."""
        typed, copy = row.columns.get(READ_VERSION), row.copy(READ_VERSION)
        last = self._rows.get(f"{row.id}${row.columns.get('version_number')}")
        said = [typed]
        said.append(int(copy) if copy is not None and copy.isdigit() else None)
        said.append(last.columns.get(READ_VERSION) if last is not None else None)
        votes = [version for version in said if version is not None]
        if not votes or votes.count(typed) == len(votes):
            return
        best = max(votes, key=lambda v: (votes.count(v), self._is_whole(row, v), v == typed))
        if best != typed:
            self._set(row, READ_VERSION, best, "version-differs")

    def _folder(self, row: RawRow) -> DatasetFolder:
        """Raises InvalidInput for a leaf that is not in the table's root."""
        name = row.location or ""
        if name not in self._folders:
            self._folders[name] = DatasetFolder(self._location, name)
        return self._folders[name]

    def _held(self, row: RawRow, version: int | None) -> VersionFiles | None:
        """What a version of a leaf holds; None where it cannot be read."""
        key = (row.id, version)
        if key not in self._contents:
            try:
                self._contents[key] = self._folder(row).contents(version)
            except (CorruptTable, InvalidInput):
                self._contents[key] = None
        return self._contents[key]

    def _is_whole(self, row: RawRow, version: int | None) -> bool:
        """Whether a version of a leaf is there, with all its files."""
        found = self._held(row, version)
        return found is not None and not self._folder(row).missing_of(found)

    def _mend_counts(self, row: RawRow) -> None:
        found = self._held(row, version_in(row))
        if found is None:
            return
        counted = {
            "row_count": found.rows,
            "byte_count": found.bytes,
            "fragment_count": found.fragments,
        }
        for name, count in counted.items():
            if row.columns.get(name) != count:
                self._set(row, name, count, "count-differs")

    def _mend_values(self, row: RawRow, spec: PartitionSpec) -> None:
        """Values that differ from their copies: the namespaces above decide."""
        parts = row.id.split("$")[:-1]
        for depth, found in enumerate(spec.fields, 1):
            id, type = found.field_id, found.result_type
            key, text = row.values.get(id), row.copy(f"partition.{id}")
            if agree(key, text, type):
                continue
            copied = _read(text, type)
            votes = [key for key in (key, *copied) if self._is_named(row, spec, depth, key)]
            above = self._rows.get("$".join(parts[: depth + 1]))
            if not votes and above is not None:
                votes = [above.values.get(id), *_read(above.copy(f"partition.{id}"), type)]
            if key in votes:
                continue  # the copy is wrong, and is written anew
            if copied and copied[0] in votes:
                _put(row.values, id, copied[0])
                self._changed.add(row.id)
                self._fix("value-differs", f"{id} is taken from its copy", row.id)
            else:
                what = f"{id} is {key!r} in its column, {text!r} in its copy, and neither above"
                self.unmended.append(Problem("value-lost", what, row.id))

    def _is_named(self, row: RawRow, spec: PartitionSpec, depth: int, key: Any) -> bool:
        """Whether the namespace at some depth is called as one with this value would be."""
        fields = spec.fields[:depth]
        keys = [row.values.get(f.field_id) for f in fields[:-1]] + [key]
        known = row.id.split("$")[1:depth]
        types = [f.result_type for f in fields]
        made = names.namespace_names(self._head.salt, spec.id, keys, types, known)
        return made[-1] == row.id.split("$")[depth]

    def _described(self, row: RawRow, spec: PartitionSpec) -> dict[str, str]:
        """What a leaf's metadata should say."""
        found = {
            f"partition.{f.field_id}": value_text(row.values[f.field_id], f.result_type)
            for f in spec.fields
            if f.field_id in row.values
        }
        if self._book.strong and version_in(row) is not None:
            found[READ_VERSION] = str(version_in(row))
        return found

    def _mend_metadata(self, row: RawRow, wanted: Mapping[str, str]) -> None:
        others = {
            key: value
            for key, value in (row.metadata or {}).items()
            if not key.startswith("partition.") and key != READ_VERSION
        }
        if row.metadata is None or not _same_texts(row.metadata, {**others, **wanted}):
            row.metadata = {**others, **wanted}
            self._changed.add(row.id)
            self._fix("copy-differs", "the metadata is written anew", row.id)

    def _mend_namespaces(self) -> None:
        """Namespaces that are missing above a leaf, or have other values than it."""
        for known in self._head.specs:
            if known.namespace not in self._rows:
                described = {"partition_spec": known.dumps()}
                self._new_namespace(known.namespace, described, {})
        for leaf in self._leaves():
            spec = self._book.spec_of(leaf)
            if spec is None:
                continue
            parts = leaf.id.split("$")[:-1]
            for depth in range(1, len(parts)):
                id, own = "$".join(parts[: depth + 1]), spec.fields[depth - 1]
                fields = [f.field_id for f in spec.fields[:depth]]
                values = {f: leaf.values[f] for f in fields if f in leaf.values}
                described = {}
                if own.field_id in values:
                    text = value_text(values[own.field_id], own.result_type)
                    described = {f"partition.{own.field_id}": text}
                row = self._rows.get(id)
                if row is None:
                    self._new_namespace(id, described, values)
                elif row.values != values:
                    row.values = values
                    self._changed.add(id)
                    self._fix("value-differs", "the values are taken from the leaves", id)
                if row is not None:
                    self._mend_metadata(row, described)

    def _new_namespace(self, id: str, described: dict[str, str], values: dict[str, Any]) -> None:
        self._rows[id] = RawRow(id, NAMESPACE, None, described, values=values)
        self._changed.add(id)
        self._fix("namespace-missing", "the namespace is written anew", id)

    def _mend_timelines(self) -> None:
        """The newest row of each timeline, and rows of leaves that are not there."""
        if not self._book.strong:
            return
        leaves = {row.id: row for row in self._leaves()}
        for row in leaves.values():
            version, number = row.columns.get(READ_VERSION), self._last_number(row)
            if row.columns.get("version_number") != number:
                self._set(row, "version_number", number, "timeline-differs")
            last = self._rows.get(f"{row.id}${number}")
            if version is None or (last is not None and last.columns.get(READ_VERSION) == version):
                continue
            id = f"{row.id}${number}"
            kind = "timeline-missing" if last is None else "timeline-differs"
            self._rows[id] = RawRow(id, VERSION, None, {}, columns={READ_VERSION: version})
            self._changed.add(id)
            self._fix(kind, "the newest row of the timeline is written anew", id)
        for row in [row for row in self._rows.values() if row.type == VERSION]:
            leaf, _, text = row.id.rpartition("$")
            known = leaves.get(leaf)
            if known is None or not text.isdigit():
                self._drop(row, "timeline-unknown", "a row of a leaf that is not there goes")
            elif int(text) > self._last_number(known):
                self._drop(row, "timeline-differs", "a row newer than the leaf's own goes")

    def _mend_copies(self) -> None:
        """What other clients read, the newest transaction's row, and indexes."""
        have = self._book.manifest.metadata
        for key, value in published_texts(self._head).items():
            if key == GUARD_KEY:
                if have.get(key, "0") == "0":
                    self._fix("guard-missing", "the guard is set again", key)
            elif have.get(key) != value:
                self._fix("copy-differs", "the table's metadata is written anew", key)
        last = transaction_row(self._head.transaction_id)
        if self._book.head_row is not None and last not in self._rows:
            self._fix("transaction-missing", "the row of the repair takes its place", last)
        indexed = raw_manifest.missing_indexes(self._book.manifest)
        lost = [column.name for column in self._columns]
        for name in sorted({*indexed, *(n for n in lost if n in INDEXED)}):
            self._fix("index-missing", "the index is made anew", name)

    def _mend_mains(self) -> None:
        """Leaves that plain Lance cannot open."""
        for row in self._leaves():
            with contextlib.suppress(InvalidInput, CorruptTable):
                held = self._held(row, version_in(row))
                if held is None or self._folder(row).main_versions():
                    continue
                self._to_create.append(row.id)
                self._fix("main-missing", "the leaf's main branch is made anew", row.location or "")

    # Mending

    def apply(self) -> None:
        """Write it. Raises SwapLost where somebody has written meanwhile."""
        head, expected = self._head, self._book.manifest.version
        if self._twice:
            raw_manifest.remove_rows(self._location, self._twice)
            expected += 1
            reach("repair.rows-removed")
        if self._columns:
            raw_manifest.add_columns(self._location, self._columns)
            expected += 1
            reach("repair.columns-added")
        manifest = ManifestVersion(self._location)
        if manifest.version != expected:
            raise SwapLost
        rewritten = {"head-missing", "head-damaged", "head-twice", "transaction-missing"}
        if self._changed or self._removed or rewritten & {p.kind for p in self.mended}:
            head = head.after(dt.datetime.now(dt.UTC), uuid.uuid4().hex)
            manifest.swap(self._to_write(head))
            reach("repair.rows-written")
        ManifestVersion(self._location).publish(head)
        reach("repair.published")
        missing = raw_manifest.missing_indexes(ManifestVersion(self._location))
        raw_manifest.create_indexes(self._location, missing)
        for id in self._to_create:
            leaf = Leaf(self._location, self._rows[id].location or "", head.schema)
            leaf.create()
            leaf.anchor(version_in(self._rows[id]))

    def _to_write(self, head: Head) -> ManifestUpdate:
        update = ManifestUpdate(head.specs, strong=self._book.strong)
        for id in sorted(self._changed):
            row = self._rows[id]
            update.put(id, row.type, row.metadata, row.values, location=row.location, **row.columns)
        update.put_head(head)
        update.put_transaction(TransactionRecord.of(head, "repair", removals=1))
        update.remove(sorted(self._removed))
        return update


def _read(text: str | None, type: pa.DataType) -> list[Any]:
    """The value of a copy, as a list of one; of none where the text is no value."""
    if text is None:
        return [None]
    try:
        return [read_value(text, type)]
    except InvalidInput:
        return []


def _put(values: dict[str, Any], id: str, key: Any) -> None:
    if key is None:
        values.pop(id, None)
    else:
        values[id] = key


def _same_texts(have: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return dict(have) == dict(wanted)


def repair_table(location: Location, dry_run: bool = False) -> RepairReport:
    """Mend what copies and earlier versions of the manifest can tell, and say what they cannot.

    What is written goes through one transaction, so whoever reads meanwhile sees the table as it
    was before or after. Raises TableNotFound where there is no table.
    """
    for attempt in range(_TRIES):
        found = check_table(location)
        lost = [problem for problem in found.problems if problem.kind in BEYOND_REPAIR]
        if any(problem.kind == "manifest-unreadable" for problem in lost):
            return RepairReport(dry_run, [], lost)
        with contextlib.nullcontext() if dry_run else lock.held(location):
            plan = Plan(location)
            report = RepairReport(dry_run, plan.mended, lost + plan.unmended)
            if dry_run or not plan.mended:
                return report
            try:
                plan.apply()
                return report
            except SwapLost:
                pass
        lock.back_off(attempt)
    raise ConflictError(f"the table {location.uri} could not be repaired: others kept writing")
