"""`CALL <catalog>.system.expire_snapshots(…)`."""

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
class ExpireSnapshotsProcedure(Procedure):
    """Expires old snapshots."""

    name = "expire_snapshots"
    description = "Expire snapshots that have not been the newest for some time; no file goes yet."
    parameters = (
        TABLE,
        Parameter(
            "older_than",
            "STRING",
            "how old they must be, such as '30 days', or a time; the table's own retention, if not "
            "given",
            "null",
        ),
        DRY_RUN,
        Parameter("retain_last", "BIGINT", "how many of the newest are kept in any case", "null"),
    )
    result = REPORT

    def call(self, invocation: Invocation) -> Rows:
        age, dry_run = invocation.age("older_than"), bool(invocation["dry_run"])
        kept = invocation["retain_last"]
        return report(invocation.open().expire_snapshots(age, dry_run, retain_last=kept))
