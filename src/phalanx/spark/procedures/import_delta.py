"""`CALL <catalog>.system.import_delta(…)`."""

from __future__ import annotations

from typing import ClassVar

from phalanx.interop import delta
from phalanx.spark.procedures.base import (
    PARTITION_BY,
    PATH,
    TABLE,
    Invocation,
    Parameter,
    Procedure,
    Rows,
    register,
)


@register
class ImportDeltaProcedure(Procedure):
    """Makes a table of a Delta table."""

    name = "import_delta"
    description = "Create a table from a Delta table, in one transaction."
    parameters = (
        TABLE,
        PATH,
        PARTITION_BY,
        Parameter("version", "BIGINT", "of the Delta table; the newest, if none is given", "null"),
    )
    result: ClassVar = {"version": "BIGINT", "partitions": "BIGINT", "rows": "BIGINT"}

    def call(self, invocation: Invocation) -> Rows:
        location = invocation.new_location
        table = delta.import_(
            invocation["path"],
            location.uri,
            invocation.partition_by,
            version=invocation["version"],
            storage_options=location.options,
        )
        rows, partitions = table.count(), table.scan().plan().total
        return [{"version": table.version, "partitions": partitions, "rows": rows}]
