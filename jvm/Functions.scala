package org.apache.spark.sql.phalanx

import java.time.{LocalDate, LocalDateTime, ZoneOffset}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.functions.{BoundFunction, Reducer, ReducibleFunction, ScalarFunction, UnboundFunction}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.hash.Murmur3_x86_32
import org.apache.spark.unsafe.types.UTF8String

/**
 * The partition transforms, for Spark to compute when it clusters rows or joins by partition.
 *
 * Each must give the value that `phalanx.model.transforms` gives; tests hold the two together.
 */
object Functions {
  val all: Map[String, UnboundFunction] = Seq(
    new Unbound("bucket", "bucket(n, column)", {
      case Seq(_, column) if Hashing.takes(column) => Bucket(column)
    }),
    new Unbound("multi_bucket", "multi_bucket(n, column, ...)", {
      case _ +: columns if columns.nonEmpty && columns.forall(Hashing.takes) => MultiBucket(columns)
    }),
    new Unbound("truncate", "truncate(width, column)", {
      case Seq(_, kind) if Truncate.takes(kind) => Truncate(kind)
    })
  ).map(function => function.name() -> function).toMap ++
    Seq("years", "months", "days", "hours").map(unit => unit -> new Unbound(unit, s"$unit(column)", {
      case Seq(kind @ (DateType | TimestampType | TimestampNTZType))
        if unit != "hours" || kind != DateType => Since(unit, kind)
    })) ++
    Seq("year", "month", "day", "hour").map(part => part -> new Unbound(part, s"$part(column)", {
      case Seq(kind @ (DateType | TimestampType | TimestampNTZType)) => Part(part, kind)
    }))

  private val Truncated = "truncate_(\\d+)".r

  /** A transform by its name; `truncate_4` is `truncate(4, …)`, for where constants are no arguments. */
  def find(name: String): Option[UnboundFunction] = name match {
    case Truncated(width) => Some(new Unbound(name, s"$name(column)", {
      case Seq(kind) if Truncate.takes(kind) => TruncateTo(width.toInt, kind)
    }))
    case _ => all.get(name)
  }
}

private class Unbound(called: String, text: String, make: PartialFunction[Seq[DataType], BoundFunction])
    extends UnboundFunction {
  override def name(): String = called
  override def description(): String = text
  override def bind(input: StructType): BoundFunction = make.applyOrElse(
    input.map(_.dataType),
    (kinds: Seq[DataType]) => throw new UnsupportedOperationException(
      s"$text does not take ${kinds.map(_.simpleString).mkString(", ")}"))
}

/** The bytes of a value that are hashed. They stay the same when a type is widened. */
private object Hashing {
  def takes(kind: DataType): Boolean = kind match {
    case BooleanType | _: IntegralType | FloatType | DoubleType | DateType | TimestampType
        | TimestampNTZType | StringType | BinaryType | _: DecimalType => true
    case _ => false
  }

  def bytes(value: Any, kind: DataType): Array[Byte] = kind match {
    case StringType => value.asInstanceOf[UTF8String].getBytes
    case BinaryType => value.asInstanceOf[Array[Byte]]
    case _: DecimalType => value.asInstanceOf[Decimal].toJavaBigDecimal.unscaledValue().toByteArray
    case _ =>
      val long = asLong(value)
      Array.tabulate(8)(at => (long >>> (8 * at)).toByte)
  }

  def asLong(value: Any): Long = value match {
    case flag: Boolean => if (flag) 1L else 0L
    case number: Float => doubleBits(number.toDouble)
    case number: Double => doubleBits(number)
    case number: Number => number.longValue()
  }

  private def doubleBits(number: Double): Long =
    java.lang.Double.doubleToLongBits(if (number == 0.0) 0.0 else number)

  def hash(bytes: Array[Byte]): Int =
    Murmur3_x86_32.hashUnsafeBytes2(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length, 0)

  def bucket(hash: Int, buckets: Int): Int = (math.abs(hash.toLong) % buckets).toInt
}

/** Rows of two bucketings fall into the same buckets modulo the numbers' common divisor. */
case class BucketReducer(buckets: Int) extends SparkReducer[Integer, Integer] {
  override def reduce(bucket: Integer): Integer =
    if (bucket == null) null else Int.box(bucket.intValue() % buckets)
  override def resultType(): DataType = IntegerType
  override def displayName(): String = s"bucket % $buckets"
}

private object BucketReducer {
  def between(mine: Int, other: Int): Reducer[Integer, Integer] = {
    val common = BigInt(mine).gcd(other).toInt
    if (common == mine || common == 1) null else BucketReducer(common)
  }
}

case class Bucket(kind: DataType) extends ScalarFunction[Integer]
    with ReducibleFunction[Integer, Integer] {
  override def inputTypes(): Array[DataType] = Array(IntegerType, kind)
  override def resultType(): DataType = IntegerType
  override def name(): String = "bucket"
  override def canonicalName(): String = s"phalanx.bucket(${Bucket.family(kind)})"
  override def produceResult(row: InternalRow): Integer =
    if (row.isNullAt(1)) null else {
      val value = row.get(1, kind)
      val hash = kind match {
        case StringType | BinaryType | _: DecimalType => Hashing.hash(Hashing.bytes(value, kind))
        case _ => Murmur3_x86_32.hashLong(Hashing.asLong(value), 0)
      }
      Hashing.bucket(hash, row.getInt(0))
    }
  override def reducer(mine: Int, other: ReducibleFunction[_, _], its: Int): Reducer[Integer, Integer] =
    other match {
      case Bucket(type2) if Bucket.family(type2) == Bucket.family(kind) => BucketReducer.between(mine, its)
      case _ => null
    }
}

private object Bucket {
  /** Types whose equal values have equal hashes. */
  def family(kind: DataType): String = kind match {
    case _: IntegralType => "integer"
    case FloatType | DoubleType => "float"
    case exact: DecimalType => s"decimal of scale ${exact.scale}"
    case other => other.catalogString
  }
}

case class MultiBucket(kinds: Seq[DataType]) extends ScalarFunction[Integer] {
  override def inputTypes(): Array[DataType] = (IntegerType +: kinds).toArray
  override def resultType(): DataType = IntegerType
  override def name(): String = "multi_bucket"
  override def canonicalName(): String = s"phalanx.multi_bucket(${kinds.map(Bucket.family).mkString(", ")})"
  override def produceResult(row: InternalRow): Integer = {
    val present = kinds.zipWithIndex.filterNot { case (_, at) => row.isNullAt(at + 1) }
    if (present.isEmpty) null else {
      val joined = present.map { case (kind, at) => Hashing.bytes(row.get(at + 1, kind), kind) }
      Hashing.bucket(Hashing.hash(joined.toArray.flatten), row.getInt(0))
    }
  }
}

/** The first characters of a string, or a number rounded toward zero to a multiple. */
case class Truncate(kind: DataType) extends ScalarFunction[Any] {
  override def inputTypes(): Array[DataType] = Array(IntegerType, kind)
  override def resultType(): DataType = kind
  override def name(): String = "truncate"
  override def canonicalName(): String = s"phalanx.truncate(${kind.catalogString})"
  override def produceResult(row: InternalRow): Any =
    if (row.isNullAt(1)) null else Truncate.of(row.get(1, kind), row.getInt(0), kind)
}

/** `truncate` with a fixed width. */
case class TruncateTo(width: Int, kind: DataType) extends ScalarFunction[Any] {
  override def inputTypes(): Array[DataType] = Array(kind)
  override def resultType(): DataType = kind
  override def name(): String = s"truncate_$width"
  override def canonicalName(): String = s"phalanx.truncate_$width(${kind.catalogString})"
  override def produceResult(row: InternalRow): Any =
    if (row.isNullAt(0)) null else Truncate.of(row.get(0, kind), width, kind)
}

private object Truncate {
  def takes(kind: DataType): Boolean = kind match {
    case StringType | ByteType | ShortType | IntegerType | LongType | FloatType | DoubleType
        | _: DecimalType => true
    case _ => false
  }

  def of(value: Any, width: Int, kind: DataType): Any = value match {
    case text: UTF8String => text.substring(0, width)
    case number: Byte => (number - number % width).toByte
    case number: Short => (number - number % width).toShort
    case number: Int => number - number % width
    case number: Long => number - number % width
    case number: Float => ((number.toDouble - number.toDouble % width) + 0.0).toFloat
    case number: Double => (number - number % width) + 0.0
    case number: Decimal =>
      val exact = number.toJavaBigDecimal
      Decimal(exact.subtract(exact.remainder(java.math.BigDecimal.valueOf(width))),
        kind.asInstanceOf[DecimalType].precision, kind.asInstanceOf[DecimalType].scale)
  }
}

private object Instants {
  val perDay = 86400L * 1000000L
  val perHour = 3600L * 1000000L

  /** Days since 1970 in UTC. */
  def days(row: InternalRow, kind: DataType): Int =
    if (kind == DateType) row.getInt(0) else Math.floorDiv(row.getLong(0), perDay).toInt
}

/** Whole years, months, days or hours since 1970, in UTC. */
case class Since(unit: String, kind: DataType) extends ScalarFunction[Integer]
    with ReducibleFunction[Integer, Integer] {
  override def inputTypes(): Array[DataType] = Array(kind)
  override def resultType(): DataType = IntegerType
  override def name(): String = unit
  override def canonicalName(): String = s"phalanx.$unit(${kind.catalogString})"
  override def produceResult(row: InternalRow): Integer = if (row.isNullAt(0)) null else unit match {
    case "hours" => Math.floorDiv(row.getLong(0), Instants.perHour).toInt
    case "days" => Instants.days(row, kind)
    case coarser => SinceReducer("days", coarser).reduce(Instants.days(row, kind))
  }
  override def reducer(other: ReducibleFunction[_, _]): Reducer[Integer, Integer] = other match {
    case Since(coarser, `kind`) if SinceReducer.rank(coarser) > SinceReducer.rank(unit) =>
      SinceReducer(unit, coarser)
    case _ => null
  }
}

case class SinceReducer(from: String, to: String) extends SparkReducer[Integer, Integer] {
  override def reduce(value: Integer): Integer = if (value == null) null else (from, to) match {
    case ("hours", "days") => Math.floorDiv(value.intValue(), 24)
    case ("hours", _) => SinceReducer("days", to).reduce(Math.floorDiv(value.intValue(), 24))
    case ("days", "months") =>
      val date = LocalDate.ofEpochDay(value.longValue())
      (date.getYear - 1970) * 12 + date.getMonthValue - 1
    case ("days", "years") => LocalDate.ofEpochDay(value.longValue()).getYear - 1970
    case ("months", "years") => Math.floorDiv(value.intValue(), 12)
  }
  override def resultType(): DataType = IntegerType
  override def displayName(): String = s"$from to $to"
}

private object SinceReducer {
  private val units = Seq("hours", "days", "months", "years")
  val rank: Map[String, Int] = units.zipWithIndex.toMap

  def coarser(unit: String): Option[String] = units.lift(rank(unit) + 1)
}

/** The year, month (1 to 12), day (1 to 31) or hour (0 to 23) of an instant in UTC. */
case class Part(part: String, kind: DataType) extends ScalarFunction[Integer] {
  override def inputTypes(): Array[DataType] = Array(kind)
  override def resultType(): DataType = IntegerType
  override def name(): String = part
  override def canonicalName(): String = s"phalanx.$part(${kind.catalogString})"
  override def produceResult(row: InternalRow): Integer = if (row.isNullAt(0)) null else {
    lazy val date = LocalDate.ofEpochDay(Instants.days(row, kind))
    part match {
      case "year" => date.getYear
      case "month" => date.getMonthValue
      case "day" => date.getDayOfMonth
      case "hour" =>
        if (kind == DateType) 0 else Math.floorMod(Math.floorDiv(row.getLong(0), Instants.perHour), 24)
    }
  }
}
