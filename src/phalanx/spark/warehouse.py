"""Where a catalog's tables are: `<warehouse>/<namespace>/<table>`, on disk or in an object store.

A table is a folder with `__manifest` in it, a namespace any other folder. A namespace that was
created by name has a small file with its properties, so that it exists in an object store too.
Views, and tables in other places, are `relations` of their namespace.

Names are found as the session's `spark.sql.caseSensitive` says. Two that differ in case alone are
refused, because another session could not tell them apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from phalanx.errors import InvalidInput
from phalanx.spark.conf import STORAGE_PREFIX, WAREHOUSE
from phalanx.spark.relations import TABLE, VIEW, Relation, Relations
from phalanx.storage import folders, manifest
from phalanx.storage.location import MANIFEST, Location
from phalanx.transaction import lock

_NAMESPACE = "_namespace.json"
DEFAULT = "default"
_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def parts_of(name: str) -> list[str]:
    """A name such as `db.events` in parts; backticks are as in Spark. Raises InvalidInput."""
    parts, at = [], 0
    while match := _PART.match(name, at):
        quoted, plain = match.groups()
        parts.append(plain if quoted is None else quoted.replace("``", "`"))
        at = match.end()
        if at == len(name):
            return parts
        if name[at] != ".":
            break
        at += 1
    raise InvalidInput(f"{name!r} is not the name of a table: write it like db.events")


def is_path(ident: Sequence[str]) -> bool:
    """Whether a table is named by its path."""
    return len(ident) == 1 and ("/" in ident[0] or "\\" in ident[0])


def _is_name(part: str) -> bool:
    return bool(part) and not part.startswith((".", "_")) and not any(c in part for c in "/\\\0")


class Warehouse:
    """A catalog's folder, and what is in it."""

    def __init__(
        self, confs: Mapping[str, str], case_sensitive: bool = False, name: str = ""
    ) -> None:
        """`confs` are those of the catalog: `warehouse` and `storage.<option>`."""
        self._root = confs.get(WAREHOUSE.name)
        self._case_sensitive, self._name = case_sensitive, name
        self.options = {
            key.removeprefix(STORAGE_PREFIX): value
            for key, value in confs.items()
            if key.startswith(STORAGE_PREFIX)
        } or None

    def within(self, parts: Sequence[str]) -> list[str]:
        """A name without that of the catalog, which it may begin with."""
        begins = len(parts) > 1 and parts[0] == self._name
        return list(parts[1:] if begins and not self.namespace_exists(parts[:1]) else parts)

    # Tables

    def location(self, ident: Sequence[str]) -> Location:
        """The location of a table, by its name in parts or by its path.

        Raises InvalidInput for a name that no table can have.
        """
        if is_path(ident):
            return Location(ident[0], self.options)
        for part in ident:
            if not _is_name(part):
                raise InvalidInput(f"{part!r} is not a name for a table or namespace")
        return self._folder(ident)

    def _folder(self, parts: Sequence[str]) -> Location:
        if not self._root:
            raise InvalidInput(
                "the catalog has no warehouse: set spark.sql.catalog.<name>.warehouse, or name "
                "the table by its path"
            )
        root = Location(self._root, self.options)
        return Location(root.child("/".join(parts)), self.options) if parts else root

    def places(self, ident: Sequence[str]) -> Iterator[Location]:
        """Where a table of a name may be, the likeliest place first; none for an impossible name.

        Raises InvalidInput for a name that several relations have, but for their case.
        """
        if is_path(ident):
            yield self.location(ident)
            return
        for name in self._spellings(ident):
            yield self._folder(name)
            relation = self._relations(name[:-1]).read(name[-1], TABLE)
            if relation is not None:
                yield Location(relation["location"], self.options)

    def existing(self, ident: Sequence[str]) -> Location | None:
        """The location of a table that is there; None if there is no such table."""
        return next(filter(manifest.exists, self.places(ident)), None)

    def is_managed(self, ident: Sequence[str], location: Location) -> bool:
        """Whether a table lies in the folder that its name says."""
        return any(self._folder(name).uri == location.uri for name in self._spellings(ident))

    def _spellings(self, ident: Sequence[str]) -> Iterator[Sequence[str]]:
        """A name, and then as it is spelled in the warehouse, if that differs in case."""
        if not all(map(_is_name, ident)):
            return
        yield ident
        spelled = None if self._case_sensitive else self._spelled(ident)
        if spelled is not None and spelled != list(ident):
            yield spelled

    def _spelled(self, parts: Sequence[str]) -> list[str] | None:
        """How a name is spelled where it may differ in case; None if nothing has such a name."""
        spelled: list[str] = []
        for part in parts:
            names = [name for name in self._names(spelled) if name.lower() == part.lower()]
            if not names:
                return None
            if part not in names and len(names) > 1:
                raise InvalidInput(
                    f"{part!r} may be any of {', '.join(sorted(names))}: set "
                    "spark.sql.caseSensitive to true to tell them apart"
                )
            spelled.append(part if part in names else names[0])
        return spelled

    def _names(self, parts: Sequence[str]) -> set[str]:
        """All names in a namespace; none if it is a table."""
        if not self._is_namespace(parts):
            return set()
        names = {*self._folders(parts), *self._relations(parts).names()}
        return names if parts else names | {DEFAULT}

    def new(self, ident: Sequence[str]) -> list[str]:
        """The name of what is to be created, in a namespace that exists.

        Raises InvalidInput for a name that nothing can have, or that differs from another one in
        case alone.
        """
        if is_path(ident):
            return list(ident)
        self.location(ident)
        *above, last = ident
        namespace = self.namespace(above)
        name = [*(above if namespace is None else namespace), last]
        for other in self._names(name[:-1]):
            if other != last and other.lower() == last.lower():
                raise InvalidInput(
                    f"there is {'.'.join([*name[:-1], other])} already: two names must not differ "
                    "in case alone"
                )
        return name

    # Views, and tables in other places

    def relations(self, parts: Sequence[str]) -> Relations:
        """The relations of a namespace."""
        return self._relations(self.namespace(parts) or parts)

    def _relations(self, parts: Sequence[str]) -> Relations:
        return Relations(self._folder(parts))

    def relation(self, ident: Sequence[str], kind: str) -> tuple[Sequence[str], Relation] | None:
        """A relation with its name as it is spelled; None if there is none of that kind."""
        if is_path(ident):
            return None
        for name in self._spellings(ident):
            relation = self._relations(name[:-1]).read(name[-1], kind)
            if relation is not None:
                return name, relation
        return None

    def views(self, parts: Sequence[str]) -> list[str]:
        """The names of the views directly inside a namespace."""
        return self.relations(parts).names(VIEW)

    # Namespaces

    def namespace(self, parts: Sequence[str]) -> list[str] | None:
        """A namespace, as it is spelled; None if it does not exist."""
        for name in self._spellings(parts):
            if self._is_namespace(name):
                return list(name)
        return None

    def namespace_exists(self, parts: Sequence[str]) -> bool:
        return self.namespace(parts) is not None

    def _is_namespace(self, parts: Sequence[str]) -> bool:
        if not parts or list(parts) == [DEFAULT]:
            return True
        folder = self._folder(parts)
        if folder.path is not None:
            return folder.path.is_dir() and not (folder.path / MANIFEST).exists()
        children = folders.children(folder)
        return bool(children) and MANIFEST not in children

    def namespaces(self, parts: Sequence[str]) -> list[str]:
        """The names of the namespaces directly inside one."""
        parts = self.namespace(parts) or parts
        names = [
            name
            for name in self._folders(parts)
            if MANIFEST not in folders.children(self._folder([*parts, name]))
        ]
        return sorted({*names, DEFAULT} if not parts else names)

    def tables(self, parts: Sequence[str]) -> list[str]:
        """The names of the tables directly inside a namespace."""
        parts = self.namespace(parts) or parts
        inside = [
            name
            for name in self._folders(parts)
            if MANIFEST in folders.children(self._folder([*parts, name]))
        ]
        return sorted({*inside, *self._relations(parts).names(TABLE)})

    def _folders(self, parts: Sequence[str]) -> list[str]:
        folder = self._folder(parts)
        children = folders.children(folder)
        names = [name for name in children if not name.startswith((".", "_"))]
        if folder.path is not None:
            names = [name for name in names if (folder.path / name).is_dir()]
        return sorted(names)

    def create_namespace(self, parts: Sequence[str], properties: Mapping[str, str]) -> None:
        """Create a namespace. Raises InvalidInput for a name that it cannot have."""
        self._write_properties(self.new(parts), properties)

    def namespace_properties(self, parts: Sequence[str]) -> dict[str, str]:
        """The properties of a namespace, its location among them."""
        folder = self._folder(self.namespace(parts) or parts)
        return {"location": folder.uri} | self._stored_properties(folder)

    def alter_namespace(self, parts: Sequence[str], changes: Mapping[str, str | None]) -> None:
        """Set properties of a namespace, and remove those that are None."""
        parts = self.namespace(parts) or parts
        folder = self._folder(parts)
        if folder.path is not None:
            folder.path.mkdir(parents=True, exist_ok=True)
        with lock.held(folder):
            properties = {**self._stored_properties(folder), **changes}
            kept = {key: value for key, value in properties.items() if value is not None}
            self._write_properties(parts, kept)

    def _stored_properties(self, folder: Location) -> dict[str, str]:
        stored = folders.read(folder, _NAMESPACE)
        return json.loads(stored) if stored else {}

    def _write_properties(self, parts: Sequence[str], properties: Mapping[str, str]) -> None:
        folders.write(self._folder(parts), _NAMESPACE, json.dumps(dict(properties)).encode())

    def drop_namespace(self, parts: Sequence[str]) -> None:
        folders.remove(self._folder(self.namespace(parts) or parts))
