package org.apache.spark.sql.phalanx

import java.nio.charset.StandardCharsets
import java.util.Properties
import java.util.concurrent.{CountDownLatch, TimeUnit}

import scala.util.control.NonFatal

import org.apache.spark.{SparkContext, TaskContext, TaskContextImpl}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

/**
 * Starts the Python processes that the first query needs while the rest of the session still starts: the planner, and
 * then, in a local session, a worker for its first task. Each loads for most of a second. Spark ends them after a minute
 * if nothing needs them. If one does not start, the first query says why.
 *
 * Where sessions have artifacts of their own, as those of Spark Connect, they have Python processes of their own, too, and
 * nothing is started before there is one.
 */
object Prestart extends Logging {
  /** As long as that, a query waits for the planner that is loading, and does not start another one beside it. */
  private val Patience = 10L
  /** A pickle that says: call `pyspark_phalanx.loading`. */
  private val Loading = "cpyspark_phalanx\nloading\n(tR.".getBytes(StandardCharsets.US_ASCII)

  private var application: String = _
  @volatile private var planner = new CountDownLatch(0)

  /** Begin, once for each SparkContext. */
  def begin(): Unit = for (spark <- SparkContext.getActive) synchronized {
    if (application != spark.applicationId) {
      application = spark.applicationId
      try if (isWanted(spark)) start(spark) catch {
        case NonFatal(error) => logDebug("Python is not started ahead", error)
      }
    }
  }

  /** Wait for the planner, if it is loading. */
  def await(): Unit = {
    val loading = planner
    if (!loading.await(Patience, TimeUnit.SECONDS)) loading.countDown() // nobody else waits for it
  }

  private def isWanted(spark: SparkContext): Boolean =
    Seq("spark.sql.phalanx.startAhead", "spark.python.worker.reuse", "spark.python.use.daemon")
      .forall(spark.conf.getBoolean(_, true))

  private def start(spark: SparkContext): Unit = {
    val conf = new SQLConf
    spark.conf.getAll.foreach { case (key, value) => conf.setConfString(key, value) }
    if (conf.getConf(SQLConf.ARTIFACTS_SESSION_ISOLATION_ENABLED)) return
    val loaded = new CountDownLatch(1)
    planner = loaded
    val thread = new Thread(() => SQLConf.withExistingConf(conf) {
      try {
        try Bridge.load(spark) finally loaded.countDown()
        // With a limit of its memory, a worker is another one for each task of other cores.
        if (Bridge.isLocal && !spark.conf.contains("spark.executor.pyspark.memory")) load(spark)
      } catch {
        case NonFatal(error) => logDebug("Python did not start ahead", error)
      }
    }, "phalanx-start-ahead")
    thread.setDaemon(true)
    thread.start()
  }

  /** Run a task that only loads. It belongs to no job, so no listener hears of it, and has an id that no other task has. */
  private def load(spark: SparkContext): Unit = {
    val task = new TaskContextImpl(0, 0, 0, -1L, 0, 1, null, new Properties, null)
    TaskContext.setTaskContext(task)
    try {
      val workers = new Workers()
      if (!spark.isStopped) workers.messages(Loading, Iterator.empty, new StructType()).foreach(_ => ())
    } finally {
      task.markTaskCompleted(None)
      TaskContext.unset()
    }
  }
}
