package org.apache.spark.sql.phalanx

import org.apache.spark.sql.catalyst.parser.{ParameterContext, ParserInterface}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** What a parser of this Spark has besides the methods that they all have. */
abstract class SparkParser(spark: ParserInterface) extends ParserInterface {
  /** The plan of a statement that is ours. */
  protected def ours(text: String): Option[LogicalPlan]

  override def parsePlanWithParameters(text: String, context: ParameterContext): LogicalPlan =
    ours(text).getOrElse(Providers.checked(spark.parsePlanWithParameters(text, context)))
}
