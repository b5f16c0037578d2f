package org.apache.spark.sql.phalanx

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.expressions.{CheckInvariant, EqualTo, Literal, Or}
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan, WriteDelta}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.util.RowDeltaUtils.{DELETE_OPERATION, OPERATION_COLUMN}
import org.apache.spark.sql.connector.catalog.{Table, TableCatalogCapability, TableChange, TableInfo}
import org.apache.spark.sql.connector.catalog.TableChange.{AddConstraint, DropConstraint}
import org.apache.spark.sql.connector.catalog.constraints.{Check, Constraint}

/** A table that may have CHECK constraints: Spark checks the rows of its own writes. */
trait ConstrainedTable extends Table {
  def described: JsonNode

  override def constraints(): Array[Constraint] =
    described.get("constraints").properties().asScala.map { entry =>
      Constraint.check(entry.getKey).predicateSql(entry.getValue.asText()).enforced(true)
        .validationStatus(Constraint.ValidationStatus.VALID).rely(true).build(): Constraint
    }.toArray
}

/** CHECK constraints as Python keeps them. */
object Constraints {
  val Capabilities: Seq[TableCatalogCapability] = Seq(TableCatalogCapability.SUPPORT_TABLE_CONSTRAINT)

  /** The conditions of a new table by the names of constraints; null for one that nobody enforces. */
  def of(info: TableInfo): Map[String, Any] = info.constraints().map(one => one.name -> condition(one)).toMap

  private def condition(constraint: Constraint): String = constraint match {
    case check: Check if check.enforced => check.predicateSql
    case _ => null
  }

  def change(change: TableChange): Option[Map[String, Any]] = change match {
    case add: AddConstraint => Some(Map("change" -> "add_constraint", "constraint" -> add.constraint.name,
      "sql" -> Option(condition(add.constraint)).getOrElse(""),
      "validated" -> Option(condition(add.constraint)).flatMap(_ => Option(add.validatedTableVersion))))
    case drop: DropConstraint => Some(Map("change" -> "drop_constraint", "constraint" -> drop.name,
      "if_exists" -> drop.ifExists))
    case _ => None
  }
}

/**
 * Spark checks all rows of an UPDATE or MERGE, and an update is a delete and an insert: the row that
 * goes has NULL in all columns, which breaks `x IS NOT NULL`. Rows that go satisfy every constraint.
 */
object CheckNewRowsOnly extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case delta: WriteDelta if delta.operation.isInstanceOf[PhalanxRowChange] => delta.query match {
      case filter: Filter => filter.output.find(_.name == OPERATION_COLUMN).fold[LogicalPlan](delta) { operation =>
        val goes = EqualTo(operation, Literal(DELETE_OPERATION))
        delta.withNewQuery(filter.copy(condition = filter.condition.transform {
          case check: CheckInvariant => check.copy(child = Or(goes, check.child))
        }))
      }
      case _ => delta
    }
  }
}
