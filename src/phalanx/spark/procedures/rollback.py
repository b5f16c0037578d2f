"""`CALL <catalog>.system.rollback(…)`."""

from __future__ import annotations

from typing import ClassVar

from phalanx.errors import InvalidInput
from phalanx.spark.procedures.base import (
    TABLE,
    Invocation,
    Parameter,
    Procedure,
    Rows,
    register,
)


@register
class RollbackProcedure(Procedure):
    """Brings an earlier version back."""

    name = "rollback"
    description = "Bring an earlier version or tag back, as a new snapshot."
    parameters = (TABLE, Parameter("version", "STRING", "the version, a tag or a time"))
    result: ClassVar = {"version": "BIGINT"}
    changes_rows = True

    def call(self, invocation: Invocation) -> Rows:
        table = invocation.open()
        version = invocation.version("version", table)
        if version is None:
            raise InvalidInput("which version? Give version => '7', a tag or a time")
        table.rollback(version)
        return [{"version": table.version}]
