package org.apache.spark.sql.phalanx

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.catalog.{Identifier, Table, TableCatalog}

/** The permanent views of a catalog: this Spark has none outside its own catalog. */
trait PhalanxViews extends TableCatalog {
  protected def call(op: String, arguments: (String, Any)*): JsonNode
  protected def parts(ident: Identifier): Seq[String]
  protected def table(ident: Identifier, described: JsonNode): Table
}
