package org.apache.spark.sql.phalanx

import org.apache.spark.sql.catalyst.parser.{ParameterContext, ParserInterface}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** What a parser of this Spark has besides the methods that they all have. */
abstract class SparkParser(spark: ParserInterface) extends ParserInterface {
  /** The plan of a statement, where `theirs` is what parsers behind this one make of it. */
  protected def parsed(text: String)(theirs: => LogicalPlan): LogicalPlan

  override def parsePlanWithParameters(text: String, context: ParameterContext): LogicalPlan =
    parsed(text)(spark.parsePlanWithParameters(text, context))
}
