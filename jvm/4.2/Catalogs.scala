package org.apache.spark.sql.phalanx

import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.TableChange.{AddColumn, UpdateColumnDefaultValue}
import org.apache.spark.sql.types.StructType

/** A catalog as this Spark calls it. */
trait SparkCatalog extends TableCatalog with StagingTableCatalog with ProcedureCatalog

/** A table as this Spark calls it. */
trait SparkTable extends Table

object Columns {
  def of(struct: StructType): Array[Column] = CatalogV2Util.structTypeToV2Columns(struct, true)
}

/** The defaults of columns. */
object Defaults {
  def of(column: Column): DefaultValue = column.defaultValue
  def of(change: AddColumn): DefaultValue = change.defaultValue
  def of(change: UpdateColumnDefaultValue): DefaultValue = change.newCurrentDefault
}
