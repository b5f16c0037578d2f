package org.apache.spark.sql.phalanx

import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{SparkSession, classic}
import org.apache.spark.sql.catalyst.analysis.{NamedRelation, UnresolvedRelation}
import org.apache.spark.sql.catalyst.expressions.{Expression, Literal}
import org.apache.spark.sql.catalyst.plans.logical.{InsertIntoStatement, LogicalPlan, OverwriteByExpression, OverwritePartitionsDynamic}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.catalog.Table
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * Options that say what a write in mode `overwrite` replaces, as the plan that replaces just that. An option
 * that the plan follows is taken off the write; Python refuses those that are left.
 */
class OverwriteOptions(session: SparkSession) extends Rule[LogicalPlan] {
  import OverwriteOptions._

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case write: OverwriteByExpression if write.deleteExpr == Literal.TrueLiteral =>
      val bare = write.copy(table = without(write.table), writeOptions = without(write.writeOptions))
      asked(write.table, write.writeOptions) match {
        case Some(Where(text)) => bare.copy(deleteExpr = condition(text))
        case Some(Partitions) => Overwrites.partitions(bare)
        case Some(Everything) => bare
        case None => write
      }
    // By name it is `overwritePartitions()`, and not the mode of the session: no option makes it replace more.
    case write: OverwritePartitionsDynamic =>
      val bare = write.copy(table = without(write.table), writeOptions = without(write.writeOptions))
      asked(write.table, write.writeOptions) match {
        case Some(Partitions) => bare
        case Some(Where(text)) if !write.isByName => Overwrites.matching(bare, condition(text))
        case Some(Everything) if !write.isByName => Overwrites.matching(bare, Literal.TrueLiteral)
        case _ => write
      }
  }

  private def condition(text: String): Expression =
    session.asInstanceOf[classic.SparkSession].sessionState.sqlParser.parseExpression(text)

  /** What the options of a write to a table of ours say that it replaces, if they say one thing. */
  private def asked(table: NamedRelation, options: Map[String, String]): Option[Replaced] = table match {
    case relation: DataSourceV2Relation if isWritten(relation.table) =>
      val all = relation.options.asCaseSensitiveMap().asScala.toSeq ++ options
      def values(names: Set[String]) = all.collect { case (name, value) if names(lower(name)) => value }.distinct
      (values(conditions), values(modes).map(lower).distinct) match {
        case (Seq(condition), Seq()) => Some(Where(condition))
        case (Seq(), Seq("dynamic")) => Some(Partitions)
        case (Seq(), Seq("static")) => Some(Everything)
        case _ => None
      }
    case _ => None
  }

  /** Whether a table is one of ours that is there already. */
  private def isWritten(table: Table): Boolean =
    table.isInstanceOf[PhalanxTable] && !table.isInstanceOf[PhalanxStagedTable]

  private def without(options: Map[String, String]): Map[String, String] =
    options -- among(options.keys)

  private def without(table: NamedRelation): NamedRelation = table match {
    case relation: DataSourceV2Relation =>
      val rest = without(relation.options.asCaseSensitiveMap().asScala.toMap)
      relation.copy(options = new CaseInsensitiveStringMap(rest.asJava))
    case other => other
  }
}

object OverwriteOptions {
  private val spellings = Seq("replaceWhere", "partitionOverwriteMode", "overwrite-mode")
  private val conditions = spellings.take(1).map(lower).toSet
  private val modes = spellings.drop(1).map(lower).toSet
  private def lower(name: String) = name.toLowerCase(Locale.ROOT)

  /** The options among some that say what is replaced. */
  def among(names: Iterable[String]): Seq[String] = names.filter(name => (conditions ++ modes)(lower(name))).toSeq

  /** An option as it is spelled in the docs: some Sparks keep the names of options in lower case. */
  def spelled(option: String): String = spellings.find(_.equalsIgnoreCase(option)).getOrElse(option)
}

/**
 * Refuses an INSERT OVERWRITE that says in two ways what it replaces. Once Spark has resolved the statement, the
 * values of its PARTITION clause are columns like others.
 */
class CheckOverwriteOptions(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = {
    plan.foreach {
      case insert: InsertIntoStatement if insert.overwrite && insert.partitionSpec.values.exists(_.isDefined) =>
        insert.table match {
          case table: UnresolvedRelation if isOurs(table.multipartIdentifier) =>
            val names = table.options.asCaseSensitiveMap().keySet().asScala
            for (option <- OverwriteOptions.among(names).headOption) throw Bridge.refusal(
              "PARTITION already says what the INSERT OVERWRITE replaces: leave the option " +
                s"${OverwriteOptions.spelled(option)} out")
          case _ =>
        }
      case _ =>
    }
    plan
  }

  private def isOurs(name: Seq[String]) = Names.resolved(session, name)._1.isInstanceOf[PhalanxCatalog]
}

/** What a write replaces. */
private sealed trait Replaced
private case class Where(condition: String) extends Replaced
private case object Partitions extends Replaced
private case object Everything extends Replaced
