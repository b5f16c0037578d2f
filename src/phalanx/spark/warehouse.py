"""Where a catalog's tables are: `<warehouse>/<namespace>/<table>`, on disk or in an object store.

A table is a folder with `__manifest` in it, a namespace any other folder. A namespace that was
created by name has a small file with its properties, so that it exists in an object store too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from phalanx.errors import InvalidInput
from phalanx.spark.conf import STORAGE_PREFIX, WAREHOUSE
from phalanx.storage import object_store
from phalanx.storage.location import MANIFEST, Location

_NAMESPACE = "_namespace.json"
DEFAULT = "default"


class Warehouse:
    """A catalog's folder, and what is in it."""

    def __init__(self, confs: Mapping[str, str]) -> None:
        """`confs` are those of the catalog: `warehouse` and `storage.<option>`."""
        self._root = confs.get(WAREHOUSE.name)
        self.options = {
            key.removeprefix(STORAGE_PREFIX): value
            for key, value in confs.items()
            if key.startswith(STORAGE_PREFIX)
        } or None

    def location(self, ident: Sequence[str]) -> Location:
        """The location of a table, by its name in parts or by its path."""
        *namespace, name = ident
        if not namespace and ("/" in name or "\\" in name):
            return Location(name, self.options)
        return self._folder(ident)

    def _folder(self, parts: Sequence[str]) -> Location:
        if not self._root:
            raise InvalidInput(
                "the catalog has no warehouse: set spark.sql.catalog.<name>.warehouse, or name "
                "the table by its path"
            )
        for part in parts:
            if not part or part.startswith((".", "_")) or any(c in part for c in "/\\\0"):
                raise InvalidInput(f"{part!r} is no name for a table or namespace")
        root = Location(self._root, self.options)
        return Location("/".join([root.uri, *parts]), self.options)

    # Namespaces

    def namespace_exists(self, parts: Sequence[str]) -> bool:
        if not parts or list(parts) == [DEFAULT]:
            return True
        folder = self._folder(parts)
        if folder.path is not None:
            return folder.path.is_dir() and not (folder.path / MANIFEST).exists()
        children = object_store.children(folder)
        return bool(children) and MANIFEST not in children

    def namespaces(self, parts: Sequence[str]) -> list[str]:
        """The names of the namespaces directly inside one."""
        names = [
            name
            for name in self._folders(parts)
            if MANIFEST not in object_store.children(self._folder([*parts, name]))
        ]
        return sorted({*names, DEFAULT} if not parts else names)

    def tables(self, parts: Sequence[str]) -> list[str]:
        """The names of the tables directly inside a namespace."""
        return [
            name
            for name in self._folders(parts)
            if MANIFEST in object_store.children(self._folder([*parts, name]))
        ]

    def _folders(self, parts: Sequence[str]) -> list[str]:
        folder = self._folder(parts)
        children = object_store.children(folder)
        names = [name for name in children if not name.startswith((".", "_"))]
        if folder.path is not None:
            names = [name for name in names if (folder.path / name).is_dir()]
        return sorted(names)

    def create_namespace(self, parts: Sequence[str], properties: Mapping[str, str]) -> None:
        object_store.write(self._folder(parts), _NAMESPACE, json.dumps(dict(properties)).encode())

    def namespace_properties(self, parts: Sequence[str]) -> dict[str, str]:
        folder = self._folder(parts)
        stored = object_store.read(folder, _NAMESPACE)
        return {"location": folder.uri} | (json.loads(stored) if stored else {})

    def drop_namespace(self, parts: Sequence[str]) -> None:
        object_store.remove(self._folder(parts))
