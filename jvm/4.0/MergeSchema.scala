package org.apache.spark.sql.phalanx

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule

/** `option("mergeSchema", "true")` of a write: this Spark has no write that could add columns. */
class MergeSchema(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan
}
