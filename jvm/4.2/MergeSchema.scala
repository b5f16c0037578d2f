package org.apache.spark.sql.phalanx

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation

/** `option("mergeSchema", "true")` of a write says what `WITH SCHEMA EVOLUTION` says in SQL. */
class MergeSchema(session: SparkSession) extends Rule[LogicalPlan] {
  private val names = Set("mergeschema", "merge-schema")

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case write: AppendData if asks(write.writeOptions, write.table) => write.copy(withSchemaEvolution = true)
    case write: OverwriteByExpression if asks(write.writeOptions, write.table) =>
      write.copy(withSchemaEvolution = true)
    case write: OverwritePartitionsDynamic if asks(write.writeOptions, write.table) =>
      write.copy(withSchemaEvolution = true)
  }

  private def asks(options: Map[String, String], table: LogicalPlan): Boolean =
    options.exists { case (name, value) => names(name.toLowerCase) && value.equalsIgnoreCase("true") } &&
      (table match {
        case relation: UnresolvedRelation =>
          Names.resolved(session, relation.multipartIdentifier)._1.isInstanceOf[PhalanxCatalog]
        case relation: DataSourceV2Relation => relation.table.isInstanceOf[PhalanxTable]
        case _ => false
      })
}

/** A write that replaces some rows as one that replaces others. */
object Overwrites {
  def partitions(write: OverwriteByExpression): OverwritePartitionsDynamic =
    OverwritePartitionsDynamic(
      write.table, write.query, write.writeOptions, write.isByName, write.withSchemaEvolution)

  def matching(write: OverwritePartitionsDynamic, condition: Expression): OverwriteByExpression =
    OverwriteByExpression(
      write.table, condition, write.query, write.writeOptions, write.isByName, write.withSchemaEvolution)
}
