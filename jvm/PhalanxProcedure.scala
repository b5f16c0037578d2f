package org.apache.spark.sql.phalanx

import java.util

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.procedures.{BoundProcedure, ProcedureParameter, UnboundProcedure}
import org.apache.spark.sql.connector.read.Scan
import org.apache.spark.sql.types.{DataType, StructType}

/** A procedure as Python has described it: `CALL <catalog>.system.<name>(…)`. */
class PhalanxProcedure(found: JsonNode, settings: JsonNode) extends UnboundProcedure with BoundProcedure {

  override def name(): String = found.get("name").asText()

  override def description(): String = found.get("description").asText()

  override def bind(input: StructType): BoundProcedure = this

  override def isDeterministic: Boolean = false

  override def parameters(): Array[ProcedureParameter] = Json.each(found.get("parameters")).map { one =>
    val made = ProcedureParameter.in(one.get("name").asText(), DataType.fromDDL(one.get("type").asText()))
      .comment(one.get("comment").asText())
    if (one.has("default")) made.defaultValue(one.get("default").asText())
    made.build()
  }.toArray

  override def call(input: InternalRow): util.Iterator[Scan] = {
    val arguments = parameters().zipWithIndex.map { case (one, at) =>
      one.name() -> Json.value(input.get(at, one.dataType()), one.dataType())
    }.toMap
    val done = Bridge.call("call_procedure",
      "catalog" -> settings, "name" -> name(), "arguments" -> arguments)
    util.List.of[Scan](new PhalanxAnswer(s"CALL ${name()}", Json.struct(done.get("schema")), done)).iterator()
  }
}
