"""`CALL <catalog>.system.export_parquet(…)`."""

from __future__ import annotations

from typing import ClassVar

from phalanx.interop import parquet
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
class ExportParquetProcedure(Procedure):
    """Writes a snapshot as a tree of Parquet files."""

    name = "export_parquet"
    description = "Write a table as a tree of Parquet files, which appears as a whole."
    parameters = (TABLE, PATH, FOLDERS, OVERWRITE)
    result: ClassVar = {
        "version": "BIGINT",
        "files": "BIGINT",
        "rows": "BIGINT",
        "bytes": "BIGINT",
    }

    def call(self, invocation: Invocation) -> Rows:
        report = parquet.export(
            invocation.open(),
            invocation["path"],
            partition_by=names_of(invocation["partition_by"]),
            overwrite=bool(invocation["overwrite"]),
        )
        return [{name: getattr(report, name) for name in self.result}]
