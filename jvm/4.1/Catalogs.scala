package org.apache.spark.sql.phalanx

import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.TableChange.{AddColumn, UpdateColumnDefaultValue}
import org.apache.spark.sql.types.StructType

/** A catalog as this Spark calls it, and CREATE TABLE LIKE, for which it does not call. */
trait SparkCatalog extends TableCatalog with StagingTableCatalog with ProcedureCatalog {
  def createTableLike(ident: Identifier, info: TableInfo, source: Table): Table
}

/** A table whose columns a write may change: this Spark has no such thing, and nobody asks. */
trait SupportsSchemaEvolution {
  def supportsColumnChange(change: TableChange.ColumnChange): Boolean
}

/** A table as this Spark calls it. */
trait SparkTable extends Table

object Columns {
  def of(struct: StructType): Array[Column] = CatalogV2Util.structTypeToV2Columns(struct)
}

/** The defaults of columns. */
object Defaults {
  def of(column: Column): DefaultValue = column.defaultValue
  def of(change: AddColumn): DefaultValue = change.defaultValue
  def of(change: UpdateColumnDefaultValue): DefaultValue = change.newCurrentDefault
}
