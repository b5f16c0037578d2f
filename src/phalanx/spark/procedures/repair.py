"""`CALL <catalog>.system.repair(…)`."""

from __future__ import annotations

from phalanx.spark.procedures.base import (
    DRY_RUN,
    REPORT,
    TABLE,
    Invocation,
    Procedure,
    Rows,
    register,
    report,
)
from phalanx.table.repair import repair_table


@register
class RepairProcedure(Procedure):
    """Repairs damage, also of a table that does not open."""

    name = "repair"
    description = "Repair what check finds where that is possible, and say what cannot be repaired."
    parameters = (TABLE, DRY_RUN)
    result = REPORT
    changes_rows = True

    def call(self, invocation: Invocation) -> Rows:
        return report(repair_table(invocation.location, bool(invocation["dry_run"])))
