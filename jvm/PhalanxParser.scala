package org.apache.spark.sql.phalanx

import scala.util.Try

import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.parser.ParserInterface
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.types.{DataType, StructType}

/**
 * Spark's SQL, and `ALTER TABLE t ADD | DROP | REPLACE PARTITION FIELD …`.
 *
 * What a field is, Python says: the text of one goes there as it is.
 */
class PhalanxParser(spark: ParserInterface) extends SparkParser(spark) {
  private val Alter = """(?is)\s*ALTER\s+TABLE\s+(.+?)\s+(ADD|DROP|REPLACE)\s+PARTITION\s+FIELD\s+(.+?)\s*;?\s*""".r
  private val Replaced = """(?is)(.+?)\s+WITH\s+(.+)""".r
  private val foreign = new ForeignStatements(spark)

  private def ours(text: String): Option[LogicalPlan] = text match {
    case Alter(table, action, field) =>
      val name = spark.parseMultipartIdentifier(table)
      if (isTheirs(name, text)) None else Some((action.toUpperCase, field) match {
        case ("ADD", added) => AlterPartitioning(name, Some(added), None)
        case ("DROP", dropped) => AlterPartitioning(name, None, Some(dropped))
        case (_, Replaced(dropped, added)) => AlterPartitioning(name, Some(added), Some(dropped))
        case _ => throw Bridge.refusal("say what comes in its place: REPLACE PARTITION FIELD a WITH b")
      })
    case _ => None
  }

  /** Whether another format, whose parser is behind this one, has the table and knows the statement. */
  private def isTheirs(name: Seq[String], text: String): Boolean =
    !Names.resolved(classic.SparkSession.active, name)._1.isInstanceOf[PhalanxCatalog] &&
      Try(spark.parsePlan(text)).isSuccess

  override protected def parsed(text: String)(theirs: => LogicalPlan): LogicalPlan =
    ours(text).getOrElse(foreign.explained(text)(Providers.checked(theirs)))

  override def parsePlan(text: String): LogicalPlan = parsed(text)(spark.parsePlan(text))
  override def parseExpression(text: String): Expression = spark.parseExpression(text)
  override def parseTableIdentifier(text: String): TableIdentifier = spark.parseTableIdentifier(text)
  override def parseFunctionIdentifier(text: String): FunctionIdentifier =
    spark.parseFunctionIdentifier(text)
  override def parseMultipartIdentifier(text: String): Seq[String] =
    spark.parseMultipartIdentifier(text)
  override def parseQuery(text: String): LogicalPlan = spark.parseQuery(text)
  override def parseRoutineParam(text: String): StructType = spark.parseRoutineParam(text)
  override def parseTableSchema(text: String): StructType = spark.parseTableSchema(text)
  override def parseDataType(text: String): DataType = spark.parseDataType(text)
}

/** Partition a table by other fields from now on. */
case class AlterPartitioning(name: Seq[String], add: Option[String], drop: Option[String])
    extends LeafRunnableCommand {

  override def run(session: SparkSession): Seq[Row] = {
    val (catalog, ident) = Names.resolved(session, name)
    catalog match {
      case ours: PhalanxCatalog => ours.alterPartitioning(ident, add, drop)
      case other => throw Bridge.refusal(
        s"${name.mkString(".")} is in the catalog ${other.name()}, and PARTITION FIELD is for tables of Phalanx")
    }
    Seq.empty
  }
}
