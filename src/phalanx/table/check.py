"""Is the table whole? `check` looks at everything and changes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from phalanx.errors import CorruptTable, InvalidInput, PhalanxError, TableNotFound
from phalanx.model.specs import PartitionSpec
from phalanx.storage import raw_manifest
from phalanx.storage.files import DatasetFolder, Live, VersionFiles, folders, schema_fields
from phalanx.storage.head import HEAD_ID, Head
from phalanx.storage.leaf_versions import LeafVersions
from phalanx.storage.location import MANIFEST, Location
from phalanx.storage.manifest import GUARD_KEY, ManifestVersion, published_texts
from phalanx.storage.manifest_update import NAMESPACE, READ_VERSION, TABLE, VERSION
from phalanx.storage.names import is_leaf_folder, transaction_row
from phalanx.storage.raw_manifest import RawRow
from phalanx.table.book import HARMLESS, Book, Problem, agree, head_of_row, head_rows, version_in
from phalanx.table.format import count_text, size_text
from phalanx.table.retention import Retention
from phalanx.transaction.snapshot import Snapshot

_WORKERS = 8


@dataclass(frozen=True)
class CheckReport:
    """What `check` has looked at, and what it has found."""

    problems: list[Problem]
    leaves: int = 0
    snapshots: int = 0
    files: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong. Leftovers of failed writes are problems that do no harm."""
        return not self.damage

    @property
    def damage(self) -> list[Problem]:
        return [problem for problem in self.problems if not problem.harmless]

    def __str__(self) -> str:
        counts = {"leaf": self.leaves, "snapshot": self.snapshots, "file": self.files}
        seen = ", ".join(count_text(number, thing) for thing, number in counts.items())
        state = "ok" if self.ok else count_text(len(self.damage), "problem")
        return "\n".join([f"{state}: {seen}", *map(str, self.damage), *self._leftovers()])

    def _leftovers(self) -> Iterator[str]:
        """What does no harm, each kind in one line; `problems` has them one by one."""
        kinds: dict[str, list[Problem]] = {}
        for problem in self.problems:
            if problem.harmless:
                kinds.setdefault(problem.kind, []).append(problem)
        for kind, found in kinds.items():
            if len(found) == 1:
                yield str(found[0])
                continue
            size = sum(problem.size for problem in found)
            shown = f" ({size_text(size)})" if size else ""
            yield f"{kind}: {len(found)} of them{shown}, such as {found[0].where}"


def check_table(source: Snapshot | Location) -> CheckReport:
    """Look for everything that is not as it should be, in the table as it is now.

    Raises TableNotFound where there is no table, UnsupportedTable where it is newer than we are.
    """
    location = source if isinstance(source, Location) else source.location
    return _Check(location).run()


class _Check:
    def __init__(self, location: Location) -> None:
        self._location = location
        self._problems: list[Problem] = []
        self._files = 0

    def run(self) -> CheckReport:
        try:
            manifest = ManifestVersion(self._location)
            book = Book.open(manifest)
        except TableNotFound:
            raise
        except CorruptTable as error:
            problem = Problem("manifest-unreadable", str(error), MANIFEST)
            return CheckReport([problem])
        self._problems += book.problems
        self._columns(book)
        self._published(book)
        self._rows(book)
        snapshots = self._snapshots(book)
        order = {kind: number for number, kind in enumerate(sorted(HARMLESS), 1)}
        found = sorted(self._problems, key=lambda p: (order.get(p.kind, 0), p.kind, p.where))
        return CheckReport(found, len(book.leaves()), snapshots, self._files)

    def _add(self, kind: str, what: str, where: str, size: int = 0) -> None:
        self._problems.append(Problem(kind, what, where, size))

    def _columns(self, book: Book) -> None:
        for column in book.missing_columns():
            self._add("column-missing", "the manifest has lost a column", column.name)
        for column in book.changed_columns():
            have = book.manifest.dataset.schema.field(column.name).type
            what = f"a column of the manifest is {have}, not {column.type}"
            self._add("column-type", what, column.name)
        if book.head.ours:
            for name in raw_manifest.missing_indexes(book.manifest):
                self._add("index-missing", "a column of the manifest has no index", name)

    def _published(self, book: Book) -> None:
        """The copy of schema and specs in the table's metadata."""
        if not book.head.ours:
            return
        have = book.manifest.metadata
        for key, value in published_texts(book.head).items():
            if key == GUARD_KEY:
                if have.get(key, "0") == "0":
                    self._add("guard-missing", "other clients may rewrite the manifest", key)
            elif have.get(key) != value:
                what = "the table's metadata disagrees with the head row"
                self._add("copy-differs", what, key)

    def _rows(self, book: Book) -> None:
        seen: dict[str, int] = {}
        for row in book.rows:
            seen[row.id] = seen.get(row.id, 0) + 1
            if row.metadata is None:
                what = "the metadata is no flat map of strings, and stock clients fail on it"
                self._add("metadata-unreadable", what, row.id)
        for id, count in seen.items():
            if count > 1 and id != HEAD_ID:
                self._add("row-twice", f"{count} rows have the same id", id)
        if book.head.ours and book.head_row is not None:
            last = transaction_row(book.head.transaction_id)
            if last not in seen:
                self._add("transaction-missing", "the newest transaction has no row", last)
        self._namespaces(book)
        for row in book.leaves():
            for problem in _leaf_row_problems(book, row):
                self._problems.append(problem)
        self._problems += _timeline_problems(book)
        self._leaves_twice(book)

    def _namespaces(self, book: Book) -> None:
        namespaces = {row.id: row for row in book.of_type(NAMESPACE)}
        used: set[str] = set()
        for leaf in book.leaves():
            spec = book.spec_of(leaf)
            if spec is None:
                continue
            parts = leaf.id.split("$")[:-1]
            for depth in range(1, len(parts) + 1):
                id = "$".join(parts[:depth])
                if id in used:
                    continue
                used.add(id)
                if id not in namespaces:
                    self._add("namespace-missing", "a leaf has no such namespace above it", id)
                elif _wrong_namespace(book, spec, namespaces[id], leaf, depth - 1):
                    what = "a namespace has other values than the leaves in it"
                    self._add("value-differs", what, id)
        for row in namespaces.values():
            if "$" in row.id and row.id not in used and book.spec_of(row) is not None:
                self._add("namespace-empty", "a namespace has no leaf in it", row.id)

    def _leaves_twice(self, book: Book) -> None:
        """Two leaves in one folder, or with the same values."""
        places: dict[Any, str] = {}
        for row in book.leaves():
            spec = book.spec_of(row)
            keys: list[tuple[str, Any]] = [("folder", row.location)]
            if spec is not None and not book.missing_columns():
                values = tuple(row.values.get(f.field_id) for f in spec.fields)
                keys.append(("values", (spec.id, values)))
            for key in keys:
                other = places.setdefault(key, row.id)
                if other != row.id:
                    what = f"it has the same {key[0]} as {other}"
                    self._add("leaf-twice", what, row.id)

    def _snapshots(self, book: Book) -> int:
        """The files of everything that can be opened; how many snapshots there are."""
        retention = Retention.of(Snapshot(book.manifest, book.head), None)
        wanted = LeafVersions()
        schemas = {book.head.schema}
        sequences = {book.head.sequence}
        for version in retention.versions(retention.first_open):
            if version == book.manifest.version:
                continue
            try:
                earlier = ManifestVersion(self._location, version)
                heads = [row for row in head_rows(earlier) if "sequence" in row.columns]
                head = head_of_row(heads[0]) if len(heads) == 1 else None
                if head is None:
                    continue  # damaged, and mended since: nobody can open it
                wanted.add(earlier)
            except (PhalanxError, OSError, ValueError) as error:
                where = f"{MANIFEST} version {version}"
                self._add("snapshot-unreadable", str(error).split("\n")[0], where)
                continue
            schemas.add(head.schema)
            sequences.add(head.sequence)
        existing = book.manifest.versions()
        for name, tag in Snapshot(book.manifest, book.head).tags().items():
            if tag.manifest_version not in existing:
                what = f"the tag names version {tag.version}, which is gone"
                self._add("tag-broken", what, name)
        self._folders(book, wanted, _Shapes(book.head, schemas))
        return len(sequences)

    def _folders(self, book: Book, wanted: LeafVersions, shapes: _Shapes) -> None:
        versions = wanted.by_folder()
        current: dict[str, RawRow] = {}
        for row in book.leaves():
            if row.location:
                current[row.location] = row
                versions.setdefault(row.location, set()).add(version_in(row))
        with ThreadPoolExecutor(_WORKERS) as pool:
            jobs = [
                pool.submit(_Folder(self._location, name, found, current.get(name), shapes).look)
                for name, found in sorted(versions.items())
            ]
            for job in jobs:
                problems, files = job.result()
                self._problems += problems
                self._files += files
        known = set(versions) | wanted.folders()
        known |= {row.location for row in book.of_type(TABLE) if row.location}
        for name in folders(self._location):
            if name not in known and is_leaf_folder(name):
                folder = DatasetFolder(self._location, name)
                size = 0
                with contextlib.suppress(CorruptTable):
                    size = sum(file.size for file in folder.files)
                self._add("orphan-folder", "no snapshot has a leaf here", name, size)
        self._manifest(book)

    def _manifest(self, book: Book) -> None:
        """The manifest's own files."""
        folder = DatasetFolder(self._location, MANIFEST)
        main = folder.main()
        live = Live()
        live.add_paths(main.files(folder.main_versions()))
        self._files += len(folder.files)
        for path in sorted(live.paths - set(folder.by_path)):
            if not path.startswith("_transactions/"):
                what = "a file of the manifest is missing"
                self._add("snapshot-unreadable", what, f"{MANIFEST}/{path}")
        for file in folder.files:
            if not live.holds(file.path):
                what = "nothing refers to it"
                self._add("orphan-file", what, f"{MANIFEST}/{file.path}", file.size)


def _leaf_row_problems(book: Book, row: RawRow) -> Iterator[Problem]:
    """What a leaf's row contradicts itself in."""
    spec = book.spec_of(row)
    if spec is None:
        yield Problem("leaf-unknown", "the id fits no partition spec of the table", row.id)
        return
    try:
        DatasetFolder(book.manifest.location, row.location or "")
    except InvalidInput:
        what = f"the location {row.location!r} is not in the table's root"
        yield Problem("leaf-outside", what, row.id)
    if not book.head.ours or row.metadata is None:
        return
    names = book.manifest.dataset.schema.names
    if row.columns.get("spec_id", spec.id) != spec.id:
        yield Problem("spec-differs", f"spec_id is {row.columns['spec_id']}", row.id)
    for found in spec.fields:
        copy = row.copy(f"partition.{found.field_id}")
        if found.column_name in names and not agree(
            row.values.get(found.field_id), copy, found.result_type
        ):
            what = f"{found.field_id} is not the same in its column and in the metadata's copy"
            yield Problem("value-differs", what, row.id)
    if book.strong and READ_VERSION in names:
        version, copied = row.columns.get(READ_VERSION), row.copy(READ_VERSION)
        if version is None:
            yield Problem("version-differs", "the leaf has no read_version", row.id)
        elif copied != str(version):
            what = f"read_version is {version}, its copy in the metadata {copied}"
            yield Problem("version-differs", what, row.id)


def _timeline_problems(book: Book) -> Iterator[Problem]:
    """Rows of timelines that disagree with the leaves' rows."""
    names = book.manifest.dataset.schema.names
    if not book.head.ours or not book.strong or not {READ_VERSION, "version_number"} <= set(names):
        return
    leaves = {row.id: row for row in book.leaves()}
    timeline = {row.id: row for row in book.of_type(VERSION)}
    for row in leaves.values():
        number = row.columns.get("version_number")
        last = timeline.get(f"{row.id}${number}")
        if last is None:
            what = f"the leaf is at number {number}, which has no row"
            yield Problem("timeline-missing", what, row.id)
        elif last.columns.get(READ_VERSION) != row.columns.get(READ_VERSION):
            what = "the newest row of the timeline names another version than the leaf's row"
            yield Problem("timeline-differs", what, last.id)
    for row in timeline.values():
        leaf, _, number = row.id.rpartition("$")
        known = leaves.get(leaf)
        if known is None or not number.isdigit():
            yield Problem("timeline-unknown", "a version of a leaf that is not there", row.id)
        elif int(number) > (known.columns.get("version_number") or 0):
            yield Problem("timeline-differs", "it is newer than the leaf's own row", row.id)


def _wrong_namespace(
    book: Book, spec: PartitionSpec, row: RawRow, leaf: RawRow, depth: int
) -> bool:
    """Whether a namespace has other values than a leaf in it, or than its own copy says."""
    names = book.manifest.dataset.schema.names
    for number, found in enumerate(spec.fields[:depth], 1):
        if found.column_name not in names:
            continue
        if row.values.get(found.field_id) != leaf.values.get(found.field_id):
            return True
        copy = row.copy(f"partition.{found.field_id}")
        if book.head.ours and number == depth and row.metadata is not None:
            return not agree(row.values.get(found.field_id), copy, found.result_type)
    return False


class _Shapes:
    """What the fields of a leaf may look like: as in some schema of the table that is known."""

    def __init__(self, head: Head, schemas: Iterable[Any]) -> None:
        self._highest = head.max_field_id
        #: Whether leaves have only what snapshots show. One transaction of a strong table can go
        #: through several schemas, and leave a leaf with one that none of them shows.
        self._all_shown = head.transactions == "weak"
        #: Whether every schema the table ever had is known.
        self._all_known = head.oldest == 1
        self._known: dict[int, set[tuple[str, str]]] = {}
        listed = [schema_fields(schema) for schema in schemas]
        for fields in listed:
            for id, path, type in fields:
                self._known.setdefault(id, set()).add((path, type))
        ids = [{id for id, _, _ in fields} for fields in listed]
        self._always = set.intersection(*ids) if self._all_known else set()

    def drift(self, found: VersionFiles) -> Iterator[str]:
        """How a leaf's schema differs from all of them."""
        for id, path, type in found.fields:
            shapes = self._known.get(id)
            if id > self._highest:
                yield f"the field {path} has the id {id}, which the table has not given out"
            elif shapes and (path, type) not in shapes and self._all_known and self._all_shown:
                named = " or ".join(f"{p} ({t})" for p, t in sorted(shapes))
                yield f"the field with id {id} is {path} ({type}), not {named}"
        for id in sorted(self._always - {id for id, _, _ in found.fields}):
            (path, _), *_ = sorted(self._known[id])
            yield f"the field {path} with the id {id} is missing"


@dataclass
class _Folder:
    """A leaf's folder, with the versions that must be there."""

    location: Location
    name: str
    versions: set[int | None]
    row: RawRow | None
    shapes: _Shapes

    def look(self) -> tuple[list[Problem], int]:
        """What is wrong, and how many files there are."""
        try:
            folder = DatasetFolder(self.location, self.name)
            files = folder.files
        except InvalidInput:
            return [], 0  # the row has been found out already
        except CorruptTable as error:
            return [Problem("leaf-missing", str(error), self.name)], 0
        if not files:
            what = "the leaf's folder is empty or not there"
            return [Problem("leaf-missing", what, self.name)], 0
        return list(self._problems(folder)), len(files)

    def _problems(self, folder: DatasetFolder) -> Iterator[Problem]:
        live = Live()
        for version in sorted(self.versions, key=lambda v: v or 0):
            try:
                found = folder.contents(version)
            except CorruptTable:
                what = f"version {'on main' if version is None else version} cannot be read"
                yield Problem("version-missing", what, self.name)
                # Nothing is known for an orphan while it is not known what this one needs.
                live.all_transactions, live.indexes = True, None
                live.add_paths(file.path for file in folder.files)
                continue
            live.add(found)
            yield from self._files(folder, found)
            if self.row is not None and version == version_in(self.row):
                yield from self._against_row(found)
        try:
            main = folder.main()
            live.add_paths(main.files(folder.main_versions()))
        except CorruptTable as error:
            what = f"plain Lance cannot open the leaf: {error}"
            yield Problem("main-missing", what, self.name)
        for file in folder.files:
            if not live.holds(file.path):
                what = "nothing refers to it"
                yield Problem("orphan-file", what, f"{self.name}/{file.path}", file.size)

    def _files(self, folder: DatasetFolder, found: VersionFiles) -> Iterator[Problem]:
        for path in folder.missing_of(found):
            where, file = f"{self.name}/{path}", folder.by_path.get(path)
            if file is None:
                what = "a file that a snapshot needs is missing"
                yield Problem("file-missing", what, where, found.files.get(path) or 0)
            else:
                what = f"a file has {file.size} bytes, not {found.files[path]}"
                yield Problem("file-damaged", what, where, file.size)

    def _against_row(self, found: VersionFiles) -> Iterator[Problem]:
        assert self.row is not None
        counted = {
            "row_count": found.rows,
            "byte_count": found.bytes,
            "fragment_count": found.fragments,
        }
        for name, count in counted.items():
            said = self.row.columns.get(name)
            if said is not None and said != count:
                what = f"{name} is {said} in the manifest and {count} in the leaf"
                yield Problem("count-differs", what, self.row.id)
        for what in self.shapes.drift(found):
            yield Problem("schema-drift", what, self.row.id)
