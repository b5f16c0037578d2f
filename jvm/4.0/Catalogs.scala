package org.apache.spark.sql.phalanx

import java.util

import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.TableChange.{AddColumn, UpdateColumnDefaultValue}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.types.StructType

/** A catalog as this Spark calls it, with what later ones have: definitions of tables as one value,
 *  CREATE TABLE LIKE, summaries of tables, a list of procedures. */
trait SparkCatalog extends TableCatalog with StagingTableCatalog with ProcedureCatalog {
  def createTable(ident: Identifier, info: TableInfo): Table
  def createTableLike(ident: Identifier, info: TableInfo, source: Table): Table
  def listTableSummaries(namespace: Array[String]): Array[TableSummary]
  def listProcedures(namespace: Array[String]): Array[Identifier]
  def stageCreate(ident: Identifier, info: TableInfo): StagedTable
  def stageReplace(ident: Identifier, info: TableInfo): StagedTable
  def stageCreateOrReplace(ident: Identifier, info: TableInfo): StagedTable

  override def createTable(ident: Identifier, columns: Array[Column], partitions: Array[Transform],
      properties: util.Map[String, String]): Table =
    createTable(ident, new TableInfo(columns, partitions, properties))

  override def stageCreate(ident: Identifier, columns: Array[Column], partitions: Array[Transform],
      properties: util.Map[String, String]): StagedTable =
    stageCreate(ident, new TableInfo(columns, partitions, properties))

  override def stageReplace(ident: Identifier, columns: Array[Column], partitions: Array[Transform],
      properties: util.Map[String, String]): StagedTable =
    stageReplace(ident, new TableInfo(columns, partitions, properties))

  override def stageCreateOrReplace(ident: Identifier, columns: Array[Column],
      partitions: Array[Transform], properties: util.Map[String, String]): StagedTable =
    stageCreateOrReplace(ident, new TableInfo(columns, partitions, properties))
}

/** What a table is made of. */
class TableInfo(given: Array[Column], transforms: Array[Transform], settings: util.Map[String, String]) {
  def columns(): Array[Column] = given
  def partitions(): Array[Transform] = transforms
  def properties(): util.Map[String, String] = settings
}

object TableInfo {
  class Builder {
    private var columns: Array[Column] = Array.empty
    def withColumns(given: Array[Column]): Builder = { columns = given; this }
    def build(): TableInfo = new TableInfo(columns, Array.empty, util.Map.of())
  }
}

/** A table in a list. */
class TableSummary(val identifier: Identifier, val tableType: String)

object TableSummary {
  val MANAGED_TABLE_TYPE = "MANAGED"
  def of(identifier: Identifier, tableType: String) = new TableSummary(identifier, tableType)
}

/** A table whose columns a write may change: this Spark has no such thing, and nobody asks. */
trait SupportsSchemaEvolution {
  def supportsColumnChange(change: TableChange.ColumnChange): Boolean
}

/** A table as this Spark calls it, with what tells it from others in later ones. */
trait SparkTable extends Table {
  def id(): String
  def version(): String
}

object Columns {
  def of(struct: StructType): Array[Column] = CatalogV2Util.structTypeToV2Columns(struct)
}

/** The defaults of columns. */
object Defaults {
  private def written(sql: String): DefaultValue = if (sql == null) null else new DefaultValue(sql)
  private def written(default: ColumnDefaultValue): DefaultValue =
    if (default == null) null else written(default.getSql)

  def of(column: Column): DefaultValue = written(column.defaultValue)
  def of(change: AddColumn): DefaultValue = written(change.defaultValue)
  /** The new default of a column, or null where it has none from now on. */
  def of(change: UpdateColumnDefaultValue): DefaultValue =
    Option(change.newDefaultValue).filter(_.nonEmpty).map(new DefaultValue(_)).orNull
}
