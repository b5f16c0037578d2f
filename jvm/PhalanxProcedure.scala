package org.apache.spark.sql.phalanx

import java.util
import java.util.Base64

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.procedures.{BoundProcedure, ProcedureParameter, UnboundProcedure}
import org.apache.spark.sql.connector.read.Scan
import org.apache.spark.sql.types.{DataType, StructType}

/** A procedure as Python describes it: `CALL <catalog>.system.<name>(…)`. */
class PhalanxProcedure(catalog: String, described: JsonNode, settings: () => Map[String, Any])
    extends UnboundProcedure with BoundProcedure {

  override def name(): String = described.get("name").asText()

  override def toString: String = s"$catalog.system.${name()}"

  override def description(): String = described.get("description").asText()

  override def bind(input: StructType): BoundProcedure = this

  override def isDeterministic: Boolean = false

  override def parameters(): Array[ProcedureParameter] = Json.each(described.get("parameters")).map { one =>
    val builder = ProcedureParameter.in(one.get("name").asText(), DataType.fromDDL(one.get("type").asText()))
      .comment(one.get("comment").asText())
    if (one.has("default")) builder.defaultValue(one.get("default").asText())
    builder.build()
  }.toArray

  /** Let Spark's workers run commands; the message of each. */
  private def work(commands: Seq[Array[Byte]]): Seq[String] = {
    val workers = new Workers
    val nothing = new StructType()
    SparkSession.active.sparkContext.parallelize(commands, commands.size)
      .flatMap(workers.messages(_, Iterator.empty, nothing)).collect().toSeq.map(Base64.getEncoder.encodeToString)
  }

  /** Let Spark read a table again, if it has cached it. */
  private def forget(table: Seq[String]): Unit =
    CachedQueries.refresh(SparkSession.active, catalog +: table)

  /** The current namespace, if it is one of the procedure's catalog. */
  private def namespace: Seq[String] = {
    val manager = SparkSession.active.sessionState.catalogManager
    if (manager.currentCatalog.name() == catalog) manager.currentNamespace.toSeq else Seq.empty
  }

  override def call(input: InternalRow): util.Iterator[Scan] = {
    val arguments = parameters().zipWithIndex.map { case (one, at) =>
      one.name() -> Json.value(input.get(at, one.dataType()), one.dataType())
    }.toMap
    val asked = Seq("catalog" -> settings(), "namespace" -> namespace, "name" -> name(), "arguments" -> arguments, Cluster.now)
    var done = Bridge.call("call_procedure", asked: _*)
    while (done.has("work")) {
      val messages = work(Json.each(done.get("work")).map(Json.bytes))
      val more = Seq("state" -> done.get("state"), "messages" -> messages)
      done = Bridge.call("call_procedure", asked ++ more: _*)
    }
    if (done.has("changed")) forget(Json.strings(done.get("changed")))
    util.List.of[Scan](new PhalanxAnswer(s"CALL ${name()}", Json.struct(done.get("schema")), done)).iterator()
  }
}
