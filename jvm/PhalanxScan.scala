package org.apache.spark.sql.phalanx

import java.util
import java.util.{Optional, OptionalLong}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.TypeUtils
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.expressions.{Expression, Literal, LiteralValue, NamedReference, Transform}
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation
import org.apache.spark.sql.connector.expressions.filter._
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomSumMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics
import org.apache.spark.sql.connector.read.partitioning.{KeyGroupedPartitioning, Partitioning, UnknownPartitioning}
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Collects what Spark pushes down, and asks Python what can be done with it. */
class PhalanxScanBuilder(table: PhalanxTable, options: CaseInsensitiveStringMap) extends ScanBuilder
    with IterativePushdown with SupportsPushDownRequiredColumns with SupportsPushDownLimit
    with SupportsPushDownAggregates {

  private var required: StructType = table.schema()
  private var pushed: Seq[Predicate] = Seq.empty
  private var byKey: Seq[PartitionPredicate] = Seq.empty
  private var limit: Option[Int] = None
  private var answers: Map[String, JsonNode] = Map.empty
  private var answer: Option[JsonNode] = None
  private var refused = false

  override def supportsIterativePushdown(): Boolean = table.described.get("one_spec").asBoolean()

  override def pushPredicates(predicates: Array[Predicate]): Array[Predicate] = {
    val (keyed, plain) = predicates.toSeq.partition(_.isInstanceOf[PartitionPredicate])
    byKey ++= keyed.map(_.asInstanceOf[PartitionPredicate])
    if (plain.isEmpty) return Array.empty
    val answer = table.ask("push_filters",
      "filters" -> plain.map(Json.expression),
      "alone" -> options.containsKey(MarkScans.Alone)).get("filters")
    val judged = plain.zip(Json.strings(answer))
    pushed ++= judged.collect { case (predicate, "helps" | "decides") => predicate }
    judged.collect { case (predicate, "helps" | "useless") => predicate }.toArray
  }

  override def pushedPredicates(): Array[Predicate] = (pushed ++ byKey).toArray

  override def pruneColumns(schema: StructType): Unit = required = schema

  override def pushLimit(rows: Int): Boolean = { limit = Some(rows); true }

  override def supportCompletePushDown(aggregation: Aggregation): Boolean =
    asked(aggregation).path("complete").asBoolean()

  override def pushAggregation(aggregation: Aggregation): Boolean = {
    answer = Some(asked(aggregation)).filter(_.has("rows"))
    answer.isDefined
  }

  /** The reply to an aggregation: its rows, where the manifest has them. Asked once. */
  private def asked(aggregation: Aggregation): JsonNode = {
    val functions = aggregation.aggregateExpressions().toSeq.map(Json.aggregate)
    val groups = aggregation.groupByExpressions().toSeq.map(Json.expression)
    val key = Json.node(Seq(functions, groups)).toString
    val foreign = functions.exists(_.get("name").asText() == Json.Unknown)
    val reply = answers.getOrElse(key,
      if (byKey.nonEmpty || foreign || refused) Json.node(Map.empty)
      else table.ask("aggregate", "functions" -> functions, "filters" -> pushed.map(Json.expression), "groups" -> groups,
        Cluster.now))
    answers += key -> reply
    // An average that a sum and a count do not give exactly, although Spark asks for these next.
    refused ||= reply.path("refused").asBoolean()
    reply
  }

  override def build(): Scan = answer match {
    case Some(reply) =>
      ReadOptions.check(options)
      if (reply.get("complete").asBoolean()) new PhalanxAnswer(table, reply) else new PhalanxPartialAnswer(table, reply)
    case None => new PhalanxScan(table, required, pushed, byKey, limit, options)
  }
}

/** The options of a batch read. Those of a stream go to Python when it starts. */
private object ReadOptions {
  /** Let Python refuse those that it must not ignore. Most reads have none, and ask nothing. */
  def check(options: CaseInsensitiveStringMap): Unit = {
    val given = options.asCaseSensitiveMap().asScala.keys.filterNot(name => name == "path" || name.startsWith("phalanx."))
    if (given.nonEmpty) Bridge.call("check_read", "options" -> given)
  }
}

/** How large an answer may be, at most: Spark takes what it knows nothing of for larger than everything. */
private class AnswerSize(reply: JsonNode, struct: StructType) extends Statistics {
  private val most = Option(reply.get("most")).filterNot(_.isNull).map(_.asLong())
  override def numRows(): OptionalLong = OptionalLong.empty()
  override def sizeInBytes(): OptionalLong =
    most.fold(OptionalLong.empty())(rows => OptionalLong.of(math.max(1, rows) * (8 + struct.defaultSize)))
}

/** Rows that the manifest has answered: no leaf is opened for them. */
class PhalanxAnswer(text: String, struct: StructType, reply: JsonNode) extends LocalScan with SupportsReportStatistics {
  override def estimateStatistics(): Statistics = new AnswerSize(reply, struct)
  def this(table: PhalanxTable, reply: JsonNode) = this(
    s"phalanx ${table.name()} ${reply.get("summary").asText()}", Json.struct(reply.get("schema")), reply)

  override def readSchema(): StructType = struct
  override def rows(): Array[InternalRow] =
    Json.each(reply.get("rows")).map(Json.row(_, struct.map(_.dataType))).toArray
  override def description(): String = text
}

/** Rows of groups: tasks read the leaves for which the manifest has no answer, and aggregate their rows. */
class PhalanxPartialAnswer(table: PhalanxTable, reply: JsonNode) extends Scan with Batch with SupportsReportStatistics {
  private val struct = Json.struct(reply.get("schema"))
  override def estimateStatistics(): Statistics = new AnswerSize(reply, struct)

  /** Positions of the columns that are constant within a task; empty if tasks are not split by key. */
  val keys: Seq[Int] = Json.each(reply.get("keys")).map(_.asInt())
  private val kinds = keys.map(struct(_).dataType)

  override def readSchema(): StructType = struct
  override def toBatch: Batch = this
  override def planInputPartitions(): Array[InputPartition] = Json.each(reply.get("tasks")).map { task =>
    val command = Json.bytes(task.get("command"))
    if (keys.isEmpty) PhalanxPartition(command): InputPartition
    else PhalanxKeyedPartition(command, Json.row(task.get("key"), kinds))
  }.toArray
  override def createReaderFactory(): PartitionReaderFactory = new PhalanxReaderFactory(struct, false)
  override def columnarSupportMode(): Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.SUPPORTED
  override def description(): String = s"phalanx ${table.name()} ${reply.get("summary").asText()}"
  override def supportedCustomMetrics(): Array[CustomMetric] =
    Metrics.seen(new LeavesPlanned, new LeavesPruned, new RowsRead, new BytesRead)
  override def reportDriverMetrics(): Array[CustomTaskMetric] = Metrics.ofLeaves(reply)
}

/** What Spark has to work with. */
private object Cluster {
  def now: (String, Any) = "cluster" -> Map(
    "cores" -> SparkSession.active.sparkContext.defaultParallelism,
    "task_bytes" -> SQLConf.get.filesMaxPartitionBytes)
}

/** What the session says about Phalanx. */
private object Confs {
  def now: (String, Any) =
    "conf" -> SQLConf.get.getAllConfs.filter(_._1.startsWith("spark.sql.phalanx."))
}

/** A task: a pickled Python callable that reads some leaves, or parts of one. */
case class PhalanxPartition(task: Array[Byte]) extends InputPartition

/** A task whose rows all have one partition key. */
case class PhalanxKeyedPartition(task: Array[Byte], partitionKey: InternalRow)
    extends InputPartition with HasPartitionKey

class PhalanxScan(
    table: PhalanxTable,
    struct: StructType,
    pushed: Seq[Predicate],
    byKey: Seq[PartitionPredicate],
    limit: Option[Int],
    options: CaseInsensitiveStringMap)
  extends Scan with Batch with SupportsReportPartitioning with SupportsReportStatistics
  with SupportsRuntimeV2Filtering with Logging {

  private var runtime: Seq[Predicate] = Seq.empty
  private var planned: Option[JsonNode] = None
  private var tasks: Option[Seq[InputPartition]] = None
  private var packed = false
  private var packedFor: Option[String] = None
  private var chosen: Option[Seq[JsonNode]] = None

  // Spark wants a column even where a query needs none: Python counts rows in a dummy one.
  private val outgoing = if (struct.isEmpty) new StructType().add("_", ByteType) else struct

  override def readSchema(): StructType = struct

  private lazy val checked: Unit = ReadOptions.check(options)

  override def toBatch: Batch = { checked; this }

  private var stream: Option[PhalanxStream] = None

  override def toMicroBatchStream(checkpoint: String): MicroBatchStream = {
    stream = Some(new PhalanxStream(table, struct, outgoing, options))
    stream.get
  }

  private lazy val kept = if (byKey.isEmpty) None else Some(matching)

  /** What is asked of Python: the same for the plan and for the tasks. */
  private def arguments: Seq[(String, Any)] = Seq(
    "scan" -> Map(
      "schema" -> outgoing.json,
      "without_columns" -> struct.isEmpty,
      "filters" -> pushed.map(Json.expression),
      "runtime" -> runtime.map(Json.expression),
      "leaves" -> kept,
      "limit" -> limit,
      "clusters" -> !options.containsKey(MarkScans.Unclustered),
      "keys" -> chosen,
      "chooses_keys" -> options.containsKey(MarkScans.Planned),
      "filters_rows" -> filtersRows,
      "joins" -> (options.containsKey(MarkScans.Planned) && !options.containsKey(MarkScans.Alone)),
      Cluster.now,
      Confs.now))

  private def plan: JsonNode = synchronized {
    if (planned.isEmpty) planned = Some(table.ask("plan_scan", arguments: _*))
    planned.get
  }

  /**
   * The same scan without partition keys: small leaves share tasks. Spark plans a query again while it runs, and
   * may go on with a plan in which this one has keys.
   */
  def packing(why: Option[String]): PhalanxScan = {
    val scan = copied
    scan.packed = true
    scan.packedFor = why
    // Scans that are packed for different reasons are equal, and Spark reads them once.
    scan.chosen = None
    scan
  }

  /** The same scan with only some of the keys, or coarser ones. Spark may plan this one again, with the
   *  keys that it had. */
  def choosing(keys: Seq[JsonNode]): PhalanxScan = {
    val scan = copied
    if (keys != partitioning) {
      scan.chosen = Some(keys)
      scan.planned = None
    }
    scan
  }

  /** The same scan, packed if a task for each key would cost more than to shuffle the rows. */
  def settled: PhalanxScan = {
    val tooMany = plan.get("too_many").asText()
    if (tooMany.isEmpty) this else packing(Some(tooMany))
  }

  def isPacked: Boolean = packed

  /** The share of the rows that the largest key has. */
  def largestShare: Double = if (rows == 0) 1.0 else plan.get("largest").asDouble() / rows

  def keyCount: Int = plan.get("keys").asInt()

  /** About how many rows its filters leave; none if that is unknown. */
  def rowsLeft: Option[Long] = Option(plan.get("left")).filterNot(_.isNull).map(_.asLong())

  private def rows: Long = plan.get("rows").asLong()

  /** The keys, each a transform as Python names it. */
  def partitioning: Seq[JsonNode] = Json.each(plan.get("partitioning"))

  private def copied: PhalanxScan = {
    val scan = new PhalanxScan(table, struct, pushed, byKey, limit, options)
    scan.runtime = runtime
    scan.planned = planned
    scan.packed = packed
    scan.packedFor = packedFor
    scan.chosen = chosen
    scan
  }

  /** Why its rows are shuffled for a join by its partition columns; set when all is planned. */
  @volatile var shuffled: Option[String] = None

  /** Why it has no partition keys: in Python's words, or because they were given up. */
  def unkeyed: Option[String] =
    packedFor.orElse(Option(plan.get("unkeyed").asText()).filter(_.nonEmpty))

  /** The keys that it has, in words. */
  def keys: String = reported.map(_.describe()).mkString(", ")

  /** Whether a column is the source of a partition field. */
  def isPartitionedBy(column: String): Boolean =
    Json.each(table.described.get("runtime_columns")).exists(path => Json.strings(path) == Seq(column))

  /** Whether partitions keep the order of a column's values, so that a range of them prunes. */
  def keepsOrderOf(column: String): Boolean = ordered.exists(_.head == column)

  private lazy val ordered = Json.each(table.described.get("ordered_columns")).map(Json.strings).toSet

  /** Whether a join should leave out its rows by the values of a column: to send all of them takes longer than to
   *  find out which of them are joined. */
  def filtersRowsBy(column: String): Boolean = filtersRows && limit.isEmpty && byKey.isEmpty &&
    pushed.forall(_.name() == "IS_NOT_NULL") && rows >= PhalanxScan.ManyRows &&
    struct.exists(field => field.name == column && RuntimeFilters.isOrdered(field.dataType))

  /** Whether its rows are read to be changed, and so few that it takes longer to find out which leaves have some. */
  def isSmallChange: Boolean = options.containsKey(MarkScans.Changed) && {
    val size = estimateStatistics().sizeInBytes()
    size.isPresent && size.getAsLong <= plan.get("changed_bytes").asLong()
  }

  private def filtersRows: Boolean = !options.containsKey(MarkScans.Changed) && !isRepeated

  /** Whether a query reads it several times, each time joined with other rows: what was learned from those of one time
   *  must not filter the next. */
  private def isRepeated: Boolean = options.containsKey(MarkScans.Repeated)

  def label: String = table.name()

  /** The leaves whose keys satisfy what Spark can only evaluate itself. */
  private def matching: Seq[Int] = {
    val keys = table.ask("partition_keys", "filters" -> pushed.map(Json.expression))
    val kinds = Json.strings(keys.get("types")).map(DataType.fromJson)
    Json.each(keys.get("keys")).filter { key =>
      val row = Json.row(key.get("key"), kinds)
      byKey.forall(_.eval(row))
    }.map(_.get("leaf").asInt())
  }

  private def reported: Seq[Transform] = partitioning.map(Json.transform(_: JsonNode))

  override def planInputPartitions(): Array[InputPartition] = synchronized {
    if (tasks.isEmpty) {
      logInfo(s"${table.name()}: ${plan.get("summary").asText()}")
      val kinds = Json.strings(plan.get("key_types")).map(DataType.fromJson)
      // Those of a small scan have come with the plan; where packing changes nothing, only once.
      val ready = plan.get("tasks")
      val listed = if (packed && ready.has("packed")) ready.get("packed")
        else if (ready.has("keyed")) ready.get("keyed")
        else table.ask("scan_tasks", arguments :+ ("packed" -> packed): _*).get("tasks")
      tasks = Some(Json.each(listed).map { task =>
        val command = Json.bytes(task.get("command"))
        if (packed || !task.has("key")) PhalanxPartition(command): InputPartition
        else PhalanxKeyedPartition(command, Json.row(task.get("key"), kinds))
      })
    }
    tasks.get.toArray
  }

  override def outputPartitioning(): Partitioning = {
    if (packed || reported.isEmpty) new UnknownPartitioning(plan.get("selected").asInt())
    else new KeyGroupedPartitioning(reported.toArray[Expression], plan.get("keys").asInt())
  }

  override def estimateStatistics(): Statistics = new Statistics {
    private def known(name: String) = Option(plan.get(name)).filterNot(_.isNull || stream.isDefined)
      .fold(OptionalLong.empty())(value => OptionalLong.of(value.asLong()))
    override def numRows(): OptionalLong = known("rows")

    /**
     * What the rows that filters leave take in memory, about. Files are compressed, and Spark broadcasts by this size.
     * The number of rows is that before the filters: Spark's cost-based optimizer judges these itself.
     */
    override def sizeInBytes(): OptionalLong = {
      val stored = known("bytes")
      if (stored.isEmpty || numRows().isEmpty) stored
      else {
        val all = math.max(stored.getAsLong, numRows().getAsLong * (8 + struct.defaultSize))
        OptionalLong.of((all * plan.get("share").asDouble()).toLong)
      }
    }

    override def columnStats(): util.Map[NamedReference, ColumnStatistics] =
      if (SQLConf.get.cboEnabled && stream.isEmpty) columnStatistics
      else util.Collections.emptyMap()
  }

  /** Bounds of a column of whole numbers, dates or timestamps; none if they are unknown. Asks for statistics. */
  def boundsOf(column: String): Option[(Long, Long)] =
    Option(columnStatistics.get(Json.column(Seq(column)))).filter(_.min().isPresent).map { known =>
      (known.min().get, known.max().get) }.collect {
        case (low: Number, high: Number) if isWhole(column) => (low.longValue, high.longValue) }

  private def isWhole(column: String): Boolean = struct(column).dataType match {
    case _: IntegralType | DateType | TimestampType | TimestampNTZType => true
    case _ => false
  }

  /** What is asked for rarely: statistics of all leaves are read. */
  private lazy val columnStatistics: util.Map[NamedReference, ColumnStatistics] = {
    val known = table.ask("column_statistics", arguments: _*).get("columns")
    struct.fields.filter(field => known.has(field.name)).map { field =>
      val column = known.get(field.name)
      val nulls = column.get("nulls")
      Json.column(Seq(field.name)) -> new ColumnStatistics {
        private def bound(name: String): Optional[Object] =
          Optional.ofNullable(Json.internal(column.get(name), field.dataType).asInstanceOf[Object])
        override def min(): Optional[Object] = bound("min")
        override def max(): Optional[Object] = bound("max")
        override def nullCount(): OptionalLong =
          if (nulls.isNull) OptionalLong.empty() else OptionalLong.of(nulls.asLong())
      }
    }.toMap.asJava
  }

  // Filters that are known only when the other side of a join has run

  override def filterAttributes(): Array[NamedReference] = if (isRepeated) Array.empty else
    Json.each(table.described.get("runtime_columns")).map(Json.strings)
      .filter(column => struct.findNestedField(column).isDefined)
      .map(Json.column).toArray

  override def filter(predicates: Array[Predicate]): Unit = synchronized {
    val useful = predicates.flatMap(RuntimeFilters.bounded(_, ordered))
    if (useful.nonEmpty && !isRepeated) {
      runtime ++= useful
      planned = None
      tasks = None
    }
  }

  override def createReaderFactory(): PartitionReaderFactory =
    new PhalanxReaderFactory(outgoing, struct.isEmpty, limit.isDefined)

  override def columnarSupportMode(): Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.SUPPORTED

  // What a person sees

  override def description(): String = {
    val what = if (stream.isDefined) "as a stream" else plan.get("summary").asText()
    s"phalanx ${table.name()} $what" + shuffled.fold("")(reason => s", shuffled for the join: $reason")
  }

  override def supportedCustomMetrics(): Array[CustomMetric] =
    Metrics.seen(new LeavesPlanned, new LeavesPruned, new RowsRead, new BytesRead)

  override def reportDriverMetrics(): Array[CustomTaskMetric] =
    if (stream.isDefined) Array.empty else Metrics.ofLeaves(plan)

  /** Spark reads two scans that are equal only once. */
  private def identity: Any = (table.id(), table.version(), struct, pushed, byKey, limit, runtime, chosen, filtersRows)

  override def equals(other: Any): Boolean = other match {
    case scan: PhalanxScan => scan.identity == identity
    case _ => false
  }

  override def hashCode(): Int = identity.hashCode()
}

object PhalanxScan {
  private val ManyRows = 500000
}

/** What a join has learned from its other side. */
object RuntimeFilters {
  /** Filters with more values become ranges: to send and test each of them would cost more. */
  private val MostValues = 2000

  /** A filter `column IN (values)`, or the range of many values; none if that would prune nothing, because
   *  the column is not one of those that partitions keep the order of. */
  def bounded(predicate: Predicate, ordered: Set[Seq[String]]): Option[Predicate] = predicate.children() match {
    case children if predicate.name() != "IN" || children.length - 1 <= MostValues => Some(predicate)
    case Array(column: NamedReference, _*) if !ordered(column.fieldNames().toSeq) => None
    case Array(column, values @ _*) =>
      val literals = values.collect { case literal: Literal[_] => literal }
      val kind = literals.head.dataType()
      if (literals.length < values.length || literals.exists(_.value() == null) || !isOrdered(kind)) None
      else {
        val order = TypeUtils.getInterpretedOrdering(kind)
        val ends = literals.map(_.value().asInstanceOf[Any])
        def end(name: String, value: Any) = new Predicate(name, Array(column, LiteralValue(value, kind)))
        Some(new And(end(">=", ends.min(order)), end("<=", ends.max(order))))
      }
  }

  /** Whether Spark and Phalanx order the values of a type alike, and so compare them alike. */
  def isOrdered(kind: DataType): Boolean = kind match {
    case _: IntegralType | _: DecimalType | DateType | TimestampType | TimestampNTZType | StringType => true
    case _ => false
  }
}

// Spark makes each kind of metric by the name of its class.
class LeavesPlanned extends CustomSumMetric {
  override def name(): String = "leavesPlanned"
  override def description(): String = "partitions to read"
}
class LeavesPruned extends CustomSumMetric {
  override def name(): String = "leavesPruned"
  override def description(): String = "partitions pruned"
}
class RowsRead extends CustomSumMetric {
  override def name(): String = "rowsRead"
  override def description(): String = "rows read from Lance"
}
class BytesRead extends CustomSumMetric {
  override def name(): String = "bytesRead"
  override def description(): String = "bytes received from Python"
}
case class Metric(name: String, value: Long) extends CustomTaskMetric
