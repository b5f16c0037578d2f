package org.apache.spark.sql.phalanx

import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, TransformExpression}
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys
import org.apache.spark.sql.catalyst.plans.logical.{Filter, Join, LogicalPlan, Project}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation

/**
 * Two tables that are joined by their partition columns, but not partitioned alike: by the keys that both
 * have, in one order, neither is shuffled. Spark itself compares all keys of both.
 */
object CommonKeys {
  private type Keyed = (PhalanxScan, Seq[Expression])

  private object KeyedScan {
    def unapply(relation: DataSourceV2ScanRelation): Option[Keyed] = relation.scan match {
      case scan: PhalanxScan => relation.keyGroupedPartitioning.map(scan -> _)
      case _ => None
    }
  }

  def apply(plan: LogicalPlan): LogicalPlan = {
    val chosen = plan.collect {
      case join @ ExtractEquiJoinKeys(_, left, right, _, _, a, b, _) =>
        for (one <- keyed(a); other <- keyed(b); (mine, its) <- common(one, other, left.zip(right))
             if !wantedElsewhere(plan, join, one, mine) && !wantedElsewhere(plan, join, other, its))
          yield Seq(one._1 -> mine, other._1 -> its)
    }.flatten.flatten
    plan.transform {
      case relation @ KeyedScan(scan, keys) if chosen.exists(_._1 eq scan) =>
        val (_, kept) = chosen.find(_._1 eq scan).get
        relation.copy(scan = scan.choosing(kept), keyGroupedPartitioning = Some(kept.map(keys)))
    }
  }

  /** The scan on one side of a join, if nothing but filters and columns is in between. */
  private def keyed(plan: LogicalPlan): Option[Keyed] = plan match {
    case Project(_, child) => keyed(child)
    case Filter(_, child) => keyed(child)
    case KeyedScan(scan, keys) => Some(scan -> keys)
    case _ => None
  }

  /** The places of the keys that both sides have, in one order; none if they have the same ones already. */
  private def common(one: Keyed, other: Keyed, equal: Seq[(Expression, Expression)]): Option[(Seq[Int], Seq[Int])] = {
    val (keys, its) = (one._2, other._2)
    val pairs = keys.indices.flatMap { at =>
      its.indices.find(there => matches(keys(at), its(there), equal)).map(at -> _)
    }
    val (mine, theirs) = pairs.unzip
    val alike = mine == keys.indices && theirs == its.indices
    // Keys that no column of the join has are Spark's to leave out.
    def joined(key: Expression) = equal.exists { case (a, b) =>
      key.references.exists(column => a.references.contains(column) || b.references.contains(column)) }
    val odd = keys.indices.diff(mine).map(keys).exists(joined) || its.indices.diff(theirs).map(its).exists(joined)
    val turned = theirs != theirs.sorted
    if (pairs.isEmpty || alike || !(odd || turned)) None else Some(mine -> theirs)
  }

  private def matches(a: Expression, b: Expression, equal: Seq[(Expression, Expression)]): Boolean = {
    def is(key: Expression, side: Expression) = side match {
      case column: Attribute => key.references.size == 1 && key.references.head.semanticEquals(column)
      case _ => false
    }
    equal.exists { case (x, y) => is(a, x) && is(b, y) } && alike(a, b)
  }

  private def alike(a: Expression, b: Expression): Boolean = (a, b) match {
    case (_: Attribute, _: Attribute) => true
    // Functions of different kinds say so by an exception.
    case (x: TransformExpression, y: TransformExpression) =>
      try x.isCompatible(y) catch { case _: UnsupportedOperationException => false }
    case _ => false
  }

  /** Whether keys that would be given up may be of use to another join of the query. */
  private def wantedElsewhere(plan: LogicalPlan, join: LogicalPlan, side: Keyed, kept: Seq[Int]): Boolean =
    kept.size < side._2.size && plan.exists(node => node.isInstanceOf[Join] && (node ne join))
}
