"""`CALL <catalog>.system.upgrade(…)`."""

from __future__ import annotations

from typing import ClassVar

from phalanx import interop
from phalanx.spark.procedures.base import (
    TABLE,
    Invocation,
    Parameter,
    Procedure,
    Rows,
    register,
)


@register
class UpgradeProcedure(Procedure):
    """Turns a table that another client has made into a Phalanx table."""

    name = "upgrade"
    description = "Turn a table of another client into a Phalanx table; no data is moved."
    parameters = (
        TABLE,
        Parameter("branches", "STRING", "refuse or copy partitions read on a branch", "'refuse'"),
    )
    result: ClassVar = {"version": "BIGINT", "partitions": "BIGINT", "rows": "BIGINT"}
    changes_rows = True

    def call(self, invocation: Invocation) -> Rows:
        location = invocation.location
        table = interop.upgrade(
            location.uri, branches=invocation["branches"], storage_options=location.options
        )
        rows, partitions = table.count(), table.scan().plan().total
        return [{"version": table.version, "partitions": partitions, "rows": rows}]
