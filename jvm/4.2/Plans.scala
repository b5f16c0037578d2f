package org.apache.spark.sql.phalanx

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.functions.Reducer
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.types.{DataType, TimeType}

/** Takes filters, and then those on keys of partitions that Spark can only evaluate itself. */
trait IterativePushdown extends SupportsPushDownV2Filters

/** Whether a type is TIME. */
object TimeOfDay {
  def unapply(kind: DataType): Boolean = kind.isInstanceOf[TimeType]
}

/** Maps keys of one partitioning to those of a coarser one. */
trait SparkReducer[I, O] extends Reducer[I, O]

/** Queries that Spark has cached. */
object CachedQueries {
  /** Read what is cached of a table again. */
  def refresh(session: SparkSession, table: Seq[String]): Unit =
    session.sharedState.cacheManager.recacheTableOrView(session, table)
}

object Streams {
  /** The property of a job that says whether its stream is continuous. */
  val Continuous: String = StreamExecution.IS_CONTINUOUS_PROCESSING
}
