package org.apache.spark.sql.phalanx

/**
 * Whether Spark is about to write to a table that it loads by its path.
 *
 * Before 4.3 it does not say so: only its own frames on the stack tell.
 */
object Saving {
  private val writer = "org.apache.spark.sql.classic.DataFrameWriter"

  def now: Boolean = StackWalker.getInstance().walk[Boolean](_.anyMatch(_.getClassName == writer))
}
