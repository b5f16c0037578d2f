"""`CALL <catalog>.system.tag(…)` and `drop_tag(…)`."""

from __future__ import annotations

from typing import ClassVar

from phalanx.spark.procedures.base import (
    TABLE,
    Invocation,
    Parameter,
    Procedure,
    Rows,
    register,
    version_of,
)

NAME = Parameter("name", "STRING", "the name")


@register
class TagProcedure(Procedure):
    """Names a version."""

    name = "tag"
    description = "Give a version a name, which keeps it."
    parameters = (
        TABLE,
        NAME,
        Parameter("version", "STRING", "the version; the newest, if none is given", "null"),
    )
    result: ClassVar = {"name": "STRING", "version": "BIGINT"}

    def call(self, invocation: Invocation) -> Rows:
        table, name, version = invocation.open(), invocation["name"], invocation["version"]
        table.tag(name, None if version is None else version_of(version))
        return [{"name": name, "version": table.tags()[name]}]


@register
class DropTagProcedure(Procedure):
    """Removes the name of a version."""

    name = "drop_tag"
    description = "Remove a tag."
    parameters = (TABLE, NAME)
    result: ClassVar = {"name": "STRING"}

    def call(self, invocation: Invocation) -> Rows:
        invocation.open().drop_tag(invocation["name"])
        return [{"name": invocation["name"]}]
