package org.apache.spark.sql.phalanx

import scala.util.Try

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.parser.ParserInterface
import org.apache.spark.sql.catalyst.plans.logical.{DescribeColumn, LogicalPlan}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.Identifier

/**
 * Statements of other formats about a table of ours, such as `VACUUM t`: no parser in the session knows them,
 * so the error is replaced by one that says what to write. Which they are, and what to write, Python says.
 */
class ForeignStatements(spark: ParserInterface) {
  private val part = "(?:`(?:[^`]|``)+`|[\\w$-]+)"
  private val Named = ("(?is)(?:\\s++|--[^\\n]*+\\n|/\\*.*?\\*/)*+(?:OPTIMIZE|VACUUM|RESTORE|REORG|ALTER|DESC(?:RIBE)?" +
    s"\\s+(HISTORY|DETAIL))\\s+(?:TABLE\\s+)?($part(?:\\.$part)*)(.*)").r

  def explained(text: String)(parse: => LogicalPlan): LogicalPlan = {
    val plan = try parse catch {
      case ours: PhalanxRefusal => throw ours
      case error: AnalysisException =>
        throw advice(text).map(new PhalanxRefusal(_, Condition.Invalid, Some(error))).getOrElse(error)
    }
    plan match {
      // To Spark, DESCRIBE HISTORY t is the column t of a table of that name.
      case _: DescribeColumn => for (sentence <- advice(text)) throw Bridge.refusal(sentence)
      case _ =>
    }
    plan
  }

  /** What to write instead of a statement about a table of ours. Where nobody can say, Spark's own error stays. */
  private def advice(text: String): Option[String] = text match {
    case Named(word, table, _) => Try {
      val session = SparkSession.active
      Names.resolved(session, spark.parseMultipartIdentifier(table)) match {
        case (ours: PhalanxCatalog, ident: Identifier)
            if word == null || (ours.tableExists(ident) && !session.catalog.tableExists(word)) =>
          ours.instead(ident, text)
        case _ => None
      }
    }.toOption.flatten
    case _ => None
  }
}
