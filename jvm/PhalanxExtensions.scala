package org.apache.spark.sql.phalanx

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.expressions.{Alias, AttributeSet, Expression}
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, Deduplicate, Join, LogicalPlan, ReturnAnswer, Window}
import org.apache.spark.sql.classic.Strategy
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation

/** What Phalanx adds to a session: `spark.sql.extensions`. */
class PhalanxExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit =
    extensions.injectPlannerStrategy(_ => KeepUsefulKeys)
}

/**
 * Partition keys cost a task for each leaf. Where nothing above a scan joins, groups or windows by
 * a column that the keys come from, they are given up, and small leaves share tasks.
 */
object KeepUsefulKeys extends Strategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    // The whole plan comes first, and once; afterwards its parts come, which tell nothing.
    case ReturnAnswer(whole) =>
      val changed = kept(whole)
      if (changed.fastEquals(whole)) Nil else planLater(ReturnAnswer(changed)) :: Nil
    case _ => Nil
  }

  private def kept(plan: LogicalPlan): LogicalPlan = {
    lazy val wanted = clusteredBy(plan)
    plan.transform {
      case found @ DataSourceV2ScanRelation(_, scan: PhalanxScan, _, Some(keys), _, _, _)
          if !keys.exists(_.references.exists(wanted.contains)) =>
        scan.pack()
        found.copy(keyGroupedPartitioning = None)
    }
  }

  /** The columns that some operator wants rows clustered by, and those they are made of. */
  private def clusteredBy(plan: LogicalPlan): AttributeSet = {
    val asked: Seq[Expression] = plan.collect {
      case join: Join => join.condition.toSeq
      case aggregate: Aggregate => aggregate.groupingExpressions
      case window: Window => window.partitionSpec
      case distinct: Deduplicate => distinct.keys
    }.flatten
    val aliases = plan.flatMap(_.expressions.flatMap(_.collect { case alias: Alias => alias }))
    var found = AttributeSet(asked.flatMap(_.references))
    var size = -1
    while (size != found.size) {
      size = found.size
      found ++= AttributeSet(aliases.filter(a => found.contains(a.toAttribute)).flatMap(_.references))
    }
    found
  }
}
