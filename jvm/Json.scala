package org.apache.spark.sql.phalanx

import java.util.Base64

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.JsonNodeFactory

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.{ArrayData, MapData}
import org.apache.spark.sql.connector.expressions._
import org.apache.spark.sql.connector.expressions.aggregate.{AggregateFunc, Avg, Count, CountStar, Max, Min, Sum}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Spark's values, expressions and transforms as JSON, and back. Nothing is interpreted here. */
object Json {
  val mapper = new ObjectMapper()
  private val make = JsonNodeFactory.instance

  def node(value: Any): JsonNode = value match {
    case null | None => make.nullNode()
    case Some(inner) => node(inner)
    case tree: JsonNode => tree
    case text: String => make.textNode(text)
    case flag: Boolean => make.booleanNode(flag)
    case number: Int => make.numberNode(number)
    case number: Long => make.numberNode(number)
    case bytes: Array[Byte] => make.textNode(Base64.getEncoder.encodeToString(bytes))
    case map: Map[_, _] =>
      val tree = make.objectNode()
      map.foreach { case (key, inner) => tree.set[JsonNode](key.toString, node(inner)) }
      tree
    case map: java.util.Map[_, _] => node(map.asScala.toMap)
    case many: Array[_] => node(many.toSeq)
    case many: Iterable[_] =>
      val tree = make.arrayNode()
      many.foreach(inner => tree.add(node(inner)))
      tree
  }

  def strings(tree: JsonNode): Seq[String] = tree.elements().asScala.map(_.asText()).toSeq

  def each(tree: JsonNode): Seq[JsonNode] = tree.elements().asScala.toSeq

  def struct(tree: JsonNode): StructType =
    DataType.fromJson(mapper.writeValueAsString(tree)).asInstanceOf[StructType]

  def bytes(tree: JsonNode): Array[Byte] = Base64.getDecoder.decode(tree.asText())

  /** The name of what has no name in Python. */
  val Unknown = "?"

  /** An expression of the connector API; what is unknown becomes a call that Python refuses. */
  def expression(expr: Expression): JsonNode = expr match {
    case column: NamedReference => node(Map("column" -> column.fieldNames().toSeq))
    case literal: Literal[_] =>
      node(Map("value" -> value(literal.value, literal.dataType), "type" -> literal.dataType.json))
    case cast: Cast =>
      node(Map("call" -> "CAST", "to" -> cast.dataType.json,
        "args" -> Seq(expression(cast.expression))))
    case part: Extract =>
      node(Map("call" -> "EXTRACT", "field" -> part.field, "args" -> Seq(expression(part.source))))
    case call: GeneralScalarExpression =>
      node(Map("call" -> call.name, "args" -> call.children.toSeq.map(expression)))
    case other => node(Map("call" -> Unknown, "args" -> Seq.empty, "text" -> other.describe()))
  }

  /** An aggregate function; what is unknown gets a name that Python refuses. */
  def aggregate(function: AggregateFunc): JsonNode = function match {
    case _: CountStar => node(Map("name" -> "COUNT_STAR"))
    case count: Count => node(Map("name" -> (if (count.isDistinct) Unknown else "COUNT"), "of" -> expression(count.column)))
    case min: Min => node(Map("name" -> "MIN", "of" -> expression(min.column)))
    case max: Max => node(Map("name" -> "MAX", "of" -> expression(max.column)))
    case sum: Sum if !sum.isDistinct => node(Map("name" -> "SUM", "of" -> expression(sum.column)))
    case avg: Avg if !avg.isDistinct => node(Map("name" -> "AVG", "of" -> expression(avg.column)))
    case other => node(Map("name" -> Unknown, "text" -> other.describe()))
  }

  /**
   * A value inside Spark as JSON: dates in days, timestamps in microseconds, exact numbers as text, a
   * struct as a list of its fields, and a map as a list of pairs.
   */
  def value(value: Any, kind: DataType): JsonNode = (value, kind) match {
    case (null, _) => make.nullNode()
    case (flag: Boolean, _) => make.booleanNode(flag)
    case (number: Number, _: IntegralType | DateType | TimestampType | TimestampNTZType) =>
      make.numberNode(number.longValue())
    case (raw: Array[Byte], _) => node(raw)
    case (items: ArrayData, ArrayType(item, _)) => node(items.toSeq[Any](item).map(Json.value(_, item)))
    case (map: MapData, MapType(key, item, _)) =>
      node(map.keyArray().toSeq[Any](key).zip(map.valueArray().toSeq[Any](item)).map {
        case (k, v) => Seq(Json.value(k, key), Json.value(v, item))
      })
    case (row: InternalRow, struct: StructType) =>
      node(row.toSeq(struct).zip(struct.fields).map { case (part, field) => Json.value(part, field.dataType) })
    case (other, _) => make.textNode(other.toString)
  }

  /** The inverse of `value`. */
  def internal(tree: JsonNode, kind: DataType): Any = if (tree == null || tree.isNull) null else kind match {
    case BooleanType => tree.asBoolean()
    case ByteType => tree.asInt().toByte
    case ShortType => tree.asInt().toShort
    case IntegerType | DateType => tree.asInt()
    case LongType | TimestampType | TimestampNTZType | TimeOfDay() | _: DayTimeIntervalType =>
      tree.asLong()
    case FloatType => java.lang.Float.parseFloat(tree.asText())
    case DoubleType => java.lang.Double.parseDouble(tree.asText())
    case BinaryType => bytes(tree)
    case exact: DecimalType =>
      Decimal(new java.math.BigDecimal(tree.asText()), exact.precision, exact.scale)
    case _ => UTF8String.fromString(tree.asText())
  }

  def row(tree: JsonNode, kinds: Seq[DataType]): InternalRow = new GenericInternalRow(
    kinds.zipWithIndex.map { case (kind, at) => internal(tree.get(at), kind) }.toArray[Any])

  /** A partition transform: its name, and columns or constants as arguments. */
  def transform(transform: Transform): JsonNode =
    node(Map("name" -> transform.name(), "args" -> transform.arguments().toSeq.map(expression)))

  /** The inverse of `transform`. */
  def transform(tree: JsonNode): Transform = {
    val args: Seq[Expression] = each(tree.get("args")).map { arg =>
      if (arg.has("column")) column(strings(arg.get("column")))
      else if (arg.get("value").isTextual) Expressions.literal(arg.get("value").asText())
      else Expressions.literal(arg.get("value").asInt())
    }
    (tree.get("name").asText(), args) match {
      case ("identity", Seq(column: NamedReference)) => IdentityTransform(column)
      case ("bucket", Seq(number: Literal[_], columns @ _*)) =>
        BucketTransform(LiteralValue(number.value.asInstanceOf[Int], IntegerType), columns.map(_.asInstanceOf[NamedReference]))
      case ("years", Seq(column: NamedReference)) => YearsTransform(column)
      case ("months", Seq(column: NamedReference)) => MonthsTransform(column)
      case ("days", Seq(column: NamedReference)) => DaysTransform(column)
      case ("hours", Seq(column: NamedReference)) => HoursTransform(column)
      case (name, _) => Expressions.apply(name, args: _*)
    }
  }

  /** A column by its path. `Expressions.column` would parse a name, for each of the columns of a query. */
  def column(path: Seq[String]): NamedReference = FieldReference(path)
}
