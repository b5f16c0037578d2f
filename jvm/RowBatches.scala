package org.apache.spark.sql.phalanx

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

/**
 * Rows on their way to Python, in batches of as many as Spark's confs allow: as one struct each, for Python sees a struct
 * as a batch of columns. A batch must be read before the next one is asked for.
 *
 * Spark's own batches ask all of Arrow's vectors for their size before each row, which takes longer than to fill them. A
 * row in Spark's binary form knows its size.
 */
class RowBatches(rows: Iterator[InternalRow], schema: StructType) extends Iterator[Iterator[InternalRow]] {
  private val conf = SQLConf.get
  private val mostRows = limit(conf.arrowMaxRecordsPerBatch)
  private val mostBytes = limit(conf.arrowMaxBytesPerBatch)
  private lazy val toBinary = UnsafeProjection.create(schema.asNullable)
  private val struct = new GenericInternalRow(1)

  private def limit(number: Long): Long = if (number > 0) number else Long.MaxValue

  override def hasNext: Boolean = rows.hasNext

  override def next(): Iterator[InternalRow] = new Iterator[InternalRow] {
    private var count, bytes = 0L

    override def hasNext: Boolean = count < mostRows && bytes < mostBytes && rows.hasNext

    override def next(): InternalRow = {
      val row = rows.next() match {
        case binary: UnsafeRow => binary
        case other => toBinary(other)
      }
      count += 1
      bytes += row.getSizeInBytes
      struct.update(0, row)
      struct
    }
  }
}
