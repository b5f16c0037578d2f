package org.apache.spark.sql.phalanx

import java.util
import java.util.concurrent.{ArrayBlockingQueue, TimeUnit}

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Alias, And, GenericInternalRow, MonotonicallyIncreasingID, NamedExpression, PredicateHelper, SubqueryExpression}
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan, Project}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.expressions.{Expressions, NamedReference}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.read.{Scan, ScanBuilder}
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.types.{ByteType, LongType, StringType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * DELETE, UPDATE and MERGE: Spark says which rows are deleted, by their ids, and which are new.
 *
 * An update is a delete and an insert, so a row whose partition changes moves.
 */
class PhalanxRowChange(table: PhalanxTable, info: RowLevelOperationInfo) extends RowLevelOperation
    with SupportsDelta {

  private var read: Seq[Predicate] = Seq.empty

  override def command(): RowLevelOperation.Command = info.command()

  override def rowId(): Array[NamedReference] =
    Array(Expressions.column("_leaf"), Expressions.column("_rowid"))

  override def representUpdateAsDeleteAndInsert(): Boolean = true

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    val marked = new util.HashMap(options.asCaseSensitiveMap())
    marked.put(MarkScans.Changed, "true")
    new PhalanxScanBuilder(table, new CaseInsensitiveStringMap(marked)) {
      override def build(): Scan = {
        read = pushedPredicates().toSeq
        super.build()
      }
    }
  }

  override def newWriteBuilder(info: LogicalWriteInfo): DeltaWriteBuilder = new DeltaWriteBuilder {
    override def build(): DeltaWrite = new DeltaWrite {
      override def description(): String = s"phalanx ${table.name()} (${command().name().toLowerCase})"
      override def toString: String = description()
      override def toBatch(): DeltaBatchWrite = new PhalanxDelta(table, command().name().toLowerCase, info, () => read)
    }
  }
}

/**
 * MERGE numbers the rows of the table, to see if one is matched twice, and Spark moves no filter below that: others
 * would get the number. They need only be different, so filters that follow from the rows that are merged, such as
 * `country = 'US'`, may choose what is read.
 */
object FiltersBelowRowNumbers extends Rule[LogicalPlan] with PredicateHelper {
  private val RowNumber = "__row_id"

  override def apply(plan: LogicalPlan): LogicalPlan = plan.transform {
    case Filter(condition, numbered @ Project(columns, table: DataSourceV2Relation)) if hasNumbers(columns, table) =>
      val (below, above) = splitConjunctivePredicates(condition).partition(part =>
        part.deterministic && part.references.subsetOf(table.outputSet) && !SubqueryExpression.hasSubquery(part))
      val read = below.reduceOption(And).fold[LogicalPlan](table)(Filter(_, table))
      above.reduceOption(And).foldLeft[LogicalPlan](numbered.copy(child = read))((child, left) => Filter(left, child))
  }

  private def hasNumbers(columns: Seq[NamedExpression], table: DataSourceV2Relation): Boolean =
    columns.exists { case Alias(_: MonotonicallyIncreasingID, RowNumber) => true; case _ => false } &&
      (table.table match {
        case RowLevelOperationTable(_: PhalanxTable, _) => true
        case _ => false
      })
}

/** Deleted and new rows, as one stream: what to do, the row's id, and its columns. */
class PhalanxDelta(table: PhalanxTable, command: String, info: LogicalWriteInfo, read: () => Seq[Predicate])
    extends DeltaBatchWrite {

  private val struct: StructType = info.schema().fields.foldLeft(new StructType()
    .add("_op", ByteType).add("_leaf", StringType).add("_rowid", LongType))(
    (columns, field) => columns.add(field.copy(nullable = true)))

  private lazy val plan = Bridge.call("start_changes",
    "table" -> table.handle, "command" -> command,
    "filters" -> read().map(Json.expression),
    "options" -> info.options().asCaseSensitiveMap(),
    Confs.now)

  override def createBatchWriterFactory(physical: PhysicalWriteInfo): DeltaWriterFactory =
    new PhalanxDeltaFactory(Json.bytes(plan.get("command")), struct)

  override def commit(messages: Array[WriterCommitMessage]): Unit = {
    val sent = PhalanxMessage.bytes(messages)
    Bridge.call("commit_changes", "job" -> plan.get("job"), "messages" -> sent)
  }

  override def abort(messages: Array[WriterCommitMessage]): Unit = ()
}

class PhalanxDeltaFactory(command: Array[Byte], struct: StructType) extends DeltaWriterFactory {
  private val workers = new Workers

  override def createWriter(partition: Int, task: Long): DeltaWriter[InternalRow] =
    new PhalanxDeltaWriter(workers, command, struct)
}

/** Spark hands rows over one by one, and Python takes them as a stream, through a queue. */
class PhalanxDeltaWriter(workers: Workers, command: Array[Byte], struct: StructType)
    extends DeltaWriter[InternalRow] {

  private val fixed = 3
  private val kinds = struct.fields.drop(fixed).map(_.dataType)
  private val queue = new ArrayBlockingQueue[ArrayBuffer[InternalRow]](8)
  private val end = ArrayBuffer.empty[InternalRow]
  private var waiting = new ArrayBuffer[InternalRow](1024)
  private var message: PhalanxMessage = _
  @volatile private var failure: Throwable = _
  private val context = TaskContext.get()
  private val thread = new Thread(() => feed(), "phalanx-changes")
  thread.setDaemon(true)
  thread.start()

  private def feed(): Unit = try {
    TaskContext.setTaskContext(context)
    val rows = Iterator.continually(queue.take()).takeWhile(_ ne end).flatten
    workers.messages(command, rows, struct).foreach(bytes => message = PhalanxMessage(bytes))
  } catch {
    case error: Throwable => failure = error
  } finally TaskContext.unset()

  private def hand(batch: ArrayBuffer[InternalRow]): Unit = {
    while (failure == null && !queue.offer(batch, 100, TimeUnit.MILLISECONDS)) {}
    if (failure != null) throw failure
  }

  private def push(row: InternalRow): Unit = {
    waiting += row
    if (waiting.length == 1024) {
      hand(waiting)
      waiting = new ArrayBuffer[InternalRow](1024)
    }
  }

  override def delete(metadata: InternalRow, id: InternalRow): Unit = {
    val cells = new Array[Any](struct.length)
    cells(0) = 0.toByte
    cells(1) = id.getUTF8String(0).copy()
    cells(2) = id.getLong(1)
    push(new GenericInternalRow(cells))
  }

  override def insert(row: InternalRow): Unit = {
    val cells = new Array[Any](struct.length)
    cells(0) = 1.toByte
    kinds.indices.foreach(at => cells(fixed + at) = InternalRow.copyValue(row.get(at, kinds(at))))
    push(new GenericInternalRow(cells))
  }

  override def update(metadata: InternalRow, id: InternalRow, row: InternalRow): Unit = {
    delete(metadata, id)
    insert(row)
  }

  override def commit(): WriterCommitMessage = {
    hand(waiting)
    hand(end)
    thread.join()
    if (failure != null) throw failure
    message
  }

  override def abort(): Unit = {
    failure = new InterruptedException("the task was aborted")
    thread.interrupt()
  }

  override def close(): Unit = ()
}
