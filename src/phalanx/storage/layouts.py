"""Layouts: how the leaves of a table are named and placed in its root.

The layout is a property of a table that is fixed when it is created. Nothing else depends on it:
the manifest says where each leaf is. A layout other than our own is a module of `phalanx.interop`,
which is loaded only for a table that has it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from phalanx.errors import InvalidInput
from phalanx.model.properties import LAYOUT
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionSpec
from phalanx.model.transforms import FloorTruncate, Hash, ModBucket
from phalanx.storage import files, names
from phalanx.storage.head import Head
from phalanx.storage.location import Location


class LeafLayout(Protocol):
    """A way to name and place leaves. A module can be one."""

    #: What a writer must support, so that older versions of Phalanx refuse to write.
    FEATURES: frozenset[str]
    #: Whether others may put datasets of their own where leaves are, so that a folder is removed
    #: only if it can be shown that we have created it.
    SHARED: bool
    #: Properties of a new table, unless its creator sets them.
    DEFAULTS: Mapping[str, str]

    def adapted(self, spec: PartitionSpec, schema: TableSchema) -> PartitionSpec:
        """The spec of a new table. Raises InvalidInput for one that the layout cannot express."""
        ...

    def folder(self, head: Head, spec: PartitionSpec, keys: Sequence[Any], leaf: str) -> str:
        """The folder of a new leaf, relative to the root. Two writers arrive at the same one.

        Raises InvalidInput for values that no folder can be named after.
        """
        ...

    def leaf_folders(self, location: Location, head: Head) -> list[str]:
        """The folders in the root that are named like those of leaves."""
        ...

    def leaf_in(self, folder: str, head: Head) -> str | None:
        """The id of the leaf that a folder is named after; None if it is named after none."""
        ...

    def keys_in(self, folder: str, head: Head) -> Sequence[Any] | None:
        """The partition values that a folder is named after; None if its name does not say."""
        ...

    def texts(self, head: Head) -> Mapping[str, str]:
        """What the metadata of the manifest also says, for clients that know this layout."""
        ...

    def check_change(self, before: Head, after: Head) -> None:
        """Raise InvalidInput for a change of schema or specs that the layout cannot express."""
        ...


class _Flat:
    """Our own layout: all leaves directly in the root, in folders named by a keyed hash."""

    FEATURES: frozenset[str] = frozenset()
    SHARED = False
    DEFAULTS: Mapping[str, str] = {}

    def adapted(self, spec: PartitionSpec, schema: TableSchema) -> PartitionSpec:
        for field in spec.fields:
            if isinstance(field.transform, Hash | ModBucket | FloorTruncate):
                raise InvalidInput(
                    f"cannot partition by {field.spell(schema)}: only tables with layout='hive' "
                    "can, so use bucket(N, c)"
                )
        return spec

    def folder(self, head: Head, spec: PartitionSpec, keys: Sequence[Any], leaf: str) -> str:
        return names.leaf_folder(head.salt, leaf)

    def leaf_folders(self, location: Location, head: Head) -> list[str]:
        return [name for name in files.folders(location) if names.is_leaf_folder(name)]

    def leaf_in(self, folder: str, head: Head) -> str | None:
        return names.leaf_in(folder)

    def keys_in(self, folder: str, head: Head) -> Sequence[Any] | None:
        return None

    def texts(self, head: Head) -> Mapping[str, str]:
        return {}

    def check_change(self, before: Head, after: Head) -> None:
        if after.spec_id != before.spec_id:
            self.adapted(after.spec, after.schema)


_FLAT = _Flat()
_MODULES = {"hive": "phalanx.interop.hive_layout"}


def layout_of(properties: Mapping[str, str]) -> LeafLayout:
    """The layout of a table with these properties."""
    name = LAYOUT.of(properties)
    if name not in _MODULES:
        return _FLAT
    return cast(LeafLayout, importlib.import_module(_MODULES[name]))
