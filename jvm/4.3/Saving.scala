package org.apache.spark.sql.phalanx

/** Whether Spark is about to write to a table without saying so. It does say so. */
object Saving {
  def now: Boolean = false
}
