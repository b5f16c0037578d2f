package org.apache.spark.sql.phalanx

import java.io.{DataInputStream, DataOutputStream, File}
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets
import java.security.MessageDigest
import java.util
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.LongAdder

import scala.jdk.CollectionConverters._
import scala.sys.process.{Process, ProcessLogger}
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.google.common.cache.CacheBuilder
import net.razorvine.pickle.Pickler

import org.apache.spark.{JobArtifactSet, SparkContext, SparkEnv, SparkException}
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

  private def conf(key: String): Option[String] =
    Option(SQLConf.get.getConfString(key, null)).filter(_.nonEmpty)

  /** The interpreter that plans. It is Python also where the driver's is, say, a notebook. */
  private def planner: SimplePythonFunction = {
    val interpreter = conf("spark.sql.phalanx.python")
      .orElse(conf("spark.pyspark.driver.python"))
      .orElse(sys.env.get("PYSPARK_DRIVER_PYTHON"))
      .filter(named => new File(named).getName.startsWith("python"))
      .getOrElse(executors)
    function(interpreter, tried(interpreter))
  }

  /** What runs tasks on executors, with the interpreter that Spark has for them. It is created on
   *  the driver: on an executor it would take over the PYTHONPATH of that process. */
  def tasks: SimplePythonFunction = function(executors, planner.pythonVer)

  private def executors: String = conf("spark.pyspark.python")
    .orElse(sys.env.get("PYSPARK_PYTHON").filter(_.nonEmpty))
    .orElse(conf("spark.sql.phalanx.python").filter(_ => isLocal))
    .getOrElse("python3")

  def isLocal: Boolean = SparkEnv.get.conf.get("spark.master", "").startsWith("local")

  // Spark looks into its archives to find these, each time.
  private lazy val archives: String = PythonUtils.sparkPythonPath

  private def path: String = PythonUtils.mergePythonPaths(archives,
    conf("spark.sql.phalanx.pythonPath").getOrElse(""), sys.env.getOrElse("PYTHONPATH", ""))

  private def function(interpreter: String, version: String) = {
    // Workers with another environment are other workers: none of ours runs a user's code.
    val env = Map("PYTHONPATH" -> path, "PHALANX_WORKER" -> "1")
    SimplePythonFunction(Seq.empty, new util.HashMap(env.asJava), util.List.of(), interpreter,
      version, util.List.of(), null)
  }

  private val versions = new ConcurrentHashMap[String, String]

  private def tried(interpreter: String): String =
    versions.computeIfAbsent(s"$interpreter $path", _ => version(interpreter))

  /** The version of an interpreter. Fails where it cannot do the work. */
  private def version(interpreter: String): String = {
    // `import phalanx` alone loads nothing else, and loading Lance takes long.
    val look = "import sys, phalanx, pyspark_phalanx; from importlib.util import find_spec; " +
      "assert find_spec('lance') and find_spec('pyarrow'); print('%d.%d' % sys.version_info[:2])"
    val said = new StringBuilder
    val quiet = ProcessLogger(out => (), err => said.append(err).append('\n'))
    try Process(Seq(interpreter, "-c", look), None, "PYTHONPATH" -> path).!!(quiet).trim catch {
      case error: Exception =>
        logDebug(s"$interpreter: $said", error)
        throw refusal(unfit(interpreter, "planner"), Condition.Environment)
    }
  }

  private def unfit(interpreter: String, whose: String): String =
    s"the Python of Spark's $whose, $interpreter, does not run or has no Phalanx: install it " +
      "there, or let PYSPARK_PYTHON or spark.pyspark.python name a Python that has it"

  /** A function that runs `command`, a pickled Python callable, in a Python worker. */
  def function(base: SimplePythonFunction, command: Array[Byte]): PythonFunction =
    base.copy(command = scala.collection.immutable.ArraySeq.unsafeWrapArray(command))

  // What the bridge costs: the number of calls so far, and the time in them.
  private val count, nanoseconds = new LongAdder
  def calls: Long = count.sum()
  def spent: Long = nanoseconds.sum()

  def request(op: String, arguments: (String, Any)*): Array[Byte] = {
    val all = Map("op" -> op, "zone" -> SQLConf.get.sessionLocalTimeZone) ++ arguments
    Json.mapper.writeValueAsBytes(Json.node(all))
  }

  def call(op: String, arguments: (String, Any)*): JsonNode =
    Json.mapper.readTree(answered(op, request(op, arguments: _*)))

  /**
   * The reply to a question about one snapshot, which is always the same, so that it is kept. A query asks some questions
   * twice, and if it is run again, all of them.
   */
  def recall(op: String, arguments: (String, Any)*): JsonNode = {
    val asked = request(op, arguments: _*)
    Json.mapper.readTree(Replies(asked)(answered(op, asked)))
  }

  private def answered(op: String, asked: Array[Byte]): Array[Byte] = {
    val started = System.nanoTime()
    val bytes = ask(op, asked)
    val took = System.nanoTime() - started
    count.increment()
    nanoseconds.add(took)
    logDebug(s"$op took ${took / 1000} us")
    if (Replies.isError(bytes)) {
      val error = Json.mapper.readTree(bytes).get("error")
      logDebug(s"$op failed: ${error.path("trace").asText()}")
      throw refusal(error.get("message").asText(),
        Condition(error.get("condition").asText(), error.get("state").asText()))
    }
    bytes
  }

  private def send(request: Array[Byte]): Array[Byte] = {
    val python = planner
    val reply = new Call(python, request).runInPython()
    KeepAlive.used(python)
    reply
  }

  /** Let a planner load what queries need, unless Spark is stopped meanwhile: nobody would end it then. */
  def load(spark: SparkContext): Unit = {
    val python = planner
    if (!spark.isStopped) new Call(python, request("load")).runInPython()
  }

  /** Asks a worker. Where it ends meanwhile, another one is asked, if the operation only looks. */
  private def ask(op: String, asked: Array[Byte]): Array[Byte] = {
    def ended(error: SparkException) = {
      logDebug(s"the planner did not answer $op", error)
      refusal(s"Phalanx's planner, a Python process, ended during ${op.replace('_', ' ')}: " +
        "run this again; if it ends again, the driver's standard error says why", Condition.Environment)
    }
    Prestart.await()
    try send(asked) catch {
      case error: SparkException =>
        try if (onlyLooks(op)) send(asked) else throw ended(error)
        catch { case again: SparkException => throw ended(again) }
    }
  }

  /** Whether an operation changes nothing: Python, which has it, knows. */
  private def onlyLooks(op: String): Boolean =
    Json.mapper.readTree(send(request("only_looks", "name" -> op))).path("looks").asBoolean()

  def refusal(message: String, condition: Condition = Condition.Invalid): AnalysisException =
    new PhalanxRefusal(message, condition)

  private val Unloaded =
    """(?s).*(?:No module named '(?:pyspark_phalanx|phalanx|pyarrow|lance)|Cannot run program).*""".r
  private val Marked = """(?s).*\[\[phalanx (\w+) (\w+): (.*?)\]\].*""".r

  /** The error of a task with the sentence that Python gave, if it gave one. */
  def inTask[T](interpreter: String)(body: => T): T = try body catch {
    case error: Exception if error.getMessage != null => error.getMessage match {
      case Marked(name, state, sentence) =>
        logDebug("a task failed", error)
        throw PhalanxFailure(sentence, Condition(name, state))
      case Unloaded() =>
        logDebug("a task did not start", error)
        throw PhalanxFailure(unfit(interpreter, "executors"), Condition.Environment)
      case _ => throw error
    }
  }
}

/** Replies that are kept, those that were asked for last. */
private object Replies {
  /** How many bytes all replies that are kept have at most, and one of them a quarter of it. */
  private val MostBytes = 16 << 20
  private val ErrorBegins = "{\"error\":".getBytes(StandardCharsets.UTF_8)

  private val kept = CacheBuilder.newBuilder().concurrencyLevel(4).maximumWeight(MostBytes)
    .weigher[ByteBuffer, Array[Byte]]((_, reply) => reply.length)
    .build[ByteBuffer, Array[Byte]]()

  /** The reply to a request: the one that is kept, or a new one. */
  def apply(asked: Array[Byte])(answer: => Array[Byte]): Array[Byte] = {
    // Requests may hold credentials, which need not stay in memory.
    val key = ByteBuffer.wrap(MessageDigest.getInstance("SHA-256").digest(asked))
    Option(kept.getIfPresent(key)).getOrElse {
      val reply = answer
      kept.put(key, reply)
      reply
    }
  }

  /** An error is all that a reply says. */
  def isError(reply: Array[Byte]): Boolean = reply.startsWith(ErrorBegins)
}

/**
 * Spark ends Python workers that have been idle for a minute, and a new planner takes most of a
 * second to load. So for half an hour after its last use, it is pinged now and then.
 */
private object KeepAlive {
  private val every = 40 * 1000L
  private val patience = 30 * 60 * 1000000000L
  private lazy val ping = Bridge.request("ping")
  private var last, captured = 0L
  private var ask: () => Unit = () => ()

  private lazy val thread = {
    val started = new Thread(() => while (true) { Thread.sleep(every); refresh() }, "phalanx-keep-alive")
    started.setDaemon(true)
    started.start()
    started
  }

  /** A planner was used: workers with its conf are kept alive. */
  def used(python: PythonFunction): Unit = synchronized {
    last = System.nanoTime()
    if (last - captured > 10 * 1000000000L || captured == 0) {
      captured = last
      val conf = SQLConf.get.clone()
      val artifacts = JobArtifactSet.getCurrentJobArtifactState.getOrElse(null)
      ask = () => JobArtifactSet.withActiveJobArtifactState(artifacts) {
        SQLConf.withExistingConf(conf)(new Call(python, ping).runInPython())
      }
      thread
    }
  }

  private def refresh(): Unit = {
    val (wanted, now) = synchronized((System.nanoTime() - last < patience, ask))
    val running = SparkContext.getActive.exists(!_.isStopped) && SparkEnv.get != null
    if (wanted && running) try now() catch { case NonFatal(_) => } // the next query starts one
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
