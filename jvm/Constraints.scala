package org.apache.spark.sql.phalanx

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.catalog.TableChange
import org.apache.spark.sql.connector.catalog.TableChange.{AddConstraint, DropConstraint}
import org.apache.spark.sql.connector.catalog.constraints.{Check, Constraint}

/** CHECK constraints: Python keeps them, and Spark checks the rows of its own writes. */
object Constraints {
  /** The conditions by the names of constraints; null for one that nobody enforces. */
  def sql(constraints: Seq[Constraint]): Map[String, Any] = constraints.map(one => one.name -> condition(one)).toMap

  private def condition(constraint: Constraint): String = constraint match {
    case check: Check if check.enforced => check.predicateSql
    case _ => null
  }

  def of(described: JsonNode): Array[Constraint] =
    described.get("constraints").properties().asScala.map { entry =>
      Constraint.check(entry.getKey).predicateSql(entry.getValue.asText()).enforced(true)
        .validationStatus(Constraint.ValidationStatus.VALID).rely(true).build(): Constraint
    }.toArray

  def change(change: TableChange): Option[Map[String, Any]] = change match {
    case add: AddConstraint => Some(Map("change" -> "add_constraint", "constraint" -> add.constraint.name,
      "sql" -> Option(condition(add.constraint)).getOrElse(""),
      "validated" -> Option(condition(add.constraint)).flatMap(_ => Option(add.validatedTableVersion))))
    case drop: DropConstraint => Some(Map("change" -> "drop_constraint", "constraint" -> drop.name,
      "if_exists" -> drop.ifExists))
    case _ => None
  }
}
