"""`CALL <catalog>.system.check(…)`."""

from __future__ import annotations

from phalanx.spark.procedures.base import (
    REPORT,
    TABLE,
    Invocation,
    Procedure,
    Rows,
    register,
    report,
)
from phalanx.table.check import check_table


@register
class CheckProcedure(Procedure):
    """Looks for damage, also in a table that does not open."""

    name = "check"
    description = "Look for every inconsistency in a table; nothing is changed."
    parameters = (TABLE,)
    result = REPORT

    def call(self, invocation: Invocation) -> Rows:
        return report(check_table(invocation.location))
