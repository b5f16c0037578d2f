"""Changes to a leaf before they are committed: files that were written, and rows to remove.

Nothing refers to the files until a version of the leaf does. Callers outside storage pass these
values around and ask them for counts; Lance's metadata of a fragment stays inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lance import LanceOperation
from lance.dataset import Index
from lance.fragment import FragmentMetadata

from phalanx.model.schema import TableSchema
from phalanx.storage.field_ids import lance_schema


@dataclass(frozen=True)
class Written:
    """Files that were written to a leaf and that no version refers to yet."""

    fragments: tuple[FragmentMetadata, ...]

    @property
    def fragment_count(self) -> int:
        return len(self.fragments)

    @property
    def file_count(self) -> int:
        return sum(len(fragment.files) for fragment in self.fragments)

    @property
    def paths(self) -> frozenset[str]:
        """The paths of the data files."""
        return frozenset(file.path for fragment in self.fragments for file in fragment.files)

    @property
    def rows(self) -> int:
        return sum(fragment.physical_rows for fragment in self.fragments)

    @property
    def bytes(self) -> int:
        return sum(f.file_size_bytes or 0 for frag in self.fragments for f in frag.files)

    def each(self) -> list[Written]:
        """The fragments one by one."""
        return [Written((fragment,)) for fragment in self.fragments]


@dataclass(frozen=True)
class Rewritten:
    """Rows that were moved to other files: the fragments that held them, and the new ones."""

    old: tuple[FragmentMetadata, ...]
    new: Written

    @property
    def old_fragments(self) -> int:
        return len(self.old)

    @property
    def old_bytes(self) -> int:
        return sum(f.file_size_bytes or 0 for fragment in self.old for f in fragment.files)


@dataclass(frozen=True)
class IndexDelta:
    """Segments of indexes that were built for a leaf, and segments that are no longer needed."""

    new: tuple[Index, ...]
    dropped: tuple[Index, ...] = ()

    @property
    def fragments(self) -> frozenset[int]:
        """The fragments that the new segments cover."""
        return frozenset(id for segment in self.new for id in segment.fragment_ids)


@dataclass(frozen=True)
class LeafDelta:
    """The change from one version of a leaf to the next."""

    added: tuple[Written, ...] = ()
    #: Fragments with more deleted rows than before, by id, and the ids of fragments without rows.
    updated: Mapping[int, FragmentMetadata] = field(default_factory=dict)
    removed: frozenset[int] = frozenset()
    #: Whether everything in the previous version is replaced.
    replaced: bool = False
    #: Rows that were moved to other files. It is not combined with other changes, except with
    #: `replaced`: then it covers all rows, in files for another schema than the previous one.
    rewritten: tuple[Rewritten, ...] = ()
    #: Indexes that are added and dropped. They are not combined with changes of rows.
    indexes: IndexDelta | None = None

    @property
    def is_change(self) -> bool:
        changes = self.added or self.updated or self.removed or self.replaced
        return bool(changes or self.rewritten or self.indexes)

    @property
    def touched(self) -> frozenset[int]:
        """The fragments of the previous version that are changed or removed."""
        rewritten = {fragment.id for part in self.rewritten for fragment in part.old}
        return frozenset(self.updated) | self.removed | rewritten

    @property
    def paths(self) -> frozenset[str]:
        """The paths of the data files that are added."""
        written = (*self.added, *(part.new for part in self.rewritten))
        return frozenset(path for part in written for path in part.paths)

    def with_removals(self, other: LeafDelta) -> LeafDelta:
        """This change combined with the rows that another change removes."""
        updated = {**self.updated, **other.updated}
        return replace(self, updated=updated, removed=self.removed | other.removed)

    @property
    def identity(self) -> Any:
        """A key that is equal for deltas of the same files."""
        added = tuple(id(part) for part in (*self.added, *self.rewritten))
        updated = tuple(sorted((number, id(fragment)) for number, fragment in self.updated.items()))
        return added, updated, self.removed, self.replaced, id(self.indexes)

    def operation(self, schema: TableSchema) -> LanceOperation.BaseOperation:
        """The Lance operation that commits this change."""
        if self.indexes is not None:
            return LanceOperation.CreateIndex(list(self.indexes.new), list(self.indexes.dropped))
        fragments = [fragment for part in self.added for fragment in part.fragments]
        if self.replaced:
            fragments += [f for part in self.rewritten for f in part.new.fragments]
            return LanceOperation.Overwrite(lance_schema(schema), fragments)
        if self.rewritten:
            groups = [
                LanceOperation.RewriteGroup(list(part.old), list(part.new.fragments))
                for part in self.rewritten
            ]
            return LanceOperation.Rewrite(groups, [])
        if not self.touched:
            return LanceOperation.Append(fragments)
        updated, removed = list(self.updated.values()), sorted(self.removed)
        if not fragments:
            return LanceOperation.Delete(updated, removed, "")
        return LanceOperation.Update(
            removed_fragment_ids=removed, updated_fragments=updated, new_fragments=fragments
        )


NO_CHANGE = LeafDelta()
