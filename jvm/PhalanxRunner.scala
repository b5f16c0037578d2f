package org.apache.spark.sql.execution.python

import java.net.StandardSocketOptions

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonWorker}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.types.StructType

/**
 * Spark's own runner of Python functions over Arrow batches, without waiting on the socket: a
 * small write that waits for the reply to the one before it costs 40 ms in each task.
 *
 * It lives here because what it extends is visible here only.
 */
class PhalanxRunner(
    functions: Seq[(ChainedPythonFunctions, Long)],
    schema: StructType,
    zone: String,
    largeTypes: Boolean,
    conf: Map[String, String],
    metrics: Map[String, SQLMetric],
    artifacts: Option[String])
  extends SparkRunner(functions, schema, zone, largeTypes, conf, metrics, artifacts) {

  override protected def newWriter(env: SparkEnv, worker: PythonWorker,
      input: Iterator[Iterator[InternalRow]], partition: Int, context: TaskContext): Writer = {
    try worker.channel.setOption[java.lang.Boolean](StandardSocketOptions.TCP_NODELAY, true)
    catch { case _: UnsupportedOperationException => } // not a TCP socket: nothing to wait for
    super.newWriter(env, worker, input, partition, context)
  }
}
