package org.apache.spark.sql.phalanx

import scala.util.control.NonFatal

import org.apache.arrow.vector.ValueVector
import org.apache.arrow.vector.complex.StructVector

import org.apache.spark.{JobArtifactSet, TaskContext}
import org.apache.spark.api.python.{ChainedPythonFunctions, SimplePythonFunction}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, PhalanxRunner, PythonSQLMetrics}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarBatch}

/** What a task needs to run Python: taken on the driver, used on an executor. */
class Workers extends Serializable {
  private val base: SimplePythonFunction = Bridge.tasks
  private val conf: Map[String, String] = ArrowPythonRunner.getPythonRunnerConfMap(SQLConf.get)
  private val zone: String = SQLConf.get.sessionLocalTimeZone
  private val large: Boolean = SQLConf.get.arrowUseLargeVarTypes
  private val artifacts: Option[String] = JobArtifactSet.getCurrentJobArtifactState.map(_.uuid)

  /** Run a pickled callable over rows; the batches that it yields. */
  def run(command: Array[Byte], rows: Iterator[InternalRow], schema: StructType): Iterator[ColumnarBatch] = {
    val task = TaskContext.get()
    val functions = Seq((ChainedPythonFunctions(Seq(Bridge.function(base, command))), 0L))
    val wrapped = new StructType().add("struct", schema)
    val runner = new PhalanxRunner(functions, wrapped, zone, large, conf, metrics, artifacts)
    val batches = Bridge.inTask(base.pythonExec)(
      runner.compute(new RowBatches(rows, schema), task.partitionId(), task))
    new Iterator[ColumnarBatch] {
      override def hasNext: Boolean = Bridge.inTask(base.pythonExec)(batches.hasNext)
      override def next(): ColumnarBatch = Bridge.inTask(base.pythonExec)(batches.next())
    }
  }

  /** Run a callable that has something to say, and not rows: its messages. */
  def messages(command: Array[Byte], rows: Iterator[InternalRow], schema: StructType): Iterator[Array[Byte]] =
    run(command, rows, schema).map(_.column(0).getChild(0).getBinary(0))

  private def metrics: Map[String, SQLMetric] =
    (PythonSQLMetrics.pythonSizeMetricsDesc.keys ++ PythonSQLMetrics.pythonTimingMetricsDesc.keys ++
      PythonSQLMetrics.pythonOtherMetricsDesc.keys).map(_ -> new SQLMetric("sum", -1)).toMap
}

/** Reads the batches of a task, as they come from Python and without a copy. */
class PhalanxReaderFactory(schema: StructType, withoutColumns: Boolean, isLimited: Boolean = false) extends PartitionReaderFactory {
  private val workers = new Workers
  private val nothing = new StructType()

  override def supportColumnarReads(partition: InputPartition): Boolean = true

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    throw new UnsupportedOperationException("rows are read in batches")

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] =
    new PartitionReader[ColumnarBatch] {
      private val command = partition match {
        case PhalanxPartition(task) => task
        case PhalanxKeyedPartition(task, _) => task
      }
      private val batches = workers.run(command, Iterator.empty, nothing)
      private var current: ColumnarBatch = _
      private var rows, bytes = 0L

      // Before what Spark does at the end of a task, which is the other way round than it was asked for.
      if (isLimited) TaskContext.get().addTaskCompletionListener[Unit](PhalanxReaderFactory.takeRest(_, batches))

      override def next(): Boolean = batches.hasNext && {
        val batch = batches.next()
        val parent = batch.column(0).asInstanceOf[ArrowColumnVector]
        current = new ColumnarBatch(columns(parent), batch.numRows())
        rows += batch.numRows()
        bytes += parent.getValueVector.getBufferSize
        true
      }

      private def columns(parent: ArrowColumnVector): Array[ColumnVector] =
        if (withoutColumns) Array.empty
        else {
          val struct = parent.getValueVector.asInstanceOf[StructVector]
          schema.indices.map(at => BatchColumn.of(struct.getChildByOrdinal(at).asInstanceOf[ValueVector], schema(at).dataType))
            .toArray
        }

      override def get(): ColumnarBatch = current

      override def close(): Unit = ()

      override def currentMetricsValues(): Array[CustomTaskMetric] =
        Array(Metric("rowsRead", rows), Metric("bytesRead", bytes))
    }
}

private object PhalanxReaderFactory {
  /** For how long the rest of a task's batches is taken, in nanoseconds. */
  private val Patience = 200000000L

  /**
   * Take what a task has left that was told how many rows are wanted: Spark has these, so the end follows at once. Spark
   * ends a worker that still has something to say, and another one takes most of a second to load.
   */
  def takeRest(task: TaskContext, batches: Iterator[ColumnarBatch]): Unit =
    if (!task.isFailed() && !task.isInterrupted()) {
      val until = System.nanoTime() + Patience
      try while (System.nanoTime() < until && batches.hasNext) batches.next()
      catch { case NonFatal(_) => } // the query has its rows
    }
}
