"""Changes to a leaf before they are committed: files that were written, and rows that go.

Nothing refers to the files until a version of the leaf does. Whoever is above storage hands these
values around and asks them for counts; what Lance needs to know of a fragment stays inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lance import LanceOperation
from lance.fragment import FragmentMetadata

from phalanx.model.schema import TableSchema
from phalanx.storage.field_ids import lance_schema


@dataclass(frozen=True)
class Written:
    """Files that have been written to a leaf and that no version names yet."""

    fragments: tuple[FragmentMetadata, ...]

    @property
    def fragment_count(self) -> int:
        return len(self.fragments)

    @property
    def file_count(self) -> int:
        return sum(len(fragment.files) for fragment in self.fragments)

    @property
    def paths(self) -> frozenset[str]:
        """The data files."""
        return frozenset(file.path for fragment in self.fragments for file in fragment.files)

    @property
    def rows(self) -> int:
        return sum(fragment.physical_rows for fragment in self.fragments)

    @property
    def bytes(self) -> int:
        return sum(f.file_size_bytes or 0 for frag in self.fragments for f in frag.files)


@dataclass(frozen=True)
class Rewritten:
    """Rows that are in other files than before: the fragments they were in, and the new ones."""

    old: tuple[FragmentMetadata, ...]
    new: Written

    @property
    def old_fragments(self) -> int:
        return len(self.old)

    @property
    def old_bytes(self) -> int:
        return sum(f.file_size_bytes or 0 for fragment in self.old for f in fragment.files)


@dataclass(frozen=True)
class LeafDelta:
    """What changes in a leaf from one version to the next."""

    added: tuple[Written, ...] = ()
    #: Fragments with more deletions than before, by id, and fragments without a row left.
    updated: Mapping[int, FragmentMetadata] = field(default_factory=dict)
    removed: frozenset[int] = frozenset()
    #: Whether nothing of the version before stays.
    replaced: bool = False
    #: The same rows in other files. It goes with nothing else; with `replaced` it is all rows, in
    #: files for another schema than the version before has.
    rewritten: tuple[Rewritten, ...] = ()

    @property
    def is_change(self) -> bool:
        changes = self.added or self.updated or self.removed or self.replaced
        return bool(changes or self.rewritten)

    @property
    def touched(self) -> frozenset[int]:
        """The fragments of the version before that do not stay as they are."""
        rewritten = {fragment.id for part in self.rewritten for fragment in part.old}
        return frozenset(self.updated) | self.removed | rewritten

    @property
    def paths(self) -> frozenset[str]:
        """The data files that are added."""
        written = (*self.added, *(part.new for part in self.rewritten))
        return frozenset(path for part in written for path in part.paths)

    def with_removals(self, other: LeafDelta) -> LeafDelta:
        """This change together with the rows that another takes out."""
        updated = {**self.updated, **other.updated}
        return replace(self, updated=updated, removed=self.removed | other.removed)

    @property
    def identity(self) -> Any:
        """Equal for deltas made of the same files."""
        added = tuple(id(part) for part in (*self.added, *self.rewritten))
        updated = tuple(sorted((number, id(fragment)) for number, fragment in self.updated.items()))
        return added, updated, self.removed, self.replaced

    def operation(self, schema: TableSchema) -> LanceOperation.BaseOperation:
        """The Lance operation that makes this change."""
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
