"""`CALL <catalog>.system.rollback(…)`."""

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


@register
class RollbackProcedure(Procedure):
    """Brings an earlier version back."""

    name = "rollback"
    description = "Bring an earlier version or tag back, as a new snapshot."
    parameters = (TABLE, Parameter("version", "STRING", "the version, or the name of a tag"))
    result: ClassVar = {"version": "BIGINT"}
    changes_rows = True

    def call(self, invocation: Invocation) -> Rows:
        table = invocation.open()
        table.rollback(version_of(invocation["version"]))
        return [{"version": table.version}]
