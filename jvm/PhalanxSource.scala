package org.apache.spark.sql.phalanx

import java.util

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{Identifier, SupportsCatalogOptions, Table}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.sources.DataSourceRegister
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A table by its path, as readers and writers name it, and what options say about a tree of others. */
case class PhalanxPath(name: String, declared: Map[String, String] = Map.empty) extends Identifier {
  override def namespace(): Array[String] = Array.empty
}

/** `format("phalanx")` with a path: the same tables, without the name of a catalog. */
class PhalanxSource extends SupportsCatalogOptions with DataSourceRegister {

  override def shortName(): String = "phalanx"

  override def extractIdentifier(options: CaseInsensitiveStringMap): Identifier = {
    if ((options.containsKey("versionAsOf") || options.containsKey("timestampAsOf")) && Saving.now) {
      throw Bridge.refusal("an earlier version cannot be written to: leave versionAsOf and timestampAsOf out")
    }
    Option(options.get("path")).map(path => PhalanxPath(path, declared(options)): Identifier).getOrElse {
      throw Bridge.refusal("a path is needed: load(\"/data/events\") or save(\"/data/events\")")
    }
  }

  private def declared(options: CaseInsensitiveStringMap): Map[String, String] =
    Option(options.get("schema")).map(text => "schema" -> StructType.fromDDL(text).json).toMap ++
      Option(options.get("partition_by")).map("partition_by" -> _)

  override def extractCatalog(options: CaseInsensitiveStringMap): String =
    Option(options.get("catalog")).getOrElse {
      val conf = SparkSession.active.conf
      if (conf.getOption(PhalanxSource.conf).isEmpty) {
        conf.set(PhalanxSource.conf, classOf[PhalanxCatalog].getName)
      }
      PhalanxSource.catalog
    }

  override def extractTimeTravelVersion(options: CaseInsensitiveStringMap): util.Optional[String] =
    util.Optional.ofNullable(options.get("versionAsOf"))

  override def extractTimeTravelTimestamp(options: CaseInsensitiveStringMap): util.Optional[String] =
    util.Optional.ofNullable(options.get("timestampAsOf"))

  private def table(options: CaseInsensitiveStringMap): Table = {
    val catalog = SparkSession.active.sessionState.catalogManager.catalog(extractCatalog(options))
    catalog.asInstanceOf[PhalanxCatalog].loadForStream(extractIdentifier(options))
  }

  override def inferSchema(options: CaseInsensitiveStringMap): StructType = table(options).schema()

  override def getTable(
      schema: StructType, partitioning: Array[Transform], properties: util.Map[String, String]): Table =
    table(new CaseInsensitiveStringMap(properties))
}

object PhalanxSource {
  /** The catalog whose tables are named by their paths. */
  val catalog = "phalanx"
  private val conf = s"spark.sql.catalog.$catalog"
}
