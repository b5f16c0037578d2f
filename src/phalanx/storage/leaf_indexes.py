"""The physical indexes of a leaf: what they cover, and how they are built.

A leaf has any number of segments for an index of the table, under the name of that index. Each
covers some fragments. Rows of other fragments are searched without an index, so an index that is
behind is slower but never wrong. Segments are built for a version of the leaf and added to it by a
detached commit, like rows.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from lance.dataset import Index

from phalanx.errors import InvalidInput
from phalanx.model.indexes import TEXT, VECTOR, IndexDefinition
from phalanx.storage import index_models
from phalanx.storage.lance_errors import LANCE_ERRORS
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import IndexDelta, LeafDelta
from phalanx.storage.mapping import mapping_of

#: With more segments than this, all of them are built again as one: each takes its time to search.
MOST_SEGMENTS = 4


@dataclass(frozen=True)
class Coverage:
    """How far the rows of a leaf are covered by an index."""

    #: Rows that segments cover, and rows that are searched without an index.
    indexed: int
    unindexed: int
    segments: int
    #: Whether a build would cover more rows.
    is_behind: bool


@dataclass(frozen=True)
class _State:
    """The segments of one index in a version of a leaf."""

    #: Rows that are not deleted, by fragment.
    rows: Mapping[int, int]
    #: The segments with the fragments that they cover, as far as these still exist.
    segments: Sequence[tuple[Index, frozenset[int]]]
    #: The name of the column in the leaf; None if the leaf cannot be indexed.
    column: str | None

    @property
    def covered(self) -> frozenset[int]:
        return frozenset().union(*(fragments for _, fragments in self.segments))

    @property
    def missing(self) -> list[int]:
        return sorted(self.rows.keys() - self.covered)


def coverage(
    leaf: Leaf, version: int | None, definitions: Sequence[IndexDefinition]
) -> list[Coverage]:
    """How far a version of a leaf is covered by each of some indexes."""
    handle = leaf.open(version)
    results = []
    for definition in definitions:
        state = _state(leaf, handle, definition)
        total = sum(state.rows.values())
        indexed = sum(state.rows[id] for id in state.covered)
        is_behind = bool(_fragments_to_build(state, definition))
        results.append(Coverage(indexed, total - indexed, len(state.segments), is_behind))
    return results


def build(leaf: Leaf, version: int, definitions: Sequence[IndexDefinition]) -> LeafDelta:
    """Build what is missing of some indexes in a version of a leaf; nothing refers to it yet.

    Raises InvalidInput if Lance cannot index the values of a column.
    """
    handle = leaf.open(version)
    new, dropped = [], []
    for definition in definitions:
        state = _state(leaf, handle, definition)
        fragments = _fragments_to_build(state, definition)
        if not fragments:
            continue
        live = [segment for segment, covered in state.segments if covered]
        whole = len(live) >= MOST_SEGMENTS
        if whole:
            fragments = sorted(state.rows)
        assert state.column is not None
        new.append(_built(leaf, handle, definition, state.column, fragments))
        dropped += [s for s, covered in state.segments if whole or not covered]
    return LeafDelta(indexes=IndexDelta(tuple(new), tuple(dropped)) if new else None)


def drop(leaf: Leaf, version: int, name: str) -> LeafDelta:
    """Drop all segments of an index from a version of a leaf."""
    segments = tuple(_segments(leaf.open(version), name))
    return LeafDelta(indexes=IndexDelta((), segments) if segments else None)


def sample(leaf: Leaf, version: int, column: str, rows: int) -> pa.Array:
    """A random sample of the values of a column in a leaf, without NULL."""
    handle = leaf.open(version)
    held = held_as(leaf, handle, column)
    if held is None:
        return pa.nulls(0, leaf.schema.arrow.field(column).type)
    rows = min(rows, int(handle.count_rows()))
    values = handle.sample(rows, columns=[held]).column(0)
    return values.combine_chunks().drop_null()


def _fragments_to_build(state: _State, definition: IndexDefinition) -> list[int]:
    """The fragments that a build would cover; none in a leaf that stays without an index."""
    if state.column is None or sum(state.rows.values()) < definition.min_rows:
        return []
    if definition.family == VECTOR and definition.model is None:
        return []
    return [id for id in state.missing if state.rows[id]]


def _state(leaf: Leaf, handle: Any, definition: IndexDefinition) -> _State:
    metadata = [fragment.metadata for fragment in handle.get_fragments()]
    rows = {part.id: part.physical_rows - part.num_deletions for part in metadata}
    live = frozenset(rows)
    segments = [
        (segment, frozenset(segment.fragment_ids) & live)
        for segment in _segments(handle, definition.name)
    ]
    return _State(rows, segments, _column(leaf, handle, definition))


def built_fragments(handle: Any, name: str) -> dict[str, frozenset[int]]:
    """The fragments that each segment of an index was built for, by the id of the segment."""
    return {str(s.uuid): frozenset(s.fragment_ids) for s in _segments(handle, name)}


def covered_fragments(handle: Any, name: str) -> dict[str, frozenset[int]]:
    """The fragments that each segment of an index covers, by the id of the segment."""
    live = frozenset(fragment.fragment_id for fragment in handle.get_fragments())
    covers = {s.uuid: frozenset(s.fragment_ids) & live for s in _segments(handle, name)}
    return {str(id): fragments for id, fragments in covers.items() if fragments}


def _segments(handle: Any, name: str) -> Iterator[Index]:
    for index in handle.describe_indices():
        if index.name == name:
            for segment in index.segments:
                yield Index(
                    uuid=segment.uuid,
                    name=name,
                    fields=list(index.fields),
                    dataset_version=segment.dataset_version_at_last_update,
                    fragment_ids=segment.fragment_ids,
                    index_version=segment.index_version,
                )


def _column(leaf: Leaf, handle: Any, definition: IndexDefinition) -> str | None:
    """The leaf's name for the column of an index; None if the leaf holds no values of its type."""
    name = leaf.schema.name_of(definition.column_id)
    return None if name is None or handle.has_stable_row_ids else held_as(leaf, handle, name)


def held_as(leaf: Leaf, handle: Any, name: str) -> str | None:
    """The leaf's name for a column of the table; None if it does not hold the same values."""
    reading = mapping_of(handle.lance_schema, handle, leaf.schema).reading([name])
    return None if reading.converts or not reading.columns else str(reading.columns[0])


def _built(
    leaf: Leaf, handle: Any, definition: IndexDefinition, column: str, fragments: Sequence[int]
) -> Index:
    """A segment that covers some fragments, written and not committed."""
    options = dict(definition.parameters)
    if definition.family == VECTOR:
        assert definition.model is not None
        model = index_models.load(leaf.location, definition.model)
        options["ivf_centroids"] = model.centroids
        if model.codebook is not None:
            options["pq_codebook"] = model.codebook
    elif definition.family == TEXT:
        options = {"with_position": True, **options}
    try:
        # Lance refuses a name that is taken; the segment gets its name afterwards.
        segment = handle.create_index_uncommitted(
            column,
            definition.kind.name,
            name=f"{definition.name}-{uuid.uuid4().hex}",
            fragment_ids=list(fragments),
            storage_options=leaf.location.options,
            **options,
        )
        if definition.family == TEXT:
            segment = handle.merge_existing_index_segments([segment])
    except LANCE_ERRORS as error:
        if isinstance(error, OSError):
            raise
        raise InvalidInput(
            f"the index {definition.name!r} cannot be built in the leaf {leaf.uri}: "
            f"{leaf.location.reason(error)}"
        ) from None
    named: Index = dataclasses.replace(segment, name=definition.name)
    return named
