"""Trees of key=value folders that others have made: `event_date=2025-12-10/country=US.lance`.

Such a tree is read as if it were a weak table: its leaves are found by listing, and each is read as
it is now. What the table looks like is decided by the first of these that is there:

1. `schema` and `partition_by`, where the caller gives them;
2. the properties `lance.partitioning.*` in the metadata of a `__manifest` at the root;
3. the columns of the first leaf, and the names in its path. A column that is only in the path is an
   integer if all its values are written like one, else a date, else a string.

A partition function other than identity is used for pruning only if the properties of the namespace
declare it, and rows of some leaves confirm that its values were computed as we compute them. What
only the caller says would have to be checked in every leaf.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput, UnsupportedTable
from phalanx.interop.folders import (
    LEAF,
    inferred_type,
    parse_folder,
    parse_leaf_path,
    value_of,
)
from phalanx.interop.hive_layout import adapted, key_of, level_name
from phalanx.interop.hive_metadata import NamespaceProperties, read_metadata
from phalanx.lru import LruCache
from phalanx.model.domains import domain_of
from phalanx.model.partition_columns import StoredColumns
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionField, PartitionSpec, build_spec
from phalanx.model.transforms import Identity, Transform
from phalanx.storage import lance_errors
from phalanx.storage.files import DatasetFolder
from phalanx.storage.folders import FolderKind, Listing, walk
from phalanx.storage.head import PARTITION_COLUMNS, Head
from phalanx.storage.leaf import Leaf, has_lasting_versions, leaf_schema
from phalanx.storage.location import Declaration, Location
from phalanx.storage.manifest import ManifestChanges, ManifestVersion
from phalanx.storage.manifest_update import READ_VERSION, ManifestUpdate, manifest_schema
from phalanx.storage.records import EpochRecord, TagRecord, TransactionRecord

#: How many leaves, and how many rows of each, must confirm a partition function.
_SAMPLED_LEAVES = 8
_SAMPLE_ROWS = 100
#: How many leaves are looked at to find out who has made a tree.
_LOOKED_AT = 16
#: How many trees a process remembers.
_REMEMBERED = 16
#: A folder that was changed so shortly before it was listed may have changed again since, within
#: the same tick of the file system's clock.
_TICK_NANOSECONDS = 2_000_000_000
#: What another client's table is weak by.
_PROPERTIES = {"layout": "hive"}


def read(location: Location, manifest: ManifestVersion | None) -> ManifestVersion | None:
    """The tree at a root as a version of a manifest; None if there is none.

    Raises InvalidInput for folders that do not agree with each other or with what is declared, and
    UnsupportedTable for properties that cannot be read.
    """
    metadata = None if manifest is None else read_metadata(manifest.metadata, location.uri)
    declared = _declared(location, metadata)
    if manifest is not None and declared is None:
        return None
    is_published = (
        metadata is not None
        and declared is not None
        and declared.partition_by == metadata.partition_by
    )
    key = f"{location.uri}\0{declared}\0{is_published}"
    known = _trees.get(key)
    if known is not None and known.is_current():
        return known.opened(location)
    listing = _listed(location)
    if not listing.groups and declared is None:
        return None
    first = _first(listing)
    if first is not None and _is_ours(location, first):
        raise lance_errors.lost_manifest(location.uri)
    stamps = {**listing.stamps, **_leaf_stamps(location, listing)}
    head, paths = _typed(location, listing, declared, is_published)
    tree = HiveTree(location, listing, stamps, head, paths)
    _trees.put(key, tree)
    return tree


def _first(listing: Listing) -> str | None:
    """The first leaf; None if there is none."""
    for folder, names in listing.groups:
        return f"{folder}/{names[0]}" if folder else names[0]
    return None


def occupies(location: Location) -> bool:
    """Whether there is a tree that others have made. One that we have begun to make is none."""
    try:
        leaves = _listed(location).leaves
    except InvalidInput:
        return True
    return any(not _is_ours(location, leaf) for leaf in leaves[:_LOOKED_AT])


def _is_ours(location: Location, leaf: str) -> bool:
    """Whether a leaf belongs, or belonged, to a table of ours."""
    return has_lasting_versions(location, leaf) or DatasetFolder(location, leaf).is_created_by_us()


def _declared(location: Location, metadata: NamespaceProperties | None) -> Declaration | None:
    """What the caller and the properties of a namespace say; None if they say nothing."""
    own = location.declaration
    if metadata is None:
        return own
    schema, entries = metadata.schema, metadata.partition_by
    if own is None:
        return Declaration(schema, entries)
    return Declaration(own.schema or schema, own.partition_by or entries)


# The listing -----------------------------------------------------------------------------------


def _listed(location: Location) -> Listing:
    """The leaves of a tree. Raises InvalidInput for a folder that names no partition."""
    strange: list[str] = []

    def kind_of(name: str, depth: int) -> FolderKind:
        if name.startswith(".") or (name.startswith("_") and "=" not in name):
            return FolderKind.OTHER
        if name.endswith(LEAF):
            return FolderKind.LEAF
        if parse_folder(name) is not None:
            return FolderKind.LEVEL
        strange.append(name)
        return FolderKind.OTHER

    listing = walk(location, kind_of)
    if listing.groups and strange:
        raise InvalidInput(
            f"the folder {strange[0]!r} in {location.uri} names no partition: such a name is "
            "key=value, so move it elsewhere"
        )
    return listing


def _leaf_stamps(location: Location, listing: Listing) -> dict[str, int]:
    """When the leaves that say what a tree on disk looks like were last committed to."""
    stamps: dict[str, int] = {}
    for leaf in _sampled(listing.leaves) if listing.stamps else ():
        versions = f"{leaf}/_versions"
        with contextlib.suppress(OSError):
            stamps[versions] = os.stat(os.path.join(location.uri, versions)).st_mtime_ns
    return stamps


def _sampled(leaves: Sequence[str]) -> Sequence[str]:
    """Some leaves, the first among them."""
    return leaves[:: -(-len(leaves) // _SAMPLED_LEAVES) or 1]


class _Paths:
    """What the paths of leaves spell: the texts of each level, and which of them a leaf has."""

    def __init__(self, listing: Listing, uri: str) -> None:
        """Raises InvalidInput if leaves do not agree on the partition columns."""
        self._uri = uri
        self._leaf_codes: dict[str, int] = {}
        self._known: dict[tuple[str, ...], np.ndarray[Any, Any]] = {}
        self.levels: tuple[str, ...] = ()
        #: The texts of each level, with their codes.
        self.codes_of: list[dict[str | None, int]] = []
        self._codes: list[list[np.ndarray[Any, Any]]] = []
        for folder, names in listing.groups:
            self._add(folder, names)
        if len(set(self.levels)) < len(self.levels):
            raise InvalidInput(f"a partition column appears twice in the path {listing.leaves[0]}")

    def _add(self, folder: str, names: tuple[str, ...]) -> None:
        outer = [self._pair(name) for name in folder.split("/")] if folder else []
        above = tuple([column for column, _ in outer])
        if not self.levels:
            self.levels = (*above, self._pair(names[0])[0])
            self.codes_of = [{} for _ in self.levels]
            self._codes = [[] for _ in self.levels]
        if above != self.levels[:-1]:
            raise self._disagreement(folder)
        for at, (_, text) in enumerate(outer):
            code = self.codes_of[at].setdefault(text, len(self.codes_of[at]))
            self._codes[at].append(np.full(len(names), code))
        # In most trees the same leaves are in many folders.
        if names not in self._known:
            self._known[names] = np.array([self._leaf_code(name, folder) for name in names])
        self._codes[-1].append(self._known[names])

    def _leaf_code(self, name: str, folder: str) -> int:
        code = self._leaf_codes.get(name)
        if code is None:
            column, text = self._pair(name)
            if column != self.levels[-1]:
                raise self._disagreement(folder)
            codes = self.codes_of[-1]
            code = self._leaf_codes[name] = codes.setdefault(text, len(codes))
        return code

    def _disagreement(self, folder: str) -> InvalidInput:
        return InvalidInput(
            f"the folders of {self._uri} do not agree on the partition columns: those of "
            f"{folder or 'the root'} are not {', '.join(self.levels)}"
        )

    def _pair(self, name: str) -> tuple[str, str | None]:
        pair = parse_folder(name.removesuffix(LEAF) if name.endswith(LEAF) else name)
        if pair is None:
            raise InvalidInput(
                f"the dataset {name!r} in {self._uri} names no partition: such a name is "
                "key=value.lance, so move it elsewhere"
            )
        return pair

    def texts(self, level: str) -> list[str | None]:
        """The texts of a level, in order of their codes."""
        return list(self.codes_of[self.levels.index(level)])

    def codes(self, level: str) -> np.ndarray[Any, Any]:
        """The codes of the leaves at a level."""
        return np.concatenate(self._codes[self.levels.index(level)])


# Types -----------------------------------------------------------------------------------------


def _typed(
    location: Location, listing: Listing, declared: Declaration | None, is_published: bool
) -> tuple[Head, _Paths]:
    """The head of a tree, and what its paths spell.

    `is_published` says that the properties of the namespace declare the partition fields.
    """
    paths, first = _Paths(listing, location.uri), _first(listing)
    stored = None if first is None else leaf_schema(location, first)
    schema = _schema(paths, stored, declared, location.uri)
    spec = _spec(paths, schema, declared, location.uri)
    if declared is not None:  # types that are inferred fit
        for field in spec.fields if first is not None else ():
            _keys(field, paths, schema)
    head = _TreeHead(
        sequence=1,
        committed_at=dt.datetime.fromtimestamp(0, dt.UTC),
        schema=schema.all_nullable().matched_by_name(),
        specs=(spec,),
        spec_id=spec.id,
        max_field_id=max(schema.field_ids),
        table_id="",
        salt=b"",
        transaction_id="",
        transactions="weak",
        properties=_PROPERTIES,
        reader_features=frozenset({PARTITION_COLUMNS}),
        ours=False,
        declared=schema.matched_by_name(),
        held=None if stored is None else tuple(stored.tagged.names),
    )
    if first is not None:
        head = replace(head, specs=(_confirmed(location, listing.leaves, head, is_published),))
    return replace(head, transaction_id=_fingerprint(listing, head)), paths


def _fingerprint(listing: Listing, head: Head) -> str:
    """What tells one snapshot of a tree from another: its leaves, columns and partition fields."""
    columns = json.dumps(head.schema.to_json())
    digest = hashlib.blake2b(f"{columns}\0{head.specs}".encode(), digest_size=16)
    for folder, names in listing.groups:
        digest.update("\0".join(["", folder, *names]).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class _TreeHead(Head):
    """The head of a tree, whose new files have the columns that the existing ones have."""

    #: The columns of the first leaf, in their order; None if there is no leaf.
    held: tuple[str, ...] | None = None

    def _stored(self, spec_id: int) -> tuple[PartitionSpec, StoredColumns]:
        if spec_id not in self._stored_by_spec:
            spec, columns = super()._stored(spec_id)
            self._stored_by_spec[spec_id] = spec, self._as_held(columns)
        return self._stored_by_spec[spec_id]

    def _as_held(self, columns: StoredColumns) -> StoredColumns:
        """Those of the first leaf come first, also partition columns, then those that it lacks."""
        fields = {field.name: field for field in self.written_schema.tagged}
        held = [fields[name] for name in self.held or () if name in fields]
        if not held:
            return columns
        held += [field for field in columns.schema.tagged if field not in held]
        chosen = pa.schema(held, metadata=self.written_schema.tagged.metadata)
        return replace(columns, schema=TableSchema(chosen))


def _schema(
    paths: _Paths, stored: TableSchema | None, declared: Declaration | None, uri: str
) -> TableSchema:
    """The columns: as declared, or those of a leaf and of the paths."""
    given = None if declared is None else declared.schema
    if given is None and stored is None:
        raise InvalidInput(f"{uri} has no leaf yet, and no schema is declared for it")
    base = given if given is not None else stored.arrow  # type: ignore[union-attr]
    fields = list(base)
    entries = None if declared is None else declared.partition_by
    for level in paths.levels:
        is_column = entries is None or not {level, _quoted(level)}.isdisjoint(entries)
        if level not in base.names and is_column:
            fields.append(pa.field(level, inferred_type(paths.texts(level))))
    schema = pa.schema(fields, metadata=base.metadata)
    # New leaves get the ids that existing ones have. A first leaf has those of its own columns.
    if stored is None:
        in_paths = set(entries or ())
        held = [f for f in schema if in_paths.isdisjoint({f.name, _quoted(f.name)})]
        stored = TableSchema.assign(pa.schema(held or list(schema)))
    return stored.ids_for(schema)


def _spec(
    paths: _Paths, schema: TableSchema, declared: Declaration | None, uri: str
) -> PartitionSpec:
    """The partition fields, one for each level of the paths. Raises InvalidInput."""
    entries = None if declared is None else declared.partition_by
    if entries is None:
        entries = [_quoted(level) for level in paths.levels]
    spec = adapted(build_spec(1, entries, schema), schema, with_all_columns=True)
    levels = {level_name(field, schema): field for field in spec.fields}
    if not paths.levels:
        return spec
    if sorted(levels) != sorted(paths.levels):
        raise InvalidInput(
            f"the tree {uri} has the levels {', '.join(paths.levels)} and not those that are "
            f"declared, {', '.join(levels)}: give another partition_by"
        )
    return replace(spec, fields=tuple(levels[level] for level in paths.levels))


def _quoted(name: str) -> str:
    """The entry of `partition_by` for a column, whatever it is called."""
    return 'identity("' + name.replace('"', '""') + '")'


@dataclass(frozen=True)
class Unconfirmed(Transform):
    """A partition function that is not used for pruning: its values are known, and nothing else."""

    of: Transform
    #: Whether there are rows that the function would put elsewhere.
    is_contradicted: bool
    kind: ClassVar[str] = "unconfirmed"

    @property
    def suffix(self) -> str:  # type: ignore[override]
        return self.of.suffix

    def result_type(self, types: Sequence[pa.DataType]) -> pa.DataType:
        return self.of.result_type(types)

    def apply(self, arrays: Sequence[pa.Array]) -> pa.Array:
        if not self.is_contradicted:
            return self.of.apply(arrays)
        raise UnsupportedTable(
            f"rows of this tree are not where {self.of} puts them, so none can be added: import "
            "the tree into a table"
        )

    def spell(self, names: Sequence[str]) -> str:
        return self.of.spell(names)


def _confirmed(
    location: Location, leaves: Sequence[str], head: Head, is_published: bool
) -> PartitionSpec:
    """The spec with only those functions that are published and that rows of some leaves confirm.

    Leaves without rows, and those of NULL, confirm nothing.
    """
    spec = head.spec
    computed = {f.field_id for f in spec.fields if not isinstance(f.transform, Identity)}
    right: set[str] = set()
    wrong: set[str] = set()
    for leaf in _sampled(leaves) if computed else ():
        confirmed, contradicted = tested_functions(location, head, leaf, _SAMPLE_ROWS)
        right |= confirmed
        wrong |= contradicted
    used = right - wrong if is_published else set()
    fields = (
        replace(field, transform=Unconfirmed(field.transform, field.field_id in wrong))
        if field.field_id in computed - used
        else field
        for field in spec.fields
    )
    return replace(spec, fields=tuple(fields))


def tested_functions(
    location: Location, head: Head, leaf: str, limit: int | None
) -> tuple[set[str], set[str]]:
    """The ids of the fields whose functions rows of a leaf confirm, and of those they contradict.

    `limit` is how many rows are read; None for all.
    """
    fields = [
        (field, level, text)
        for field, (level, text) in zip(head.spec.fields, parse_leaf_path(leaf) or (), strict=True)
    ]
    keys = [key_of(field, level, text) for field, level, text in fields]
    values = [value_of(text, pa.field(level, f.result_type)).as_py() for f, level, text in fields]
    computed = [
        (field, own)
        for (field, _, _), own in zip(fields, values, strict=True)
        if not isinstance(field.transform, Identity)
    ]
    names = {
        column.path[0] for field, _ in computed for column in field.sources(head.schema) if column
    }
    right: set[str] = set()
    wrong: set[str] = set()
    rows = Leaf.at(location, head, leaf, head.spec_id, keys)
    for batch in rows.scan(None, sorted(names), None, limit) if computed else ():
        for field, own in computed if batch.num_rows else ():
            if not _explains(field, own, pa.Table.from_batches([batch]), head.schema):
                wrong.add(field.field_id)
            elif own is not None:
                right.add(field.field_id)
    return right - wrong, wrong


def _explains(field: PartitionField, own: Any, rows: pa.Table, schema: TableSchema) -> bool:
    """Whether a function gives the partition value of a leaf for its rows."""
    values = set(field.apply(rows, schema).unique().to_pylist())
    return values == {own} or _rounds_toward_zero(field, own, rows, schema)


def _rounds_toward_zero(
    field: PartitionField, own: Any, sample: pa.Table, schema: TableSchema
) -> bool:
    """Whether values were truncated toward zero, which pruning allows for."""
    if field.transform.kind != "floor_truncate" or not pa.types.is_integer(field.result_type):
        return False
    (column,) = field.sources(schema)
    width = field.transform.width  # type: ignore[attr-defined]
    numbers = sample.column(column.path[0]).to_pylist()  # type: ignore[union-attr]
    return {None if n is None else n - int(np.fmod(n, width)) for n in numbers} == {own}


def _rows(listing: Listing, paths: _Paths, head: Head) -> pa.Table:
    """The leaves as rows of a manifest."""
    count = len(listing.leaves)
    columns: dict[str, Any] = {
        "object_id": pa.array([_leaf_id(path) for path in listing.leaves], pa.string()),
        "location": pa.array(listing.leaves, pa.string()),
        "spec_id": pa.array(np.full(count, head.spec_id, np.int32)),
    }
    for field in head.spec.fields:
        if not count:
            columns[field.column_name] = pa.nulls(0, field.result_type)
            continue
        values = domain_of(field.result_type).array(_keys(field, paths, head.schema))
        codes = paths.codes(level_name(field, head.schema))
        columns[field.column_name] = values.take(pa.array(codes))
    return pa.table(columns)


def _keys(field: PartitionField, paths: _Paths, schema: TableSchema) -> list[Any]:
    """The values that the texts of a level stand for. Raises InvalidInput for one that is none."""
    level = level_name(field, schema)
    return [key_of(field, level, text) for text in paths.texts(level)]


def _leaf_id(path: str) -> str:
    return f"v1${path[: -len(LEAF)].replace('$', '%24').replace('/', '$')}$dataset"


# The manifest ----------------------------------------------------------------------------------


class HiveTree(ManifestVersion):
    """A tree as one version of a manifest. It has no history, and no place for one."""

    is_listed = True

    def __init__(
        self,
        location: Location,
        listing: Listing,
        stamps: Mapping[str, int],
        head: Head,
        paths: _Paths,
    ) -> None:
        """`stamps` are the times of the last change of folders, by their paths in the tree."""
        self.location, self.version = location, 1
        self.metadata: dict[str, str] = {}
        self.identity = None
        self._listing, self._stamps, self._head, self._paths = listing, stamps, head, paths
        self._listed_at = time.time_ns()
        self._rows: pa.Table | None = None

    def opened(self, location: Location) -> HiveTree:
        """The same tree, opened with other storage options."""
        tree = HiveTree(location, self._listing, self._stamps, self._head, self._paths)
        tree._listed_at, tree._rows = self._listed_at, self._rows
        return tree

    def is_current(self) -> bool:
        """Whether no folder has changed since it was listed, and none of the leaves looked at.

        In an object store nobody knows.
        """
        for level, stamp in self._stamps.items():
            if stamp > self._listed_at - _TICK_NANOSECONDS:
                return False
            try:
                if os.stat(os.path.join(self.location.uri, level)).st_mtime_ns != stamp:
                    return False
            except OSError:
                return False
        return bool(self._stamps)

    @property
    def schema(self) -> pa.Schema:
        return manifest_schema(self._head.specs, strong=False)

    def versions(self) -> list[int]:
        return [self.version]

    def head(self) -> Head:
        return self._head

    def sequence(self) -> int | None:
        return self._head.sequence

    def transactions(self, since: int = 1, until: int | None = None) -> list[TransactionRecord]:
        return []

    def has_transaction(self, transaction_id: str) -> bool:
        return False

    def tags(self) -> dict[str, TagRecord]:
        return {}

    def epoch(self, query: str) -> EpochRecord | None:
        return None

    def leaves(
        self,
        columns: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        since: int | None = None,
    ) -> pa.Table:
        if self._rows is None:
            self._rows = _rows(self._listing, self._paths, self._head)
        rows = self._rows
        if ids is not None:
            wanted = set(ids)
            mask = [id in wanted for id in rows.column("object_id").to_pylist()]
            rows = rows.filter(pa.array(mask, pa.bool_()))
        elif since is not None:
            rows = rows.slice(0, 0)
        return rows.select([name for name in columns if name in rows.schema.names])

    def versions_in(self, folder: str) -> set[int | None]:
        return {None} if folder in self._listing.leaves else set()

    def changes_since(
        self, head: Head, columns: Sequence[str], most: int
    ) -> ManifestChanges | None:
        return None

    def check_appendable(self, head: Head, named: bool) -> None:
        """Rows can be added, as long as nothing is asked for that only a manifest can keep."""
        if named:
            raise InvalidInput(
                f"the tree {self.location.uri} has no manifest that remembers a transaction_id: "
                f"{_ADOPT}"
            )

    def check_operation(self, name: str, leaves: int) -> None:
        if name == "overwrite" or (name == "append" and leaves <= 1):
            return
        if name == "append":
            raise InvalidInput(
                f"rows of several partitions cannot be appended to the tree {self.location.uri} in "
                "one step, because it has no manifest: append to one partition at a time, "
                f"overwrite, or {_ADOPT}"
            )
        raise UnsupportedTable(
            f"the tree {self.location.uri} has no manifest, so that it takes only an append to one "
            f"partition or an overwrite, not {name}: {_ADOPT}"
        )

    def publish(self, head: Head) -> None:
        return

    def is_published(self, head: Head) -> bool:
        return True

    def compact(self, reindex: bool) -> None:
        return

    def add_read_version(self) -> ManifestVersion:
        raise UnsupportedTable(f"the tree {self.location.uri} has no manifest: {_ADOPT}")

    def swap(self, update: ManifestUpdate) -> ManifestVersion | None:
        """Nothing is left to write: whatever is on the main branch of a leaf is visible."""
        assert READ_VERSION not in update.to_table().schema.names
        return None


_ADOPT = "make it a table with phalanx.interop.hive.adopt"
_trees: LruCache[str, HiveTree] = LruCache(_REMEMBERED)
