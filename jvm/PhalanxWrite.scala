package org.apache.spark.sql.phalanx

import java.nio.file.Paths
import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.SparkContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.distributions.{Distribution, Distributions}
import org.apache.spark.sql.connector.expressions.{Expression, SortOrder}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomSumMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.{StreamingDataWriterFactory, StreamingWrite}
import org.apache.spark.sql.types.StructType

/** Append, or replace: everything, the partitions that are written to, or what matches a filter. */
class PhalanxWriteBuilder(table: PhalanxTable, info: LogicalWriteInfo) extends WriteBuilder
    with SupportsDynamicOverwrite with SupportsOverwriteV2 with SupportsTruncate {

  private var mode = "append"
  private var replaced: Seq[Predicate] = Seq.empty

  override def overwriteDynamicPartitions(): WriteBuilder = { mode = "partitions"; this }

  override def truncate(): WriteBuilder = { mode = "table"; this }

  override def canOverwrite(predicates: Array[Predicate]): Boolean =
    Bridge.call("can_delete", "table" -> table.handle,
      "filters" -> predicates.toSeq.map(Json.expression)).get("possible").asBoolean()

  override def overwrite(predicates: Array[Predicate]): WriteBuilder = {
    mode = "where"
    replaced = predicates.toSeq
    this
  }

  override def build(): Write = new PhalanxWrite(table, info, mode, replaced)
}

class PhalanxWrite(table: PhalanxTable, info: LogicalWriteInfo, mode: String, replaced: Seq[Predicate])
    extends Write with BatchWrite with StreamingWrite with RequiresDistributionAndOrdering {

  /** The stream that writes, by the id that its checkpoint keeps for it. */
  private var query: Option[String] = None

  /** Whether the write itself creates the table, at a path that has none. */
  private def isFirst: Boolean = table match {
    case staged: PhalanxStagedTable => staged.atOnce
    case _ => false
  }

  private lazy val plan: JsonNode = Bridge.call("start_write",
    "table" -> table.handle,
    "query" -> query,
    "functions" -> table.hasFunctions,
    "mode" -> mode,
    "is_first" -> isFirst,
    "filters" -> replaced.map(Json.expression),
    "schema" -> info.schema().json,
    "options" -> info.options().asCaseSensitiveMap(),
    Confs.now)

  private var rows, leaves = 0L

  override def description(): String = s"phalanx ${table.name()} ($mode)"
  override def toString: String = description()

  override def toBatch: BatchWrite = this

  override def toStreaming: StreamingWrite = {
    query = Some(info.queryId())
    this
  }

  override def useCommitCoordinator(): Boolean = true

  // Rows of one partition come together, but a large partition may be written by several tasks.

  override def requiredDistribution(): Distribution = {
    val fields = Json.each(plan.get("clustering")).map(Json.transform(_: JsonNode): Expression)
    if (fields.isEmpty) Distributions.unspecified() else Distributions.clustered(fields.toArray)
  }

  override def distributionStrictlyRequired(): Boolean = false

  override def advisoryPartitionSizeInBytes(): Long =
    if (plan.get("clustering").isEmpty) 0 else plan.get("task_bytes").asLong()

  override def requiredOrdering(): Array[SortOrder] = Array.empty

  override def createBatchWriterFactory(physical: PhysicalWriteInfo): DataWriterFactory =
    new PhalanxWriterFactory(Json.bytes(plan.get("command")), Json.struct(plan.get("schema")))

  override def createStreamingWriterFactory(physical: PhysicalWriteInfo): StreamingDataWriterFactory = {
    val context = SparkSession.active.sparkContext
    if (context.getLocalProperty(Streams.Continuous) == "true") {
      throw Bridge.refusal(s"${table.name()} takes rows in micro-batches: use another trigger than a continuous one")
    }
    new PhalanxWriterFactory(Json.bytes(plan.get("command")), Json.struct(plan.get("schema")))
  }

  override def commit(epoch: Long, messages: Array[WriterCommitMessage]): Unit =
    report(Bridge.call("commit_write", "job" -> plan.get("job"), "epoch" -> epoch,
      "messages" -> PhalanxMessage.bytes(messages)))

  override def commit(messages: Array[WriterCommitMessage]): Unit = {
    val written = PhalanxMessage.bytes(messages)
    table match {
      case staged: PhalanxStagedTable => staged.hold(written)
      case _ => report(Bridge.call("commit_write", "job" -> plan.get("job"), "messages" -> written))
    }
  }

  private def report(done: JsonNode): Unit = {
    rows = done.get("rows").asLong()
    leaves = done.get("leaves").asLong()
  }

  /** What has been written stays invisible; vacuum removes it. */
  override def abort(messages: Array[WriterCommitMessage]): Unit = ()

  override def abort(epoch: Long, messages: Array[WriterCommitMessage]): Unit = ()

  override def supportedCustomMetrics(): Array[CustomMetric] =
    Metrics.seen(new RowsWritten, new LeavesWritten)

  override def reportDriverMetrics(): Array[CustomTaskMetric] =
    Metrics.reported(Metric("rowsWritten", rows), Metric("leavesWritten", leaves))
}

class RowsWritten extends CustomSumMetric {
  override def name(): String = "rowsWritten"
  override def description(): String = "rows written"
}
class LeavesWritten extends CustomSumMetric {
  override def name(): String = "leavesWritten"
  override def description(): String = "partitions written"
}

/** What a task has written, for Python to commit. Only the attempt that succeeded sends one. */
case class PhalanxMessage(bytes: Array[Byte]) extends WriterCommitMessage

object PhalanxMessage {
  /** What tasks have sent. A task that has sent nothing has lost its rows. A jar that was added late may have
   *  loaded the class of a message twice, so messages are told by the name of their class. */
  def bytes(messages: Array[WriterCommitMessage]): Seq[Array[Byte]] =
    messages.toSeq.map {
      case message: Product if message.productPrefix == "PhalanxMessage" =>
        message.productElement(0).asInstanceOf[Array[Byte]]
      case other => throw new IllegalStateException(s"a task sent no message: $other")
    }
}

/** Spark's listeners make metrics by the names of their classes, and do not see a jar that was
 *  added to a running session: there are none then. */
object Metrics {
  def seen(metrics: CustomMetric*): Array[CustomMetric] = if (early) metrics.toArray else Array.empty

  /** Some Sparks fail, after the commit, over a value of a metric that they have not been told of. */
  def reported(values: CustomTaskMetric*): Array[CustomTaskMetric] =
    if (early) values.toArray else Array.empty

  private def early: Boolean = {
    val jar = Paths.get(getClass.getProtectionDomain.getCodeSource.getLocation.toURI).getFileName
    (getClass.getClassLoader eq classOf[SparkContext].getClassLoader) ||
      SparkSession.getActiveSession.exists(_.sparkContext.conf.get("spark.jars", "").contains(jar.toString))
  }

  /** What a plan of Python says of leaves. */
  def ofLeaves(plan: JsonNode): Array[CustomTaskMetric] = reported(
    Metric("leavesPlanned", plan.get("selected").asLong()),
    Metric("leavesPruned", plan.get("total").asLong() - plan.get("selected").asLong()))
}

class PhalanxWriterFactory(command: Array[Byte], schema: StructType) extends DataWriterFactory
    with StreamingDataWriterFactory {
  private val workers = new Workers

  override def createWriter(partition: Int, task: Long, epoch: Long): DataWriter[InternalRow] =
    createWriter(partition, task)

  override def createWriter(partition: Int, task: Long): DataWriter[InternalRow] =
    new DataWriter[InternalRow] {
      private var message: Option[PhalanxMessage] = None

      override def writeAll(rows: util.Iterator[InternalRow]): Unit =
        workers.messages(command, rows.asScala, schema).foreach { bytes =>
          message = Some(PhalanxMessage(bytes))
        }

      override def write(row: InternalRow): Unit =
        throw new UnsupportedOperationException("rows are written all at once")

      override def commit(): WriterCommitMessage = message.orNull

      override def abort(): Unit = ()

      override def close(): Unit = ()
    }
}
