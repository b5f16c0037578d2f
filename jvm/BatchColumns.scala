package org.apache.spark.sql.phalanx

import org.apache.arrow.vector._
import org.apache.arrow.vector.complex.{ListVector, StructVector}

import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarArray, ColumnarMap}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/**
 * A column of a batch that came from Python, read straight from its memory. Spark's own class asks Arrow for each
 * value, and Arrow looks at bounds, reference counts and NULL each time, which took more than half of a scan.
 *
 * A batch stays the runner's: it is good until the next one is asked for, and closing a column does nothing. A
 * struct that is closed would forget its fields, so that the next batch could not be loaded into it.
 */
private abstract class BatchColumn(kind: DataType, vector: FieldVector) extends ColumnVector(kind) {
  private val nulls: Int = vector.getNullCount
  private val validity: Long = if (nulls == 0) 0L else vector.getValidityBuffer.memoryAddress()

  final override def hasNull: Boolean = nulls > 0
  final override def numNulls(): Int = nulls
  final override def isNullAt(row: Int): Boolean = validity != 0L && !BatchColumn.bit(validity, row)

  override def close(): Unit = ()
  override def closeIfFreeable(): Unit = ()

  private def wrong = throw new UnsupportedOperationException(s"a column of $kind has no such value")
  override def getBoolean(row: Int): Boolean = wrong
  override def getByte(row: Int): Byte = wrong
  override def getShort(row: Int): Short = wrong
  override def getInt(row: Int): Int = wrong
  override def getLong(row: Int): Long = wrong
  override def getFloat(row: Int): Float = wrong
  override def getDouble(row: Int): Double = wrong
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = wrong
  override def getUTF8String(row: Int): UTF8String = wrong
  override def getBinary(row: Int): Array[Byte] = wrong
  override def getArray(row: Int): ColumnarArray = wrong
  override def getMap(row: Int): ColumnarMap = wrong
  override def getChild(at: Int): ColumnVector = wrong
}

private object BatchColumn {
  def bit(address: Long, row: Int): Boolean = (Platform.getByte(null, address + (row >> 3)) >> (row & 7) & 1) != 0

  /** A vector as a column of a type. Kinds that have no class here are left to Spark's. */
  def of(vector: ValueVector, kind: DataType): ColumnVector = (vector, kind) match {
    case (bits: BitVector, BooleanType) => new Booleans(bits)
    case (_: TinyIntVector, ByteType) | (_: SmallIntVector, ShortType) | (_: IntVector, IntegerType) |
        (_: BigIntVector, LongType) | (_: Float4Vector, FloatType) | (_: Float8Vector, DoubleType) |
        (_: DateDayVector, DateType) | (_: TimeStampMicroTZVector, TimestampType) |
        (_: TimeStampMicroVector, TimestampNTZType) => new Numbers(kind, vector.asInstanceOf[FieldVector])
    case (decimals: DecimalVector, decimal: DecimalType) if decimal.scale == decimals.getScale =>
      new Decimals(decimal, decimals)
    case (text: VarCharVector, _: StringType) => new Bytes(kind, text)
    case (bytes: VarBinaryVector, BinaryType) => new Bytes(kind, bytes)
    case (list: ListVector, array: ArrayType) => new Arrays(array, list)
    case (struct: StructVector, fields: StructType) => new Structs(fields, struct)
    case _ => new Lent(vector)
  }
}

/** Numbers, dates and timestamps. Which of these a column has Spark knows. */
private final class Numbers(kind: DataType, vector: FieldVector) extends BatchColumn(kind, vector) {
  private val data = vector.getDataBuffer.memoryAddress()
  override def getByte(row: Int): Byte = Platform.getByte(null, data + row)
  override def getShort(row: Int): Short = Platform.getShort(null, data + 2L * row)
  override def getInt(row: Int): Int = Platform.getInt(null, data + 4L * row)
  override def getLong(row: Int): Long = Platform.getLong(null, data + 8L * row)
  override def getFloat(row: Int): Float = Platform.getFloat(null, data + 4L * row)
  override def getDouble(row: Int): Double = Platform.getDouble(null, data + 8L * row)
}

private final class Booleans(vector: BitVector) extends BatchColumn(BooleanType, vector) {
  private val data = vector.getDataBuffer.memoryAddress()
  override def getBoolean(row: Int): Boolean = BatchColumn.bit(data, row)
}

/** Decimals of 16 bytes. Spark's class makes a BigDecimal of each, although most fit into half of these. */
private final class Decimals(kind: DecimalType, vector: DecimalVector) extends BatchColumn(kind, vector) {
  private val data = vector.getDataBuffer.memoryAddress()
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal =
    if (isNullAt(row)) null
    else if (precision > Decimal.MAX_LONG_DIGITS) Decimal(vector.getObject(row), precision, scale)
    else Decimal.createUnsafe(Platform.getLong(null, data + 16L * row), precision, scale)
}

/** Text and binaries. Text stays where it is; who keeps a value longer than the batch copies it. */
private final class Bytes(kind: DataType, vector: BaseVariableWidthVector) extends BatchColumn(kind, vector) {
  private val data = vector.getDataBuffer.memoryAddress()
  private val offsets = vector.getOffsetBuffer.memoryAddress()
  private def start(row: Int): Int = Platform.getInt(null, offsets + 4L * row)

  override def getUTF8String(row: Int): UTF8String =
    if (isNullAt(row)) null
    else {
      val from = start(row)
      UTF8String.fromAddress(null, data + from, start(row + 1) - from)
    }

  override def getBinary(row: Int): Array[Byte] =
    if (isNullAt(row)) null
    else {
      val from = start(row)
      val bytes = new Array[Byte](start(row + 1) - from)
      Platform.copyMemory(null, data + from, bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length)
      bytes
    }
}

private final class Arrays(kind: ArrayType, vector: ListVector) extends BatchColumn(kind, vector) {
  private val elements = BatchColumn.of(vector.getDataVector, kind.elementType)
  private val offsets = vector.getOffsetBuffer.memoryAddress()

  override def getArray(row: Int): ColumnarArray =
    if (isNullAt(row)) null
    else {
      val from = Platform.getInt(null, offsets + 4L * row)
      new ColumnarArray(elements, from, Platform.getInt(null, offsets + 4L * row + 4) - from)
    }
}

private final class Structs(kind: StructType, vector: StructVector) extends BatchColumn(kind, vector) {
  private val fields = kind.fields.indices.map(at =>
    BatchColumn.of(vector.getChildByOrdinal(at).asInstanceOf[ValueVector], kind(at).dataType)).toArray
  override def getChild(at: Int): ColumnVector = fields(at)
}

/** Spark's own column, which does not close the vector either. */
private final class Lent(vector: ValueVector) extends ArrowColumnVector(vector) {
  override def close(): Unit = ()
  override def closeIfFreeable(): Unit = ()
}
