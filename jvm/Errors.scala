package org.apache.spark.sql.phalanx

import org.apache.spark.{QueryContext, SparkRuntimeException}
import org.apache.spark.sql.AnalysisException

/** An error of Phalanx with its condition and SQLSTATE, both in Python's words. */
case class Condition(name: String, state: String)

object Condition {
  val Invalid: Condition = Condition("PHALANX_INVALID_INPUT", "22023")
  val Environment: Condition = Condition("PHALANX_ENVIRONMENT", "58000")
}

/** What is refused with one sentence before anything runs. */
class PhalanxRefusal(sentence: String, condition: Condition) extends AnalysisException(
    sentence, None, None, None, Some(condition.name), Map.empty[String, String], Array.empty[QueryContext]) {
  override def getSqlState: String = condition.state
}

/** What fails a job with one sentence: Spark shows errors that have a condition as they are, and
 *  all others with the stacks of all processes. */
class PhalanxFailure(sentence: String, condition: Condition)
    extends SparkRuntimeException("_LEGACY_ERROR_USER_RAISED_EXCEPTION", Map("errorMessage" -> sentence)) {
  override def getMessage: String = sentence
  override def getCondition: String = condition.name
  override def getSqlState: String = condition.state
}
