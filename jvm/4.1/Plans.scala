package org.apache.spark.sql.phalanx

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.functions.Reducer
import org.apache.spark.sql.connector.expressions.Expression
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.types.{DataType, TimeType}

/** A filter that Spark evaluates on the keys of partitions: this Spark makes none. */
abstract class PartitionPredicate extends Predicate("PARTITION_PREDICATE", Array.empty[Expression]) {
  def eval(key: InternalRow): Boolean
}

/** Takes filters once: this Spark does not come again with those on keys of partitions. */
trait IterativePushdown extends SupportsPushDownV2Filters {
  def supportsIterativePushdown(): Boolean
}

/** Whether a type is TIME. */
object TimeOfDay {
  def unapply(kind: DataType): Boolean = kind.isInstanceOf[TimeType]
}

/** Maps keys of one partitioning to those of a coarser one, both of the same type. */
trait SparkReducer[I, O] extends Reducer[I, O] {
  def resultType(): DataType
  def displayName(): String
}

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
