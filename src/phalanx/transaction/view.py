"""The table as a transaction sees it: a snapshot, and the transaction's changes to it.

Changes to a leaf are collected and committed together, detached: when the transaction commits, or
before the same transaction reads the leaf again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from phalanx.errors import ConflictError
from phalanx.lru import LruCache
from phalanx.model import statistics
from phalanx.model.evolution import fits_files
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionSpec
from phalanx.model.statistics import Statistics
from phalanx.storage.files import is_lasting
from phalanx.storage.head import Head
from phalanx.storage.layouts import layout_of
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import NO_CHANGE, LeafDelta, Written
from phalanx.storage.leaf_index import LeafIndex
from phalanx.storage.main_branch import MainBranch
from phalanx.storage.manifest_update import ManifestUpdate
from phalanx.storage.names import namespaces_above, version_id
from phalanx.storage.records import LeafRow, TagRecord
from phalanx.transaction.failpoints import reach
from phalanx.transaction.places import Place, emptied_namespaces, find_place, place_of
from phalanx.transaction.snapshot import Snapshot

#: The rows of a timeline of at most this many versions are removed without reading them first.
_SHORT_TIMELINE = 64
#: How many leaves a job commits at most, and how many jobs there are before any commits several.
_COMMITS = 64


@dataclass
class Counts:
    """How many rows a transaction has added and removed, and the ids of the leaves it changed."""

    added: int = 0
    removed: int = 0
    leaves: set[str] = field(default_factory=set)
    #: Whether leaves were set to versions of another snapshot.
    restored: bool = False


@dataclass
class _Work:
    """The state of one leaf that the transaction changes."""

    place: Place
    #: The version that pending changes are based on; None for a leaf without rows.
    version: int | None
    pending: LeafDelta = NO_CHANGE
    #: Size and statistics of `version` with the pending changes.
    row_count: int | None = 0
    byte_count: int | None = 0
    fragment_count: int | None = 0
    statistics: Statistics | None = None
    gone: bool = False
    #: The leaf, if it is new and main may show rows that are not part of the table.
    hides_rows: Leaf | None = None

    @property
    def changed(self) -> bool:
        row = self.place.row
        return self.gone or row is None or self.version != row.read_version


class Commits:
    """The versions of leaves that a transaction has committed, so that a retry reuses them."""

    def __init__(self) -> None:
        # Deltas are kept alive, because they are identified by the ids of their objects.
        self._versions: dict[Any, tuple[int, Leaf, LeafDelta]] = {}
        self._on_main: list[tuple[int, LeafDelta]] = []
        #: For a table that became strong: the versions on main that it took over, by folder.
        self.taken_over: dict[str, int] = {}

    def commit(
        self, leaf: Leaf, base: int | None, delta: LeafDelta, whole: bool = True
    ) -> tuple[int, Leaf]:
        """Commit a change once; returns its version and the leaf that it was committed through.

        `whole` says that the transaction makes no other change to the leaf.
        """
        key = (leaf.uri, base, delta.identity, leaf.schema, leaf.stored)
        if key not in self._versions:
            version = leaf.commit(base, delta, whole)
            self._versions[key] = (version, leaf, delta)
        return self._versions[key][:2]

    def made_before(self, leaf: Leaf, base: int, delta: LeafDelta, version: int) -> None:
        """Record a version that was committed elsewhere, for example in another process."""
        key = (leaf.uri, base, delta.identity, leaf.schema, leaf.stored)
        self._versions[key] = (version, leaf, delta)

    def commit_on_main(self, leaf: Leaf, base: int | None, delta: LeafDelta) -> int:
        """Commit a change of a weak table and remember it: the table may become strong."""
        version = leaf.commit_on_main(base, delta)
        self._on_main.append((version, delta))
        return version

    def left_to_add(self, folder: str, written: Sequence[Written]) -> list[Written]:
        """The files that a table which became strong has not taken over from main."""
        until = self.taken_over.get(folder, 0)
        taken = {id(part) for v, delta in self._on_main if v <= until for part in delta.added}
        return [part for part in written if id(part) not in taken]

    @property
    def any_on_main(self) -> bool:
        return bool(self._on_main)

    @property
    def only_added(self) -> bool:
        """Whether the commits on main only added rows."""
        return not any(delta.touched or delta.replaced for _, delta in self._on_main)


class View:
    """A snapshot with the changes that a transaction has made to it so far."""

    def __init__(self, base: Snapshot, commits: Commits, pool: Executor) -> None:
        self.base, self.pool, self._commits = base, pool, commits
        self._works: dict[str, _Work] = {}
        self._current: Snapshot | None = base
        self._leaves: LeafIndex | None = None
        self.counts = Counts()
        #: Whether another transaction may have moved rows to other leaves since this one began.
        self.rows_moved = False
        #: How many changes have been recorded.
        self.steps = 0
        #: The fields of the head that the transaction changes.
        self.head_changes: dict[str, Any] = {}
        self._head: Head | None = base.head
        self._new_specs: list[PartitionSpec] = []
        #: New tags by name; None for a tag that is dropped.
        self._tagged: dict[str, TagRecord | None] = {}

    @property
    def is_weak(self) -> bool:
        return self.base.head.transactions == "weak"

    @property
    def head(self) -> Head:
        """The table's head with the transaction's changes."""
        if self._head is None:
            self._head = replace(self.base.head, **self.head_changes)
        return self._head

    @property
    def schema(self) -> TableSchema:
        """The table's schema with the transaction's changes."""
        schema: TableSchema = self.head_changes.get("schema", self.base.head.schema)
        return schema

    def change_head(self, **changes: Any) -> None:
        """Change fields of the head.

        Raises InvalidInput for a change that the table's layout cannot express.
        """
        after = replace(self.head, **changes)
        if after.spec_id in {spec.id for spec in after.specs}:  # else they come with the next call
            layout_of(after.properties).check_change(self.base.head, after)
        if not {"schema", "properties"}.isdisjoint(changes):
            # Pending files were written for the old schema, and for what files held then.
            self.settle(whole=False)
        if "schema" in changes:
            for work in self._works.values():
                if work.statistics is not None:
                    work.statistics = statistics.seen(
                        work.statistics, self.schema, changes["schema"]
                    )
        self.head_changes |= changes
        self._current = self._leaves = self._head = None
        self.steps += 1

    @property
    def leaves(self) -> LeafIndex:
        """The leaves of the base snapshot, with the specs that the transaction has changed."""
        if self._leaves is None:
            specs = self.head.specs
            same = specs == self.base.head.specs
            self._leaves = self.base.leaves if same else self.base.leaves.under(specs)
        return self._leaves

    def current(self) -> Snapshot:
        """The table with the transaction's changes."""
        if self._current is None:
            self.settle(whole=False)
            changed, removed = [], set()
            for id, work in self._works.items():
                row = work.place.row
                if work.gone:
                    if row is not None:
                        removed.add(id)
                elif work.changed:
                    changed.append(_row(work))
            self._current = self.base.with_leaves(self.leaves.apply(changed, removed), self.head)
        return self._current

    def add_spec(self, spec: PartitionSpec) -> None:
        """Write new rows with a new spec. Rows that exist already stay where they are."""
        self.change_head(spec_id=spec.id)
        self.change_specs((*self.head.specs, spec))

    def change_specs(self, specs: tuple[PartitionSpec, ...]) -> None:
        """Replace the table's specs; the namespaces of new ones are written with the commit."""
        before = self.head.specs
        self.change_head(specs=specs)
        self._new_specs += [spec for spec in specs if spec not in before]
        by_id = {spec.id: spec for spec in specs}
        for work in self._works.values():
            work.place = work.place.under(by_id[work.place.spec.id])

    def tags(self) -> dict[str, TagRecord]:
        """The table's tags with the transaction's changes, by name."""
        tags = {**self.base.tags(), **self._tagged}
        return {name: tag for name, tag in tags.items() if tag is not None}

    def add_tag(self, tag: TagRecord) -> None:
        """Add a tag, replacing one with the same name."""
        self._tagged[tag.name] = tag

    def drop_tag(self, name: str) -> None:
        self._tagged[name] = None

    def place(self, spec: PartitionSpec, keys: tuple[Any, ...]) -> Place:
        """Where the leaf with these values is or will be created, in the base snapshot."""
        return find_place(self.leaves, self.base.head, spec, keys)

    def check_schema(self, schema: TableSchema) -> None:
        """Raise ConflictError if a change was computed with another schema than the table's."""
        if schema != self.schema:
            raise self._another_schema()

    def check_files(self, schema: TableSchema) -> None:
        """Raise ConflictError if files that were written for a schema would be misread."""
        if schema != self.schema and not fits_files(schema, self.schema):
            raise self._another_schema()

    def _another_schema(self) -> ConflictError:
        return ConflictError(
            f"the schema of {self.base.location.uri} was changed by another transaction: nothing "
            "was written, try again"
        )

    def spec_like(self, spec: PartitionSpec) -> PartitionSpec:
        """The table's spec for files that were partitioned by `spec`.

        Raises ConflictError if the table has another spec with that id.
        """
        if spec in self.head.specs:
            return spec
        raise ConflictError(
            f"the table {self.base.location.uri} has another spec v{spec.id} than the one that "
            "rows were written for: nothing was changed, try again"
        )

    def append(self, place: Place, written: Sequence[Written], stats: Statistics) -> None:
        """Add files to a leaf."""
        if not self.is_weak:
            written = self._commits.left_to_add(place.folder, written)
            if not written:
                return
        work = self._work(place)
        if work.gone:
            work.gone = False
            work.pending = LeafDelta(replaced=True)
            work.row_count = work.byte_count = work.fragment_count = 0
            work.statistics = None
        empty = work.version is None and not work.pending.added
        merged = stats if empty or (work.pending.replaced and not work.pending.added) else None
        if merged is None:
            merged = statistics.merge(self._statistics(work), stats)
        work.statistics = merged
        work.pending = replace(work.pending, added=(*work.pending.added, *written))
        rows = sum(part.rows for part in written)
        work.row_count = _plus(work.row_count, rows)
        work.byte_count = _plus(work.byte_count, sum(part.bytes for part in written))
        fragments = sum(part.fragment_count for part in written)
        work.fragment_count = _plus(work.fragment_count, fragments)
        self._touched(place, added=rows)

    def change(
        self, row: LeafRow, delta: LeafDelta, rows_removed: int, version: int | None = None
    ) -> None:
        """Remove rows from a leaf. `version` is what the change was computed on in a weak table."""
        place = self._place_of(row)
        work = self._work(self._as_of_base(place))
        if self.is_weak:
            work.version = version
        stats = self._statistics(work)
        work.statistics = {id: column.loosened() for id, column in stats.items()}
        work.pending = work.pending.with_removals(delta)
        work.row_count = _plus(work.row_count, -rows_removed)
        work.fragment_count = _plus(work.fragment_count, -len(delta.removed))
        self._touched(place, removed=rows_removed)

    def rewrite(self, row: LeafRow, delta: LeafDelta, stats: Statistics | None) -> None:
        """Move rows of a leaf to other files. `stats` are the leaf's statistics, if measured."""
        place = self._as_of_base(self._place_of(row))
        work = self._work(place)
        assert not work.pending.is_change, place
        work.pending = delta
        work.statistics = self._statistics(work) if stats is None else stats
        for part in delta.rewritten:
            work.byte_count = _plus(work.byte_count, part.new.bytes - part.old_bytes)
            more = part.new.fragment_count - part.old_fragments
            work.fragment_count = _plus(work.fragment_count, more)
        self._touched(place)

    def index(self, row: LeafRow, delta: LeafDelta) -> None:
        """Add indexes to a leaf, or drop some. No row changes."""
        place = self._as_of_base(self._place_of(row))
        work = self._work(place)
        assert not work.pending.is_change, place
        work.pending = delta
        work.statistics = self._statistics(work)
        self._touched(place)

    def prefetch_statistics_of(self, rows: Sequence[LeafRow]) -> None:
        """Like `prefetch_statistics`, for leaves of the current snapshot."""
        self.prefetch_statistics([self._as_of_base(self._place_of(row)) for row in rows])

    def made_before(self, leaf: Leaf, base: int, delta: LeafDelta, version: int) -> None:
        """Record that a change is committed already, on top of version `base` of the leaf."""
        self._commits.made_before(leaf, base, delta, version)

    def remove(self, rows: Iterable[LeafRow]) -> None:
        """Remove whole leaves of the current snapshot from the table. Their files stay.

        In a weak table the leaves stay, without rows: readers look at main, not at the manifest.
        """
        unchanged = self._current is self.base
        for row in rows:
            place = self._place_of(row)
            self._remove(row, place if unchanged else self._as_of_base(place))

    def _remove(self, row: LeafRow, place: Place) -> None:
        work = self._work(place)
        if self.is_weak:
            leaf = self._leaf(place)
            work.pending, work.version = LeafDelta(replaced=True), leaf.newest()
            self._touched(place, removed=leaf.count(work.version, None))
            return
        self._touched(place, removed=row.row_count or 0)
        work.gone = True
        work.pending = NO_CHANGE
        work.row_count = 0

    def restore(self, place: Place, row: LeafRow, stats: Statistics) -> None:
        """Set a leaf to the version that it had in another snapshot.

        The counts tell how many rows the leaf has more or less: which rows are the same is not
        known.
        """
        work = self._work(place)
        if not (work.gone or work.pending.is_change) and work.version == row.read_version:
            return
        more = (row.row_count or 0) - (0 if work.gone else work.row_count or 0)
        self._touched(place, added=max(0, more), removed=max(0, -more))
        self.counts.restored = True
        work.gone = False
        work.version, work.pending, work.statistics = row.read_version, NO_CHANGE, stats
        work.row_count, work.byte_count = row.row_count, row.byte_count
        work.fragment_count = row.fragment_count

    def _leaf(self, place: Place) -> Leaf:
        return Leaf.at(self.base.location, self.head, place.folder, place.spec.id, place.keys)

    def _place_of(self, row: LeafRow) -> Place:
        return place_of(self.head.spec_of(row.spec_id), row)

    def _as_of_base(self, place: Place) -> Place:
        """The place of a leaf with its row in the base snapshot."""
        work = self._works.get(place.leaf_id)
        if work is not None:
            return work.place
        if self._current is self.base or self.leaves.holds(place.row):
            return place
        return find_place(self.leaves, self.base.head, place.spec, place.keys)

    def _work(self, place: Place) -> _Work:
        work = self._works.get(place.leaf_id)
        if work is None:
            row = place.row
            work = self._works[place.leaf_id] = _Work(
                place,
                None if row is None else row.read_version,
                row_count=0 if row is None else row.row_count,
                byte_count=0 if row is None else row.byte_count,
                fragment_count=0 if row is None else row.fragment_count,
            )
        return work

    def _touched(self, place: Place, added: int = 0, removed: int = 0) -> None:
        self._current = None
        self.steps += 1
        self.counts.added += added
        self.counts.removed += removed
        self.counts.leaves.add(place.leaf_id)

    def _statistics(self, work: _Work) -> Statistics:
        if work.statistics is None:
            row = work.place.row
            stats = {} if row is None else read_statistics(self.base, [row])
            work.statistics = self._seen(stats.get(work.place.leaf_id, {}))
        return work.statistics

    def prefetch_statistics(self, places: Sequence[Place]) -> None:
        """Read the statistics of many leaves together, before they are changed one by one."""
        existing = [p for p in places if p.row is not None and p.leaf_id not in self._works]
        stats = read_statistics(self.base, [p.row for p in existing if p.row is not None])
        for place in existing:
            self._work(place).statistics = self._seen(stats.get(place.leaf_id, {}))

    def _seen(self, stats: Statistics) -> Statistics:
        """Statistics of the base snapshot with the schema that the transaction has changed."""
        return statistics.seen(stats, self.base.head.schema, self.schema)

    def settle(self, whole: bool = True) -> None:
        """Commit all pending changes: each leaf detached, or on main in a weak table.

        The first rows of a new leaf may be committed on main. Plain Lance shows them from then on,
        so that is done only if they are `whole`: the transaction does not change them any more.
        """
        waiting = [w for w in self._works.values() if not w.gone and w.pending.is_change]

        def commit(work: _Work) -> None:
            leaf, base, delta = self._leaf(work.place), work.version, work.pending
            if self.is_weak:
                self._commits.commit_on_main(leaf, base, delta)
                work.version = None
            else:
                version, through = self._commits.commit(leaf, base, delta, whole)
                if base is None and through.hides_rows:
                    work.hides_rows = through
                if delta.updated or delta.removed or through.rewrote_rows:
                    work.byte_count, work.fragment_count = leaf.size(version)
                work.version = version
            work.pending = NO_CHANGE
            reach("commit.leaf-committed")

        # A job for each leaf would take longer than the commit of a new one.
        size = max(1, min(_COMMITS, len(waiting) // _COMMITS))
        shares = [waiting[i : i + size] for i in range(0, len(waiting), size)]
        # Wait for all commits before an error is raised; changes that failed stay pending.
        futures = [self.pool.submit(_each, commit, share) for share in shares]
        wait(futures)
        for future in futures:
            future.result()

    def put_leaves(self, update: ManifestUpdate, sequence: int) -> None:
        """Add the manifest rows of all changes to an update, which is about to be swapped in.

        New leaves are emptied on main if others have left rows there: they are not the table's.
        """
        self.settle()
        list(self.pool.map(_withdraw, self._hidden()))
        removed = []
        for work in self._works.values():
            if work.gone:
                if work.place.row is not None:
                    removed.append(work.place)
            elif work.changed:
                row = _row(work)
                self._put_leaf(update, row, work, sequence)
                _kept_statistics.put(self.base, row, work.statistics or {}, self.schema)
        update.remove(place.leaf_id for place in removed)
        update.remove(self._timelines(removed))
        emptied = emptied_namespaces(self.leaves, removed)
        for id, work in self._works.items():
            if not work.gone:
                emptied.difference_update(namespaces_above(id))
        update.remove(sorted(emptied))
        self._put_specs(update)
        for name, tag in self._tagged.items():
            if tag is not None:
                update.put_tag(tag)
            else:
                update.remove_tag(name)

    def _hidden(self) -> list[Leaf]:
        """The new leaves of which main may show rows that are not part of the table."""
        works = (w for w in self._works.values() if w.place.row is None and not w.gone)
        return [work.hides_rows for work in works if work.hides_rows is not None]

    def _put_leaf(self, update: ManifestUpdate, row: LeafRow, work: _Work, sequence: int) -> None:
        spec = work.place.spec
        if work.place.row is None:
            update.put_namespaces(row, spec)
        stats = None
        if row.read_version is not None:
            stats = statistics.to_rows(work.statistics or {}, self.schema)
        update.put_leaf(row, spec, sequence, stats)

    def _put_specs(self, update: ManifestUpdate) -> None:
        for spec in self._new_specs:
            update.put_spec(spec)

    def _timelines(self, removed: Sequence[Place]) -> list[str]:
        """The ids of the rows in the timelines of removed leaves.

        Those of a long timeline are read from the manifest, because most of them have expired.
        """
        lengths = {place.leaf_id: place.row.version_number for place in removed if place.row}
        long = {id for id, length in lengths.items() if length > _SHORT_TIMELINE}
        ids = [
            version_id(id, number)
            for id, length in lengths.items()
            if id not in long
            for number in range(1, length + 1)
        ]
        if long:
            ids += [row.id for row in self.base.manifest.timeline() if row.leaf in long]
        return ids

    def put_weak_leaves(self, newest: Snapshot, update: ManifestUpdate, sequence: int) -> None:
        """Add the manifest rows of leaves that a weak transaction has created to an update."""
        for work in self._works.values():
            place = find_place(newest.leaves, newest.head, work.place.spec, work.place.keys)
            if place.row is None:
                self._put_leaf(update, _row(work), work, sequence)
        self._put_specs(update)

    def new_leaves(self) -> tuple[list[Place], int, int]:
        """The leaves that the transaction creates, and how many rows and bytes they have."""
        works = [w for w in self._works.values() if w.place.row is None and not w.gone]
        rows, size = sum(w.row_count or 0 for w in works), sum(w.byte_count or 0 for w in works)
        return [work.place for work in works], rows, size

    def leaf_uris(self) -> list[str]:
        """The URIs of the leaves that the transaction has changed."""
        return [self.base.location.child(work.place.folder) for work in self._works.values()]

    def pending_files(self) -> list[tuple[Leaf, list[str]]]:
        """The leaves with new files that are not committed yet, and the paths of those files."""
        return [
            (self._leaf(work.place), [f"data/{path}" for path in sorted(work.pending.paths)])
            for work in self._works.values()
            if work.pending.added
        ]

    def changed_leaves(self) -> list[tuple[Leaf, int | None]]:
        """The leaves that the transaction has changed and not removed, with their versions."""
        return [
            (self._leaf(work.place), work.version)
            for work in self._works.values()
            if work.changed and not work.gone
        ]

    def removed_leaves(self) -> list[Leaf]:
        """The leaves of the base snapshot that the transaction has removed."""
        works = (work for work in self._works.values() if work.gone)
        return [self._leaf(work.place) for work in works if work.place.row is not None]


def _each(commit: Callable[[_Work], None], works: Sequence[_Work]) -> None:
    """Commit leaves one after the other; the first error is raised when all were tried."""
    failures = []
    for work in works:
        try:
            commit(work)
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _withdraw(leaf: Leaf) -> None:
    MainBranch(leaf.location, leaf.folder).withdraw()
    reach("commit.new-leaf-withdrawn")


def _row(work: _Work) -> LeafRow:
    before, weak = work.place.row, work.version is None
    return LeafRow(
        index=-1 if before is None else before.index,
        object_id=work.place.leaf_id,
        location=work.place.folder,
        read_version=work.version,
        spec_id=work.place.spec.id,
        keys=work.place.keys,
        version_number=1 if before is None else before.version_number + 1,
        # A leaf on main may change before it is read: it is counted then.
        row_count=None if weak else work.row_count,
        byte_count=None if weak else work.byte_count,
        fragment_count=None if weak else work.fragment_count,
    )


class _KeptStatistics:
    """The statistics that this process has read or computed most recently.

    They save the next transaction on the same leaf a read of the manifest. A version of a leaf
    never changes, so its statistics stay valid as long as the table's schema does.
    """

    def __init__(self, size: int) -> None:
        self._kept: LruCache[tuple[str, str, int], tuple[TableSchema, Statistics]]
        self._kept = LruCache(size)

    def get(self, snapshot: Snapshot, row: LeafRow) -> Statistics | None:
        schema, stats = self._kept.get(self._key(snapshot, row)) or (None, None)
        return stats if schema == snapshot.head.schema else None

    def put(
        self,
        snapshot: Snapshot,
        row: LeafRow,
        stats: Statistics,
        schema: TableSchema | None = None,
    ) -> None:
        """Keep statistics with their schema: the snapshot's own, unless another is passed in."""
        if not is_lasting(row.read_version):
            return  # a version number on main may be used again, with other rows
        self._kept.put(self._key(snapshot, row), (schema or snapshot.head.schema, stats))

    @staticmethod
    def _key(snapshot: Snapshot, row: LeafRow) -> tuple[str, str, int]:
        return snapshot.location.uri, row.object_id, row.read_version or 0


_kept_statistics = _KeptStatistics(4096)


def read_statistics(snapshot: Snapshot, leaves: Sequence[LeafRow]) -> dict[str, Statistics]:
    """The statistics of some leaves, by id."""
    by_id: dict[str, Statistics] = {}
    missing: dict[str, LeafRow] = {}
    for row in leaves:
        stats = _kept_statistics.get(snapshot, row)
        if stats is None and row.object_id in snapshot.statistics:
            stats = statistics.from_rows(snapshot.statistics[row.object_id], snapshot.head.schema)
        if stats is None:
            missing[row.object_id] = row
        else:
            by_id[row.object_id] = stats
    if missing:
        for id, cells in snapshot.manifest.statistics(list(missing)).by_id().items():
            by_id[id] = statistics.from_rows(cells, snapshot.head.schema)
            _kept_statistics.put(snapshot, missing[id], by_id[id])
    return by_id


def _plus(count: int | None, more: int) -> int | None:
    return None if count is None else count + more
