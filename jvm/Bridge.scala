package org.apache.spark.sql.phalanx

import java.io.{DataInputStream, DataOutputStream}
import java.util.concurrent.atomic.LongAdder

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import net.razorvine.pickle.Pickler

import org.apache.spark.{SparkEnv, SparkException}
import org.apache.spark.api.python.{PythonFunction, PythonUtils, PythonWorkerUtils, SimplePythonFunction, SpecialLengths}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.execution.python.PythonPlannerRunner
import org.apache.spark.sql.internal.SQLConf

/**
 * The one door from Spark's driver to Python: `call(op, arguments)`.
 *
 * Every decision is taken behind it; this side only translates. A refusal comes back as one
 * sentence and is raised as an AnalysisException.
 */
object Bridge extends Logging {

  /** The interpreter and its environment. Made on the driver and shipped to executors, because
   *  made there it would take over that process's PYTHONPATH. */
  lazy val python: SimplePythonFunction = {
    val conf = SparkEnv.get.conf
    val found = PythonUtils.createPythonFunction(Array.emptyByteArray)
    conf.getOption("spark.pyspark.driver.python")
      .orElse(conf.getOption("spark.pyspark.python"))
      .fold(found)(exec => found.copy(pythonExec = exec))
  }

  /** A function that runs `command`, a pickled Python callable, in a Python worker. */
  def function(base: SimplePythonFunction, command: Array[Byte]): PythonFunction =
    base.copy(command = scala.collection.immutable.ArraySeq.unsafeWrapArray(command))

  // What the bridge costs: the number of calls so far, and the time in them.
  private val count, nanoseconds = new LongAdder
  def calls: Long = count.sum()
  def spent: Long = nanoseconds.sum()

  def call(op: String, arguments: (String, Any)*): JsonNode = {
    val started = System.nanoTime()
    val all = Map("op" -> op, "zone" -> SQLConf.get.sessionLocalTimeZone) ++ arguments
    val request = Json.mapper.writeValueAsBytes(Json.node(all))
    val reply = Json.mapper.readTree(new Call(python, request).runInPython())
    val took = System.nanoTime() - started
    count.increment()
    nanoseconds.add(took)
    logDebug(s"$op took ${took / 1000} us")
    val error = reply.get("error")
    if (error != null) {
      logDebug(s"$op failed: ${error.path("trace").asText()}")
      throw refusal(error.get("message").asText())
    }
    reply
  }

  def refusal(message: String): AnalysisException =
    new AnalysisException(null: String, null: String, null: String,
      Map.empty[String, String], None, Some(message))

  private val Marked = """(?s).*\[\[phalanx: (.*?)\]\].*""".r

  /** The error of a task with the sentence that Python gave, if it gave one. */
  def inTask[T](body: => T): T = try body catch {
    case error: Exception if error.getMessage != null => error.getMessage match {
      case Marked(sentence) =>
        logDebug("a task failed", error)
        throw new SparkException(sentence)
      case _ => throw error
    }
  }
}

/** One request to a planner worker. Spark keeps the worker for the next one. */
private class Call(function: PythonFunction, request: Array[Byte])
  extends PythonPlannerRunner[Array[Byte]](function) {

  // Spark's daemon runs only modules whose names begin with `pyspark`.
  override protected val workerModule: String = "pyspark_phalanx"

  override protected def writeToPython(out: DataOutputStream, pickler: Pickler): Unit =
    PythonWorkerUtils.writeBytes(request, out)

  override protected def receiveFromPython(in: DataInputStream): Array[Byte] =
    in.readInt() match {
      case SpecialLengths.PYTHON_EXCEPTION_THROWN =>
        throw new SparkException("the planner failed: " + PythonWorkerUtils.readUTF(in))
      case length => PythonWorkerUtils.readBytes(length, in)
    }
}
