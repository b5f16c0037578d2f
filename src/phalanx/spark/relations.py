"""What a namespace knows by name beside the tables in it: views, and tables in other places.

Each is a small JSON file in the folder `_relations` of the namespace, so that all of them share one
set of names. A view's file has all that Spark wants to know of it; that of a table, its location.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phalanx.storage import folders
from phalanx.storage.location import Location

_FOLDER, _SUFFIX = "_relations", ".json"
VIEW, TABLE = "view", "table"


@dataclass(frozen=True)
class Link:
    """A table in another place that is to get a name: the folder of its namespace, and the name."""

    namespace: str
    name: str

    def create(self, location: Location) -> bool:
        """Give a table the name; returns whether it was free."""
        relations = Relations(Location(self.namespace, location.options))
        return relations.create(self.name, {"kind": TABLE, "location": location.uri})


#: What is stored of a view or a table: its `kind`, and more.
Relation = Mapping[str, Any]


class Relations:
    """The relations of a namespace by their names."""

    def __init__(self, namespace: Location) -> None:
        self._folder = Location(f"{namespace.uri}/{_FOLDER}", namespace.options)

    def names(self, kind: str | None = None) -> list[str]:
        """The names of all relations, or of those of a kind."""
        files = folders.children(self._folder)
        names = sorted(_name(file) for file in files if file.endswith(_SUFFIX) and file[0] != ".")
        if kind is None:
            return names
        return [name for name in names if self.read(name, kind) is not None]

    def read(self, name: str, kind: str | None = None) -> Relation | None:
        """A relation; None if there is none of that name and kind."""
        content = folders.read(self._folder, _file(name))
        if content is None:
            return None
        relation: Relation = json.loads(content)
        return relation if kind in (None, relation["kind"]) else None

    def create(self, name: str, relation: Relation) -> bool:
        """Add a relation; returns whether the name was free."""
        return folders.create(self._folder, _file(name), json.dumps(relation).encode())

    def replace(self, name: str, relation: Relation) -> None:
        folders.write(self._folder, _file(name), json.dumps(relation).encode())

    def remove(self, name: str) -> bool:
        """Forget a relation; returns whether there was one."""
        return folders.delete(self._folder, _file(name))


def _file(name: str) -> str:
    """The file of a relation. Letters that some store treats in its own way are spelled in hex."""

    def spelled(letter: re.Match[str]) -> str:
        return "".join(f"_{byte:02x}" for byte in letter[0].encode())

    return re.sub(r"[^A-Za-z0-9-]", spelled, name) + _SUFFIX


def _name(file: str) -> str:
    """The inverse of `_file`."""

    def letters(run: re.Match[str]) -> str:
        return bytes.fromhex(run[0].replace("_", "")).decode()

    return re.sub(r"(?:_[0-9a-f]{2})+", letters, file.removesuffix(_SUFFIX))
