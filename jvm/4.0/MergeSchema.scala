package org.apache.spark.sql.phalanx

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, OverwriteByExpression, OverwritePartitionsDynamic}
import org.apache.spark.sql.catalyst.rules.Rule

/** `option("mergeSchema", "true")` of a write: this Spark has no write that could add columns. */
class MergeSchema(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan
}

/** A write that replaces some rows as one that replaces others. */
object Overwrites {
  def partitions(write: OverwriteByExpression): OverwritePartitionsDynamic =
    OverwritePartitionsDynamic(write.table, write.query, write.writeOptions, write.isByName)

  def matching(write: OverwritePartitionsDynamic, condition: Expression): OverwriteByExpression =
    OverwriteByExpression(write.table, condition, write.query, write.writeOptions, write.isByName)
}
