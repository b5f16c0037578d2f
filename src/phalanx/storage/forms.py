"""Tables in other forms: roots that do not have a manifest of ours.

A form reads such a root as if it were one version of a manifest; everything above works on that.
The forms themselves are modules of `phalanx.interop`. They are loaded only for a root that is not
ours, so that nothing below depends on them.
"""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from phalanx.errors import InvalidInput, PhalanxError, TableNotFound
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion

#: The modules that each read one form, in the order in which they are asked.
MODULES: tuple[str, ...] = ("phalanx.interop.earlier", "phalanx.interop.hive_tree")


class Form(Protocol):
    """A module that reads tables in another form."""

    def read(self, location: Location, manifest: ManifestVersion | None) -> ManifestVersion | None:
        """The table at a root as a version of a manifest; None if it does not have this form.

        `manifest` is the `__manifest` at the root, None if there is none.
        """
        ...

    def occupies(self, location: Location) -> bool:
        """Whether others have a table in this form at a root, so that none can be created there."""
        ...


def is_occupied(location: Location) -> bool:
    """Whether there is a table in another form at a root."""
    return any(_form(name).occupies(location) for name in MODULES)


def open_manifest(location: Location, known: ManifestVersion | None = None) -> ManifestVersion:
    """The newest version of the manifest at a root, in whatever form the table is.

    `known` is a version that was opened before, if there is one. Raises TableNotFound if there is
    no table, and InvalidInput if something is declared about one of ours.
    """
    try:
        manifest = ManifestVersion(location, known=known)
    except TableNotFound:
        other = _read(location, None)
        if other is None:
            raise
        return other
    if _is_ours(manifest):
        if location.declaration is not None:
            raise InvalidInput(
                f"the table {location.uri} has a schema and a partitioning of its own: open it "
                "without schema and partition_by"
            )
        return manifest
    return _read(location, manifest) or manifest


def read_other(location: Location) -> ManifestVersion | None:
    """The table at a root if it has another form than ours; None for ours, damaged or not there."""
    try:
        manifest: ManifestVersion | None = ManifestVersion(location)
    except TableNotFound:
        manifest = None
    except PhalanxError:
        return None
    if manifest is not None and _is_ours(manifest):
        return None
    return _read(location, manifest)


def _is_ours(manifest: ManifestVersion) -> bool:
    """Whether there is a head row, even if the table's id is not published yet."""
    return manifest.table_id is not None or manifest.sequence() is not None


def _read(location: Location, manifest: ManifestVersion | None) -> ManifestVersion | None:
    for name in MODULES:
        table = _form(name).read(location, manifest)
        if table is not None:
            return table
    return None


def _form(name: str) -> Form:
    return cast(Form, importlib.import_module(name))
