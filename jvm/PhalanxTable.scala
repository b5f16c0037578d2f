package org.apache.spark.sql.phalanx

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, RowLevelOperationBuilder, RowLevelOperationInfo, WriteBuilder}
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * A table at one version, as Python has described it.
 *
 * `handle` is Python's own: it goes back to it with every call. `hasFunctions` says whether Spark
 * knows the table's catalog, and with it the functions that transforms are.
 */
class PhalanxTable(val names: Seq[String], val found: JsonNode, val hasFunctions: Boolean = true)
    extends Table with SupportsRead
    with SupportsWrite with SupportsMetadataColumns with SupportsDeleteV2
    with SupportsRowLevelOperations with SupportsSchemaEvolution {

  val handle: JsonNode = found.get("handle")
  private val struct: StructType = Json.struct(found.get("schema"))
  private val transforms: Array[Transform] =
    Json.each(found.get("partitioning")).map(Json.transform(_: JsonNode)).toArray
  private val abilities = Json.strings(found.get("capabilities"))

  override def name(): String = names.mkString(".")
  override def id(): String = found.get("id").asText()
  override def version(): String = found.get("version").asText()
  override def schema(): StructType = struct
  override def columns(): Array[Column] = CatalogV2Util.structTypeToV2Columns(struct, true)
  override def partitioning(): Array[Transform] = transforms

  override def properties(): util.Map[String, String] =
    found.get("properties").properties().asScala.map(e => e.getKey -> e.getValue.asText()).toMap.asJava

  override def capabilities(): util.Set[TableCapability] =
    abilities.map(TableCapability.valueOf).toSet.asJava

  /** What a write may change by itself: it adds columns. */
  override def supportsColumnChange(change: TableChange.ColumnChange): Boolean =
    change.isInstanceOf[TableChange.AddColumn]

  override def metadataColumns(): Array[MetadataColumn] =
    Json.each(found.get("metadata_columns")).map { column =>
      PhalanxMetadataColumn(column.get("name").asText(),
        DataType.fromDDL(column.get("type").asText()), column.get("comment").asText())
    }.toArray[MetadataColumn]

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new PhalanxScanBuilder(this, options)

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder =
    new PhalanxWriteBuilder(this, info)

  override def newRowLevelOperationBuilder(info: RowLevelOperationInfo): RowLevelOperationBuilder =
    () => new PhalanxRowChange(this, info)

  override def canDeleteWhere(predicates: Array[Predicate]): Boolean =
    Bridge.call("can_delete", "table" -> handle,
      "filters" -> predicates.toSeq.map(Json.expression)).get("possible").asBoolean()

  override def deleteWhere(predicates: Array[Predicate]): Unit =
    Bridge.call("delete", "table" -> handle, "filters" -> predicates.toSeq.map(Json.expression),
      Confs.now)
}

/** A table that is about to be created or replaced; nobody sees it before the commit. */
class PhalanxStagedTable(names: Seq[String], found: JsonNode) extends PhalanxTable(names, found)
    with StagedTable {

  private var written: Option[Seq[(String, Any)]] = None

  /** Whether nobody but the write commits the table. */
  var atOnce = false

  /** What a write wants to commit: kept until the table itself is committed. */
  def hold(commit: Seq[(String, Any)]): Unit = {
    written = Some(commit)
    if (atOnce) commitStagedChanges()
  }

  override def commitStagedChanges(): Unit =
    Bridge.call("commit_staged", Seq("table" -> handle) ++ written.getOrElse(Seq.empty): _*)

  override def abortStagedChanges(): Unit = ()

  override def reportDriverMetrics(): Array[CustomTaskMetric] = Array.empty
}

/** A path without a table: the first write makes one, with the columns of its rows. */
class PhalanxUnborn(names: Seq[String],
    make: (TableInfo, CaseInsensitiveStringMap) => PhalanxStagedTable) extends Table with SupportsWrite {

  override def name(): String = names.mkString(".")
  override def columns(): Array[Column] = Array.empty
  override def capabilities(): util.Set[TableCapability] = util.Set.of(
    TableCapability.BATCH_WRITE, TableCapability.TRUNCATE, TableCapability.ACCEPT_ANY_SCHEMA)

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = {
    val columns = CatalogV2Util.structTypeToV2Columns(info.schema().asNullable)
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
