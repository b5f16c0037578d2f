"""`CALL <catalog>.system.repair(…)`."""

from __future__ import annotations

from phalanx.spark.procedures.base import (
    DRY_RUN,
    REPORT,
    TABLE,
    Invocation,
    Parameter,
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
    parameters = (
        TABLE,
        DRY_RUN,
        Parameter("stray", "STRING", "keep, take in or drop rows that may not belong", "'keep'"),
    )
    result = REPORT
    changes_rows = True

    def call(self, invocation: Invocation) -> Rows:
        dry_run, stray = bool(invocation["dry_run"]), str(invocation["stray"])
        return report(repair_table(invocation.location, dry_run, stray))
