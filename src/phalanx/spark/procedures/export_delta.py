"""`CALL <catalog>.system.export_delta(…)`."""

from __future__ import annotations

from typing import ClassVar

from phalanx.interop import delta
from phalanx.spark.procedures.base import (
    FOLDERS,
    OVERWRITE,
    PATH,
    TABLE,
    Invocation,
    Procedure,
    Rows,
    names_of,
    register,
)


@register
class ExportDeltaProcedure(Procedure):
    """Makes a Delta table of a snapshot, or brings one up to date."""

    name = "export_delta"
    description = "Make a Delta table of a table, or write what has changed since the last export."
    parameters = (TABLE, PATH, FOLDERS, OVERWRITE)
    result: ClassVar = {
        "version": "BIGINT",
        "delta_version": "BIGINT",
        "files_added": "BIGINT",
        "files_removed": "BIGINT",
        "files_kept": "BIGINT",
        "rows_added": "BIGINT",
    }

    def call(self, invocation: Invocation) -> Rows:
        report = delta.export(
            invocation.open(),
            invocation["path"],
            partition_by=names_of(invocation["partition_by"]),
            overwrite=bool(invocation["overwrite"]),
        )
        return [{name: getattr(report, name) for name in self.result}]
