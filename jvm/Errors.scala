package org.apache.spark.sql.phalanx

import org.apache.spark.{QueryContext, SparkRuntimeException}
import org.apache.spark.sql.AnalysisException

/** An error of Phalanx with its condition and SQLSTATE, both in Python's words. */
case class Condition(name: String, state: String)

object Condition {
  val Invalid: Condition = Condition("PHALANX_INVALID_INPUT", "22023")
  val NotFound: Condition = Condition("PHALANX_NOT_FOUND", "42P01")
  val Environment: Condition = Condition("PHALANX_ENVIRONMENT", "58000")
}

/** What is refused with one sentence before anything runs. */
class PhalanxRefusal(sentence: String, condition: Condition, reason: Option[Throwable] = None) extends AnalysisException(
    sentence, None, None, reason, Some(condition.name), Map.empty[String, String], Array.empty[QueryContext]) {
  override def getSqlState: String = condition.state
}

/**
 * What fails a job with one sentence: Spark shows errors that have a condition as they are, and all
 * others with the stacks of all processes.
 */
object PhalanxFailure {
  /** The only constructor that takes a message as it is. It must be Spark's class: a driver whose jar
   *  was added late cannot read errors of ours that come from tasks. */
  private lazy val constructor = classOf[SparkRuntimeException].getDeclaredConstructors.find { one =>
    one.getParameterTypes.take(3).sameElements(Array(classOf[String], classOf[Option[_]], classOf[Option[_]]))
  }

  def apply(sentence: String, condition: Condition): SparkRuntimeException = {
    val known = Seq[AnyRef](sentence, None, Some(condition.name), Map.empty[String, String],
      Array.empty[QueryContext], Some(condition.state))
    constructor.filter(_.getParameterCount <= known.size).map { made =>
      made.setAccessible(true)
      made.newInstance(known.take(made.getParameterCount): _*).asInstanceOf[SparkRuntimeException]
    }.getOrElse(
      new SparkRuntimeException("_LEGACY_ERROR_USER_RAISED_EXCEPTION", Map("errorMessage" -> sentence)))
  }
}
