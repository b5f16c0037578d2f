package org.apache.spark.sql.phalanx

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.catalog.{Table, TableCatalogCapability, TableChange}

/** A table that may have CHECK constraints: this Spark does not ask, and Python checks its rows. */
trait ConstrainedTable extends Table {
  def described: JsonNode
}

/** CHECK constraints: this Spark can neither add nor drop one. */
object Constraints {
  val Capabilities: Seq[TableCatalogCapability] = Seq.empty

  def of(info: TableInfo): Map[String, Any] = Map.empty

  def change(change: TableChange): Option[Map[String, Any]] = None
}

/** Changes nothing: this Spark checks no rows. */
object CheckNewRowsOnly extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan
}
