"""`CALL <catalog>.system.vacuum(…)`."""

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


@register
class VacuumProcedure(Procedure):
    """Removes what no retained snapshot needs."""

    name = "vacuum"
    description = "Remove old snapshots and the files that no retained snapshot needs."
    parameters = (
        TABLE,
        Parameter("older_than", "STRING", "how old what goes must be: '7 days', or a time", "null"),
        DRY_RUN,
        Parameter("force", "BOOLEAN", "also remove files younger than 24 hours", "false"),
    )
    result = REPORT

    def call(self, invocation: Invocation) -> Rows:
        age, dry_run = invocation.age("older_than"), bool(invocation["dry_run"])
        return report(invocation.open().vacuum(age, dry_run, bool(invocation["force"])))
