package org.apache.spark.sql.phalanx

import java.nio.charset.StandardCharsets
import java.util.concurrent.{CountDownLatch, TimeUnit}

import scala.util.control.NonFatal

import org.apache.spark.{SparkContext, SparkEnv, TaskContext}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

/**
 * Starts the Python processes that the first query needs while the rest of the session still starts: the planner, and
 * in a local session a worker for its first task. Each loads for most of a second. Spark ends them after a minute if
 * nothing needs them. If one does not start, the first query says why.
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
      val loaded = new CountDownLatch(1)
      planner = loaded
      val conf = new SQLConf
      spark.conf.getAll.foreach { case (key, value) => conf.setConfString(key, value) }
      in("phalanx-planner-start", conf)(try Bridge.load() finally loaded.countDown())
      if (Bridge.isLocal) in("phalanx-worker-start", conf)(load())
    }
  }

  /** Wait for the planner, if it is loading. */
  def await(): Unit = planner.await(Patience, TimeUnit.SECONDS)

  private def in(name: String, conf: SQLConf)(work: => Unit): Unit = {
    val thread = new Thread(() => try SQLConf.withExistingConf(conf)(work) catch {
      case NonFatal(error) => logDebug(s"$name failed", error)
    }, name)
    thread.setDaemon(true)
    thread.start()
  }

  /** Run a task that only loads. It belongs to no job, so no listener hears of it. */
  private def load(): Unit = {
    val task = TaskContext.empty()
    TaskContext.setTaskContext(task)
    try new Workers().messages(Loading, Iterator.empty, new StructType()).foreach(_ => ())
    finally {
      task.markTaskCompleted(None)
      TaskContext.unset()
    }
  }
}
