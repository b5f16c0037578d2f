package org.apache.spark.sql.phalanx

import java.util

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.SupportsAtomicPartitionManagement
import org.apache.spark.sql.types.StructType

/** The partitions of a table by the values of its partition fields, for statements that name them. */
trait PhalanxPartitions extends SupportsAtomicPartitionManagement {

  def described: JsonNode
  def handle: JsonNode

  override lazy val partitionSchema: StructType = Json.struct(described.get("partition_schema"))

  /** The partitions that have some values of some fields: the keys, and the leaves that have them. */
  private def matching(names: Seq[String], values: InternalRow): Seq[(InternalRow, String)] = {
    val kinds = partitionSchema.map(_.dataType)
    val asked = names.zipWithIndex.map { case (name, at) =>
      val index = partitionSchema.fieldIndex(name)
      index -> values.get(at, kinds(index))
    }
    Json.each(Bridge.call("list_partitions", "table" -> handle).get("partitions"))
      .map(one => Json.row(one.get("key"), kinds) -> one.get("leaf").asText())
      .filter { case (key, _) => asked.forall { case (at, value) => key.get(at, kinds(at)) == value } }
  }

  private def remove(keys: Seq[InternalRow]): Boolean = {
    val leaves = keys.flatMap(matching(partitionSchema.fieldNames.toSeq, _).map(_._2))
    if (leaves.nonEmpty) Bridge.call("drop_partitions", "table" -> handle, "leaves" -> leaves)
    leaves.nonEmpty
  }

  override def listPartitionIdentifiers(names: Array[String], values: InternalRow): Array[InternalRow] =
    matching(names.toSeq, values).map(_._1).toArray

  override def dropPartition(key: InternalRow): Boolean = remove(Seq(key))
  override def dropPartitions(keys: Array[InternalRow]): Boolean = remove(keys.toSeq)
  override def purgePartition(key: InternalRow): Boolean = remove(Seq(key))
  override def purgePartitions(keys: Array[InternalRow]): Boolean = remove(keys.toSeq)
  override def truncatePartition(key: InternalRow): Boolean = remove(Seq(key))
  override def truncatePartitions(keys: Array[InternalRow]): Boolean = remove(keys.toSeq)

  override def createPartition(key: InternalRow, properties: util.Map[String, String]): Unit =
    createPartitions(Array(key), Array(properties))

  override def createPartitions(
      keys: Array[InternalRow], properties: Array[util.Map[String, String]]): Unit =
    throw Bridge.refusal("a partition begins with its first row: insert rows instead of adding it")

  override def replacePartitionMetadata(key: InternalRow, properties: util.Map[String, String]): Unit =
    throw Bridge.refusal("a partition has no properties: set those of the table")

  override def loadPartitionMetadata(key: InternalRow): util.Map[String, String] = util.Map.of()

  override def renamePartition(from: InternalRow, to: InternalRow): Boolean =
    throw Bridge.refusal("a partition is named by the values of its rows: UPDATE those to rename it")
}
