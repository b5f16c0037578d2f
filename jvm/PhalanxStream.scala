package org.apache.spark.sql.phalanx

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming._
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A place in a stream, as Python has written it. */
class PhalanxOffset(text: String) extends Offset {
  override def json(): String = text
}

/** As much as the options of the stream allow; Python knows them. */
object PhalanxLimit extends ReadLimit {
  override def toString: String = "the limits of the stream"
}

/** The rows that are added to a table, batch by batch. */
class PhalanxStream(table: PhalanxTable, struct: StructType, outgoing: StructType,
    options: CaseInsensitiveStringMap) extends MicroBatchStream with SupportsTriggerAvailableNow {

  private val started = Bridge.call("start_stream",
    "table" -> table.handle, "options" -> options.asCaseSensitiveMap())
  private val stream: JsonNode = started.get("stream")

  // With Trigger.AvailableNow the first look at the table says where the query ends.
  private var onlyNow = false
  private var until: Option[Long] = None

  override def initialOffset(): Offset = new PhalanxOffset(started.get("initial").asText())

  override def deserializeOffset(json: String): Offset = new PhalanxOffset(json)

  override def getDefaultReadLimit: ReadLimit = PhalanxLimit

  override def prepareForTriggerAvailableNow(): Unit = onlyNow = true

  override def latestOffset(): Offset =
    throw new UnsupportedOperationException("the latest offset depends on where a batch begins")

  override def latestOffset(start: Offset, limit: ReadLimit): Offset = {
    val reply = Bridge.call("next_offset", "stream" -> stream, "start" -> start.json(),
      "limited" -> (limit eq PhalanxLimit), "until" -> until)
    if (onlyNow && until.isEmpty) until = Some(reply.get("newest").asLong())
    new PhalanxOffset(reply.get("end").asText())
  }

  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] = {
    val reply = Bridge.call("stream_tasks", "stream" -> stream, "start" -> start.json(),
      "end" -> end.json(),
      "scan" -> Map("schema" -> outgoing.json, "without_columns" -> struct.isEmpty, Cluster.now))
    Json.each(reply.get("tasks")).map { task =>
      PhalanxPartition(Json.bytes(task)): InputPartition
    }.toArray
  }

  override def createReaderFactory(): PartitionReaderFactory =
    new PhalanxReaderFactory(outgoing, struct.isEmpty)

  override def commit(end: Offset): Unit = ()

  override def stop(): Unit = ()

  override def toString: String = s"phalanx ${table.name()}"
}
