package org.apache.spark.sql.phalanx

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.util.CharVarcharUtils
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, RowLevelOperationBuilder, RowLevelOperationInfo, WriteBuilder}
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * A table at one version, as Python describes it.
 *
 * `handle` is Python's own and goes back with every call. `hasFunctions` says whether Spark knows
 * the table's catalog, and with it the functions of partition transforms.
 */
class PhalanxTable(val names: Seq[String], val described: JsonNode, val hasFunctions: Boolean = true)
    extends SparkTable with SupportsRead
    with SupportsWrite with SupportsMetadataColumns with SupportsDeleteV2
    with SupportsRowLevelOperations with SupportsSchemaEvolution with ConstrainedTable with PhalanxPartitions {

  val handle: JsonNode = described.get("handle")
  private val struct: StructType = Json.struct(described.get("schema"))
  private val transforms: Array[Transform] =
    Json.each(described.get("partitioning")).map(Json.transform(_: JsonNode)).toArray
  private val abilities = Json.strings(described.get("capabilities"))

  /** Ask about this version of the table. Where it never changes, neither does the reply. */
  def ask(op: String, arguments: (String, Any)*): JsonNode = {
    val all = ("table" -> handle) +: arguments
    if (described.get("lasts").asBoolean()) Bridge.recall(op, all: _*) else Bridge.call(op, all: _*)
  }

  override def name(): String = names.mkString(".")
  override def toString: String = name()
  override def id(): String = described.get("id").asText()
  override def version(): String = described.get("version").asText()
  override def schema(): StructType = struct
  override def columns(): Array[Column] = Columns.of(struct)

  /**
   * The same table with the lengths of CHAR and VARCHAR in metadata, as in every resolved relation.
   *
   * Spark itself does this when it resolves a name, but not after schema evolution: there it casts
   * strings to a type that it then takes for a new one, again and again.
   */
  def forWrites: PhalanxTable = new PhalanxTable(names, described, hasFunctions) {
    override def columns(): Array[Column] =
      Columns.of(CharVarcharUtils.replaceCharVarcharWithStringInSchema(schema()))
  }
  override def partitioning(): Array[Transform] = transforms

  override def properties(): util.Map[String, String] =
    described.get("properties").properties().asScala.map(e => e.getKey -> e.getValue.asText()).toMap.asJava

  /** The same table as statements show it that leave a property out. */
  def withoutProperty(name: String): PhalanxTable = {
    val copy = described.deepCopy[ObjectNode]()
    copy.get("properties").asInstanceOf[ObjectNode].remove(name)
    new PhalanxTable(names, copy, hasFunctions)
  }

  override def capabilities(): util.Set[TableCapability] =
    abilities.map(TableCapability.valueOf).toSet.asJava

  /** What a write may change by itself: it may add columns, and make types wider. */
  override def supportsColumnChange(change: TableChange.ColumnChange): Boolean = change match {
    case _: TableChange.AddColumn => true
    case wider: TableChange.UpdateColumnType =>
      Bridge.call("can_widen", "table" -> handle, "column" -> wider.fieldNames,
        "type" -> wider.newDataType.json).get("possible").asBoolean()
    case _ => false
  }

  override def metadataColumns(): Array[MetadataColumn] = hidden.toArray

  private lazy val hidden: Seq[MetadataColumn] =
    Json.each(described.get("metadata_columns")).map { column =>
      PhalanxMetadataColumn(column.get("name").asText(),
        DataType.fromDDL(column.get("type").asText()), column.get("comment").asText())
    }

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new PhalanxScanBuilder(this, options)

  /** What changes rows asks first: a metadata table has none of its own. */
  private def changing[T](change: => T): T =
    if (handle.path("about").asText().isEmpty || handle.get("about").isNull) change
    else throw Bridge.refusal(s"${name()} shows the metadata of a table, and cannot be changed")

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder =
    changing(new PhalanxWriteBuilder(this, info))

  override def newRowLevelOperationBuilder(info: RowLevelOperationInfo): RowLevelOperationBuilder =
    changing(() => new PhalanxRowChange(this, info))

  override def canDeleteWhere(predicates: Array[Predicate]): Boolean = changing {
    Bridge.call("can_delete", "table" -> handle,
      "filters" -> predicates.toSeq.map(Json.expression)).get("possible").asBoolean()
  }

  override def deleteWhere(predicates: Array[Predicate]): Unit = changing {
    Bridge.call("delete", "table" -> handle, "filters" -> predicates.toSeq.map(Json.expression),
      Confs.now)
  }
}

/** A table that is about to be created or replaced; nobody sees it before the commit. */
class PhalanxStagedTable(names: Seq[String], described: JsonNode) extends PhalanxTable(names, described)
    with StagedTable {

  private var written: Seq[Array[Byte]] = Seq.empty

  /** Whether nobody but the write commits the table. */
  var atOnce = false

  /** What tasks have written: kept until the table itself is committed. */
  def hold(messages: Seq[Array[Byte]]): Unit = {
    written = messages
    if (atOnce) commitStagedChanges()
  }

  override def commitStagedChanges(): Unit =
    Bridge.call("commit_staged", "table" -> handle, "messages" -> written)

  override def abortStagedChanges(): Unit = ()

  override def reportDriverMetrics(): Array[CustomTaskMetric] = Array.empty
}

/** A path without a table: the first write creates one, with the columns of its rows. */
class PhalanxUnborn(names: Seq[String],
    make: (TableInfo, CaseInsensitiveStringMap) => PhalanxStagedTable) extends Table with SupportsWrite {

  override def name(): String = names.mkString(".")
  override def schema(): StructType = new StructType()
  override def columns(): Array[Column] = Array.empty
  override def capabilities(): util.Set[TableCapability] = util.Set.of(
    TableCapability.BATCH_WRITE, TableCapability.TRUNCATE, TableCapability.ACCEPT_ANY_SCHEMA)

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = {
    val columns = Columns.of(info.schema().asNullable)
    val staged = make(new TableInfo.Builder().withColumns(columns).build(), info.options())
    staged.atOnce = true
    new PhalanxWriteBuilder(staged, info)
  }
}

private case class PhalanxMetadataColumn(name: String, dataType: DataType, text: String)
    extends MetadataColumn {
  override def comment(): String = text
  override def isNullable: Boolean = false
}
