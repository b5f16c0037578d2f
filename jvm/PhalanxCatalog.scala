package org.apache.spark.sql.phalanx

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.analysis.{NamespaceAlreadyExistsException, NoSuchFunctionException, NoSuchNamespaceException, NoSuchTableException, NonEmptyNamespaceException, TableAlreadyExistsException}
import org.apache.spark.sql.catalyst.expressions.{Alias, V2ExpressionUtils}
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser
import org.apache.spark.sql.catalyst.plans.logical.{OneRowRelation, Project}
import org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE
import org.apache.spark.sql.catalyst.util.ResolveDefaultColumns
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.TableChange._
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.DataType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * A warehouse of tables: `<warehouse>/<namespace>/<table>` is a table's root.
 *
 * Tables that have been created or replaced with rows appear together with them, in one snapshot.
 */
class PhalanxCatalog extends SparkCatalog with PhalanxViews with SupportsNamespaces with FunctionCatalog {

  private var catalog: String = _
  private var confs: JsonNode = _

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = {
    catalog = name
    confs = Json.node(options.asCaseSensitiveMap())
  }

  /** The catalog as Python knows it. */
  def settings: Map[String, Any] =
    Map("name" -> catalog, "confs" -> confs, "case_sensitive" -> SQLConf.get.caseSensitiveAnalysis)

  override def toString: String = s"catalog $catalog"

  override def name(): String = catalog

  override def defaultNamespace(): Array[String] = Array("default")

  override protected def parts(ident: Identifier): Seq[String] = ident.namespace().toSeq :+ ident.name()

  override protected def call(op: String, arguments: (String, Any)*): JsonNode =
    Bridge.call(op, Seq("catalog" -> settings) ++ arguments: _*)

  // Tables

  private def load(ident: Identifier, arguments: (String, Any)*): Table = {
    val reply = call("load_table", Seq("ident" -> parts(ident)) ++ arguments: _*)
    if (reply.has("missing")) throw new NoSuchTableException(catalog +: parts(ident))
    table(ident, reply)
  }

  override protected def table(ident: Identifier, described: JsonNode): Table =
    new PhalanxTable(catalog +: parts(ident), described)

  override def loadTable(ident: Identifier): Table = ident match {
    case _: PhalanxPath if Saving.now => loadTable(ident, util.Set.of(TableWritePrivilege.INSERT))
    case path: PhalanxPath if path.declared.nonEmpty => load(ident, "declared" -> path.declared)
    case _ => load(ident)
  }

  /** A table for a stream that names it by its path: Spark forgets which catalog it came from. */
  def loadForStream(ident: Identifier): Table = new PhalanxTable(
    catalog +: parts(ident), loadTable(ident).asInstanceOf[PhalanxTable].described, hasFunctions = false)

  override def loadTable(ident: Identifier, version: String): Table =
    load(ident, "version" -> version)

  override def loadTable(ident: Identifier, micros: Long): Table = load(ident, "time" -> micros)

  /** A path that is written to may have no table yet; then the write creates it. */
  override def loadTable(ident: Identifier, privileges: util.Set[TableWritePrivilege]): Table =
    ident match {
      case _: PhalanxPath if !tableExists(ident) =>
        new PhalanxUnborn(catalog +: parts(ident), (info, options) =>
          stage(ident, "create", info, "partition_by" -> Option(options.get("partition_by"))))
      case _ => load(ident) match {
        case table: PhalanxTable => table.forWrites
        case other => other
      }
    }

  override def tableExists(ident: Identifier): Boolean =
    call("table_exists", "ident" -> parts(ident)).get("exists").asBoolean()

  override def listTables(namespace: Array[String]): Array[Identifier] = {
    val reply = call("list_tables", "namespace" -> namespace)
    if (reply.has("missing")) throw new NoSuchNamespaceException(catalog +: namespace)
    Json.strings(reply.get("tables")).map(Identifier.of(namespace, _)).toArray
  }

  override def listTableSummaries(namespace: Array[String]): Array[TableSummary] =
    listTables(namespace).map(TableSummary.of(_, TableSummary.MANAGED_TABLE_TYPE))

  override def createTable(ident: Identifier, info: TableInfo): Table = {
    stage(ident, "create", info, "names" -> true).commitStagedChanges()
    loadTable(ident)
  }

  override def createTableLike(ident: Identifier, info: TableInfo, source: Table): Table = {
    val copied: Map[String, String] = source match {
      case table: PhalanxTable => table.properties().asScala.toMap - TableCatalog.PROP_LOCATION
      case _ => Map.empty
    }
    stage(ident, "create", info, "properties" -> (copied ++ info.properties().asScala.toMap))
      .commitStagedChanges()
    loadTable(ident)
  }

  override def stageCreate(ident: Identifier, info: TableInfo): StagedTable =
    stage(ident, "create", info)

  override def stageReplace(ident: Identifier, info: TableInfo): StagedTable =
    stage(ident, "replace", info)

  override def stageCreateOrReplace(ident: Identifier, info: TableInfo): StagedTable =
    stage(ident, "create_or_replace", info)

  private def stage(ident: Identifier, mode: String, info: TableInfo,
      more: (String, Any)*): PhalanxStagedTable = {
    val arguments = Seq(
      "ident" -> parts(ident),
      "mode" -> mode,
      "schema" -> CatalogV2Util.v2ColumnsToStructType(info.columns()).json,
      "defaults" -> info.columns().toSeq.flatMap { column =>
        default(column.name, column.dataType, Defaults.of(column)).map(column.name -> _)
      }.toMap,
      "partitioning" -> info.partitions().toSeq.map(Json.transform),
      "properties" -> info.properties(),
      "constraints" -> Constraints.of(info),
      // What writers of frames and streams name where their user names no format.
      "default_provider" -> SQLConf.get.defaultDataSourceName)
    val reply = call("stage_table", arguments ++ more: _*)
    if (reply.has("exists")) throw new TableAlreadyExistsException(catalog +: parts(ident))
    if (reply.has("missing")) throw new NoSuchTableException(catalog +: parts(ident))
    if (reply.has("no_namespace")) throw new NoSuchNamespaceException(catalog +: ident.namespace())
    new PhalanxStagedTable(catalog +: parts(ident), reply)
  }

  /** The refusal of a table of another format. */
  def foreign(provider: String): Exception = Bridge.refusal(
    s"the catalog $catalog makes tables of Phalanx, not of $provider: write USING phalanx, or leave USING out")

  override def alterTable(ident: Identifier, changes: TableChange*): Table = {
    lazy val columns = CatalogV2Util.v2ColumnsToStructType(loadTable(ident).columns())
    def kind(path: Array[String]): DataType =
      columns.findNestedField(path.toSeq, includeCollections = true).map(_._2.dataType).getOrElse(
        throw Bridge.refusal(s"${parts(ident).mkString(".")} has no column ${path.mkString(".")}"))
    val reply = call("alter_table", "ident" -> parts(ident), "changes" -> changes.map(change(_, kind)))
    if (reply.has("missing")) throw new NoSuchTableException(catalog +: parts(ident))
    loadTable(ident)
  }

  private def change(change: TableChange, kind: Array[String] => DataType): Map[String, Any] = change match {
    case c: SetProperty => Map("change" -> "set_property", "key" -> c.property, "value" -> c.value)
    case c: RemoveProperty => Map("change" -> "remove_property", "key" -> c.property)
    case c: AddColumn => Map("change" -> "add_column", "column" -> c.fieldNames, "type" -> c.dataType.json,
      "nullable" -> c.isNullable, "comment" -> c.comment, "position" -> position(c.position),
      "default" -> default(c.fieldNames.last, c.dataType, Defaults.of(c)))
    case c: UpdateColumnDefaultValue => Map("change" -> "set_default", "column" -> c.fieldNames,
      "default" -> Option(Defaults.of(c)).flatMap(default(c.fieldNames.last, kind(c.fieldNames), _)))
    case c: RenameColumn => Map("change" -> "rename_column", "column" -> c.fieldNames, "to" -> c.newName)
    case c: UpdateColumnType =>
      Map("change" -> "change_type", "column" -> c.fieldNames, "type" -> c.newDataType.json)
    case c: UpdateColumnNullability =>
      Map("change" -> "set_nullable", "column" -> c.fieldNames, "nullable" -> c.nullable)
    case c: UpdateColumnComment =>
      Map("change" -> "comment", "column" -> c.fieldNames, "comment" -> c.newComment)
    case c: UpdateColumnPosition =>
      Map("change" -> "move_column", "column" -> c.fieldNames, "position" -> position(c.position))
    case c: DeleteColumn => Map("change" -> "drop_column", "column" -> c.fieldNames,
      "if_exists" -> c.ifExists)
    case other => Constraints.change(other).getOrElse(Map("change" -> other.getClass.getSimpleName))
  }

  /** The default of a column, if it has one: its SQL, its value now, and whether that is always its value. */
  private def default(column: String, kind: DataType, value: DefaultValue): Option[Map[String, Any]] =
    Option(value).map { default =>
      val sql = Option(default.getSql).getOrElse(V2ExpressionUtils.toCatalyst(default.getExpression).get.sql)
      // Spark replaces current_timestamp() and the like by constants, so they are looked for before that.
      val written = Alias(CatalystSqlParser.parseExpression(sql), column)()
      val resolved = ResolveDefaultColumns.DefaultColumnAnalyzer.execute(Project(Seq(written), OneRowRelation()))
      val now = ResolveDefaultColumns.analyze(column, kind, sql, "DEFAULT").eval()
      Map("sql" -> sql, "value" -> Json.value(now, kind), "type" -> kind.json,
        "constant" -> !resolved.containsPattern(CURRENT_LIKE))
    }

  override def capabilities(): util.Set[TableCatalogCapability] =
    (TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE +: Constraints.Capabilities).toSet.asJava

  /** Partition new rows by other fields; each is written as in CREATE TABLE. */
  def alterPartitioning(ident: Identifier, add: Option[String], drop: Option[String]): Unit = {
    val reply = call("alter_partitioning", "ident" -> parts(ident), "add" -> add, "drop" -> drop)
    if (reply.has("missing")) throw new NoSuchTableException(catalog +: parts(ident))
  }

  /** What to write instead of a statement of another format about a table. */
  def instead(ident: Identifier, text: String): Option[String] =
    Option(call("foreign_statement", "ident" -> parts(ident), "text" -> text).get("sentence")).map(_.asText())

  private def position(position: ColumnPosition): Any = position match {
    case after: After => Map("after" -> after.column)
    case _: First => "first"
    case _ => null
  }

  override def dropTable(ident: Identifier): Boolean =
    call("drop_table", "ident" -> parts(ident)).get("dropped").asBoolean()

  override def purgeTable(ident: Identifier): Boolean = dropTable(ident)

  override def renameTable(from: Identifier, to: Identifier): Unit = {
    val reply = call("rename_table", "ident" -> parts(from), "to" -> parts(to))
    if (reply.has("missing")) throw new NoSuchTableException(catalog +: parts(from))
    if (reply.has("exists")) throw new TableAlreadyExistsException(catalog +: parts(to))
  }

  // Namespaces

  override def listNamespaces(): Array[Array[String]] = listNamespaces(Array.empty)

  override def listNamespaces(namespace: Array[String]): Array[Array[String]] = {
    val reply = call("list_namespaces", "namespace" -> namespace)
    if (reply.has("missing")) throw new NoSuchNamespaceException(catalog +: namespace)
    Json.strings(reply.get("namespaces")).map(namespace :+ _).toArray
  }

  override def loadNamespaceMetadata(namespace: Array[String]): util.Map[String, String] = {
    val reply = call("load_namespace", "namespace" -> namespace)
    if (reply.has("missing")) throw new NoSuchNamespaceException(catalog +: namespace)
    reply.get("properties").properties().asScala.map(e => e.getKey -> e.getValue.asText()).toMap.asJava
  }

  override def createNamespace(namespace: Array[String], metadata: util.Map[String, String]): Unit =
    if (call("create_namespace", "namespace" -> namespace, "properties" -> metadata).has("exists")) {
      throw new NamespaceAlreadyExistsException(catalog +: namespace)
    }

  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit = {
    val values: Map[String, Any] = changes.map {
      case set: NamespaceChange.SetProperty => set.property -> set.value
      case removed: NamespaceChange.RemoveProperty => removed.property -> null
    }.toMap
    val reply = call("alter_namespace", "namespace" -> namespace, "changes" -> values)
    if (reply.has("missing")) throw new NoSuchNamespaceException(catalog +: namespace)
  }

  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean = {
    val reply = call("drop_namespace", "namespace" -> namespace, "cascade" -> cascade)
    if (reply.has("missing")) throw new NoSuchNamespaceException(catalog +: namespace)
    if (reply.has("not_empty")) throw new NonEmptyNamespaceException(catalog +: namespace)
    true
  }

  // Procedures

  private lazy val listed: JsonNode = call("list_procedures")

  private lazy val procedures: Map[String, JsonNode] =
    Json.each(listed.get("procedures")).map(p => p.get("name").asText() -> p).toMap

  /** All of them, whatever the namespace is: they are for tables of any. */
  override def listProcedures(namespace: Array[String]): Array[Identifier] =
    procedures.keys.toArray.sorted.map(Identifier.of(Array("system"), _))

  override def loadProcedure(ident: Identifier): UnboundProcedure = {
    val described = procedures.get(ident.name())
    if (described.isEmpty || !ident.namespace().sameElements(Array("system"))) {
      val known = Option(listed.get("instead").get(ident.name())).map(ours => s"use $catalog.system.${ours.asText()}")
        .getOrElse("system has " + procedures.keys.toSeq.sorted.mkString(", "))
      throw Bridge.refusal(s"there is no procedure ${parts(ident).mkString(".")}: $known")
    }
    new PhalanxProcedure(catalog, described.get, () => settings)
  }

  // Functions: the transforms, as Spark needs them to cluster and join by partition

  override def listFunctions(namespace: Array[String]): Array[Identifier] =
    Functions.all.keys.toArray.sorted.map(Identifier.of(namespace, _))

  override def loadFunction(ident: Identifier): UnboundFunction =
    Functions.find(ident.name()).getOrElse(throw new NoSuchFunctionException(ident))
}
