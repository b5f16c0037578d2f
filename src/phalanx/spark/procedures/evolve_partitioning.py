"""`CALL <catalog>.system.evolve_partitioning(…)`."""

from __future__ import annotations

from typing import ClassVar

from phalanx.model.specs import entries_of
from phalanx.spark.procedures.base import TABLE, Invocation, Parameter, Procedure, Rows, register


@register
class EvolvePartitioningProcedure(Procedure):
    """Gives the table another spec."""

    name = "evolve_partitioning"
    description = "Partition new rows by other fields; existing rows stay where they are."
    parameters = (
        TABLE,
        Parameter("partition_by", "STRING", "the fields, such as 'days(ts), bucket(16, id)'"),
    )
    result: ClassVar = {"version": "BIGINT", "spec": "STRING"}

    def call(self, invocation: Invocation) -> Rows:
        table = invocation.open()
        table.evolve_partitioning(entries_of(invocation["partition_by"] or ""))
        fields = ", ".join(table.spec.spell(table._snapshot.head.schema))
        return [{"version": table.version, "spec": f"v{table.spec.id}: {fields or 'nothing'}"}]
