"""The versions of leaves that a set of snapshots refers to: what vacuum must keep."""

from __future__ import annotations

import pyarrow as pa

from phalanx.errors import CorruptTable, TableNotFound
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.manifest_update import READ_VERSION
from phalanx.storage.names import is_leaf_id


class LeafVersions:
    """The versions of leaves that a set of snapshots refers to."""

    _SCHEMA = pa.schema(
        [("object_id", pa.string()), ("location", pa.string()), (READ_VERSION, pa.uint64())]
    )

    def __init__(self) -> None:
        self._table = self._SCHEMA.empty_table()

    def add(self, manifest: ManifestVersion) -> None:
        """Add the leaves of a version of the manifest. Raises CorruptTable if it is unreadable."""
        try:
            leaves = manifest.leaves(self._SCHEMA.names)
        except TableNotFound as error:
            raise CorruptTable(
                f"version {manifest.version} of the manifest of {manifest.location.uri} cannot be "
                f"read, run check(): {error}"
            ) from None
        if READ_VERSION not in leaves.schema.names:
            leaves = leaves.append_column(READ_VERSION, pa.nulls(leaves.num_rows, pa.uint64()))
        leaves = leaves.select(self._SCHEMA.names).cast(self._SCHEMA)
        combined = pa.concat_tables([self._table, leaves])
        self._table = combined.group_by(self._SCHEMA.names).aggregate([]).cast(self._SCHEMA)

    def by_folder(self) -> dict[str, set[int | None]]:
        """Versions by folder; None stands for the newest on main."""
        versions: dict[str, set[int | None]] = {}
        for row in self._table.to_pylist():
            if is_leaf_id(row["object_id"]):
                versions.setdefault(row["location"], set()).add(row[READ_VERSION])
        return versions

    def folders(self) -> set[str]:
        """The folders of all tables in the manifest, those of other clients included."""
        return {name for name in self._table.column("location").to_pylist() if name}

    def pairs(self) -> set[tuple[str, int]]:
        """Pairs of leaf id and version; leaves that are read from main are left out."""
        columns = (self._table.column(c).to_pylist() for c in ("object_id", READ_VERSION))
        return {(id, version) for id, version in zip(*columns, strict=True) if version is not None}
