package org.apache.spark.sql.phalanx

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.analysis.{NoSuchNamespaceException, NoSuchTableException, NoSuchViewException, ViewAlreadyExistsException}
import org.apache.spark.sql.connector.catalog._

/** The permanent views of a catalog: Python keeps what Spark says about them. */
trait PhalanxViews extends RelationCatalog {

  protected def call(op: String, arguments: (String, Any)*): JsonNode
  protected def parts(ident: Identifier): Seq[String]
  protected def table(ident: Identifier, described: JsonNode): Table

  override def loadRelation(ident: Identifier): Relation = ident match {
    case _: PhalanxPath => loadTable(ident)
    case _ =>
      val reply = call("load_relation", "ident" -> parts(ident))
      if (reply.has("missing")) throw new NoSuchTableException(name() +: parts(ident))
      if (reply.has("view")) view(reply.get("view")) else table(ident, reply)
  }

  override def loadView(ident: Identifier): View =
    try loadRelation(ident) match {
      case view: View => view
      case _ => throw new NoSuchViewException(ident)
    } catch { case _: NoSuchTableException => throw new NoSuchViewException(ident) }

  override def viewExists(ident: Identifier): Boolean =
    try { loadView(ident); true } catch { case _: NoSuchViewException => false }

  override def listViews(namespace: Array[String]): Array[Identifier] = {
    val reply = call("list_views", "namespace" -> namespace)
    if (reply.has("missing")) throw new NoSuchNamespaceException(name() +: namespace)
    Json.strings(reply.get("views")).map(Identifier.of(namespace, _)).toArray
  }

  override def createView(ident: Identifier, info: View): View = write(ident, "create", info)

  override def replaceView(ident: Identifier, info: View): View = write(ident, "replace", info)

  override def createOrReplaceView(ident: Identifier, info: View): View =
    write(ident, "create_or_replace", info)

  private def write(ident: Identifier, mode: String, info: View): View = {
    val reply = call("write_view", "ident" -> parts(ident), "mode" -> mode, "view" -> Map(
      "schema" -> info.schema().json,
      "columns" -> info.queryColumnNames(),
      "properties" -> info.properties(),
      "sql" -> info.queryText(),
      "catalog" -> info.currentCatalog(),
      "namespace" -> info.currentNamespace(),
      "confs" -> info.sqlConfigs(),
      "mode" -> info.schemaMode()))
    if (reply.has("exists")) throw new ViewAlreadyExistsException(ident)
    if (reply.has("missing")) throw new NoSuchViewException(ident)
    if (reply.has("no_namespace")) throw new NoSuchNamespaceException(name() +: ident.namespace())
    info
  }

  private def view(stored: JsonNode): View = {
    def texts(name: String) =
      stored.get(name).properties().asScala.map(e => e.getKey -> e.getValue.asText()).toMap.asJava
    def text(name: String) = Option(stored.get(name)).filterNot(_.isNull).map(_.asText()).orNull
    new View.Builder()
      .withColumns(CatalogV2Util.structTypeToV2Columns(Json.struct(Json.mapper.readTree(text("schema")))))
      .withProperties(texts("properties"))
      .withQueryText(text("sql"))
      .withCurrentCatalog(text("catalog"))
      .withCurrentNamespace(Json.strings(stored.get("namespace")).toArray)
      .withSqlConfigs(texts("confs"))
      .withSchemaMode(text("mode"))
      .withQueryColumnNames(Json.strings(stored.get("columns")).toArray)
      .build()
  }

  override def dropView(ident: Identifier): Boolean =
    call("drop_view", "ident" -> parts(ident)).get("dropped").asBoolean()

  override def renameView(from: Identifier, to: Identifier): Unit = {
    val reply = call("rename_view", "ident" -> parts(from), "to" -> parts(to))
    if (reply.has("missing")) throw new NoSuchViewException(from)
    if (reply.has("exists")) throw new ViewAlreadyExistsException(to)
  }
}
