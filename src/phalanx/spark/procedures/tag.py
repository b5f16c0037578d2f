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
        Parameter("version", "STRING", "the version, or a time; by default the newest", "null"),
    )
    result: ClassVar = {"name": "STRING", "version": "BIGINT"}

    def call(self, invocation: Invocation) -> Rows:
        table, name = invocation.open(), invocation["name"]
        table.tag(name, invocation.version("version", table))
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
