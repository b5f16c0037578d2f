package org.apache.spark.sql.execution.python

import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.types.StructType

/** Spark's own runner of Python functions over Arrow batches. */
abstract class SparkRunner(
    functions: Seq[(ChainedPythonFunctions, Long)],
    schema: StructType,
    zone: String,
    largeTypes: Boolean,
    conf: Map[String, String],
    metrics: Map[String, SQLMetric],
    artifacts: Option[String])
  extends ArrowPythonRunner(functions, PythonEvalType.SQL_MAP_ARROW_ITER_UDF, Array(Array(0)),
    schema, zone, largeTypes, conf, metrics, artifacts, None) with BasicPythonArrowInput
