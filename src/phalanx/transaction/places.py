"""Where the leaf with some partition values is, or will be created."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.model.domains import domain_of
from phalanx.model.specs import PartitionSpec
from phalanx.model.spelling import shown_value
from phalanx.storage import names
from phalanx.storage.head import Head
from phalanx.storage.layouts import layout_of
from phalanx.storage.leaf_index import LeafIndex
from phalanx.storage.records import LeafRow


@dataclass(frozen=True)
class Place:
    """A leaf's partition values, its id and its folder."""

    spec: PartitionSpec
    keys: tuple[Any, ...]
    leaf_id: str
    folder: str
    #: The leaf in the snapshot; None if it does not exist yet.
    row: LeafRow | None

    @property
    def namespaces(self) -> list[str]:
        """The ids of the namespaces that it is in, without the spec's own, outermost first."""
        return names.namespaces_above(self.leaf_id)

    def under(self, spec: PartitionSpec) -> Place:
        """This place under a later form of its spec, in which fields may be wider."""
        if spec == self.spec:
            return self
        keys = tuple(
            _widened(key, old.result_type, new.result_type)
            for key, old, new in zip(self.keys, self.spec.fields, spec.fields, strict=True)
        )
        return replace(self, spec=spec, keys=keys)

    def __str__(self) -> str:
        values = (
            f"{f.field_id}={shown_value(key, f.result_type)}"
            for f, key in zip(self.spec.fields, self.keys, strict=True)
        )
        return " / ".join(values) or "the whole table"


def _widened(key: Any, old: pa.DataType, new: pa.DataType) -> Any:
    if key is None or old == new:
        return key
    return domain_of(new).key(domain_of(old).array([key]).cast(new)[0])


def place_of(spec: PartitionSpec, row: LeafRow) -> Place:
    """The place of an existing leaf of a spec."""
    return Place(spec, row.keys, row.object_id, row.location, row)


def find_place(leaves: LeafIndex, head: Head, spec: PartitionSpec, keys: tuple[Any, ...]) -> Place:
    """The place of the leaf with these partition values, which may not exist yet.

    Existing namespaces are looked up by value, because another client may have named them.
    """
    index = leaves.find(spec, keys)
    if index is not None:
        return place_of(spec, leaves.row(index))
    known: list[str] = []
    for depth in range(len(keys) - 1, 0, -1):
        parent = leaves.find(spec, keys[:depth])
        if parent is not None:
            known = leaves.row(parent).names[:depth]
            break
    types = [f.result_type for f in spec.fields]
    namespaces = names.namespace_names(head.salt, spec.id, keys, types, known)
    leaf = names.leaf_id(spec.id, namespaces)
    folder = layout_of(head.properties).folder(head, spec, keys, leaf)
    return Place(spec, keys, leaf, folder, None)


def emptied_namespaces(leaves: LeafIndex, gone: Iterable[Place]) -> set[str]:
    """The namespaces that have no leaf left when some leaves are removed."""
    by_spec: dict[int, list[Place]] = {}
    for place in gone:
        by_spec.setdefault(place.spec.id, []).append(place)
    emptied: set[str] = set()
    for places in by_spec.values():
        spec = places[0].spec
        first, _ = leaves.range_of(spec.id)
        at = np.array([place.row.index for place in places if place.row is not None])
        for depth, groups in enumerate(leaves.groups(spec), 1):
            gone_groups = groups[at - first]
            before = np.bincount(groups)
            left = before - np.bincount(gone_groups, minlength=len(before))
            ids = leaves.ids.take(pa.array(at[left[gone_groups] == 0], pa.int64()))
            emptied.update(names.outer_ids(ids, 1 + depth).unique().to_pylist())
    return emptied
