package org.apache.spark.sql.phalanx

import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, DynamicPruningSubquery, EqualNullSafe, EqualTo, Expression, In, InSet, NamedExpression, PredicateHelper}
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys
import org.apache.spark.sql.catalyst.plans.{ExistenceJoin, InnerLike, JoinType, LeftAnti, LeftOuter, LeftSemi, RightOuter}
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, Filter, Join, LocalRelation, LogicalPlan, Project}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation
import org.apache.spark.sql.internal.SQLConf

/**
 * Rows that a join would drop need not leave Python. Where Spark broadcasts a side of a join that some values are chosen
 * of, the keys in that broadcast filter the scan of a large table on the other side, whatever the column is. Spark itself
 * does that only for columns that can prune partitions.
 *
 * The scan has to wait for the broadcast, so smaller tables, and those that have a filter of their own, are left alone.
 */
object RowPruning extends PredicateHelper {
  def apply(plan: LogicalPlan): LogicalPlan =
    if (SQLConf.get.dynamicPartitionPruningEnabled && SQLConf.get.exchangeReuseEnabled) inserted(plan) else plan

  /** One of the keys of rows that Spark broadcasts. */
  private case class BroadcastKey(built: LogicalPlan, keys: Seq[Expression], at: Int)

  private def inserted(plan: LogicalPlan): LogicalPlan = plan match {
    case join @ ExtractEquiJoinKeys(kind: JoinType, leftKeys, rightKeys, _, _, left, right, _) if dropsRows(kind) =>
      // What is broadcast comes first: the filter has to be the same plan, so that it is read once.
      BuildSides.streamed(kind, left, right) match {
        case Some(side) if side eq left =>
          val built = inserted(right)
          join.withNewChildren(Seq(inserted(filtered(left, leftKeys, built, rightKeys)), built))
        case Some(_) =>
          val built = inserted(left)
          join.withNewChildren(Seq(built, inserted(filtered(right, rightKeys, built, leftKeys))))
        case None =>
          // What is broadcast within the left side filters the right one, too. The other way round would have to look
          // for it before the left side is done.
          val first = inserted(left)
          val second = leftKeys.zip(rightKeys).foldLeft(right) { case (side, (key, other)) =>
            broadcastKey(first, key).fold(side)(filteredBy(side, other, _))
          }
          join.withNewChildren(Seq(first, inserted(second)))
      }
    case other => other.mapChildren(inserted)
  }

  /** Whether a join drops rows that have no match, of both sides or of the one that it streams. */
  private def dropsRows(kind: JoinType): Boolean = kind match {
    case _: InnerLike | LeftSemi => true
    case _ => false
  }

  private def filtered(
      side: LogicalPlan, keys: Seq[Expression], built: LogicalPlan, builtKeys: Seq[Expression]): LogicalPlan =
    if (!isChosen(built)) side
    else keys.indices.foldLeft(side)((plan, at) => filteredBy(plan, keys(at), BroadcastKey(built, builtKeys, at)))

  private def filteredBy(side: LogicalPlan, key: Expression, by: BroadcastKey): LogicalPlan = key match {
    case column: Attribute if column.dataType == by.keys(by.at).dataType => placed(side, column, by).getOrElse(side)
    case _ => side
  }

  /** Whether rows are chosen by values, so that few of them may be left, and are the same whenever they are read. */
  def isChosen(built: LogicalPlan): Boolean = !built.isStreaming && built.deterministic && built.exists {
    case Filter(condition, _) => splitConjunctivePredicates(condition).exists {
      case _: EqualTo | _: EqualNullSafe | _: In | _: InSet => true
      case _ => false
    }
    case _: LocalRelation => true
    case _ => false
  }

  /** The broadcast within a plan that has all values which a column of the plan has. */
  private def broadcastKey(plan: LogicalPlan, column: Expression): Option[BroadcastKey] = plan match {
    case ExtractEquiJoinKeys(kind: JoinType, leftKeys, rightKeys, _, _, left, right, _) if dropsRows(kind) =>
      def of(keys: Seq[Expression], built: LogicalPlan, builtKeys: Seq[Expression]) =
        keys.indices.find(at => keys(at).semanticEquals(column) || builtKeys(at).semanticEquals(column))
          .filter(_ => isChosen(built)).map(BroadcastKey(built, builtKeys, _))
      val here = BuildSides.streamed(kind, left, right).flatMap(streamed =>
        if (streamed eq left) of(leftKeys, right, rightKeys) else of(rightKeys, left, leftKeys))
      here.orElse(Seq(left, right).find(side => column.references.subsetOf(side.outputSet)).flatMap(broadcastKey(_, column)))
    case Project(_, child) if column.references.subsetOf(child.outputSet) => broadcastKey(child, column)
    case Filter(_, child) => broadcastKey(child, column)
    case _ => None
  }

  /** A plan with a filter of the scan that a column comes from, if that leaves out only rows with other values of it. */
  private def placed(plan: LogicalPlan, column: Attribute, by: BroadcastKey): Option[LogicalPlan] = {
    def in(child: LogicalPlan, of: Attribute) =
      placed(child, of, by).map(changed => plan.mapChildren(other => if (other eq child) changed else other))
    def source(list: Seq[NamedExpression]) = list.collectFirst {
      case same: Attribute if same.semanticEquals(column) => same
      case alias @ Alias(source: Attribute, _) if alias.toAttribute.semanticEquals(column) => source
    }
    plan match {
      case relation: DataSourceV2ScanRelation => relation.scan match {
        case scan: PhalanxScan if relation.outputSet.contains(column) && scan.filtersRowsBy(column.name) =>
          Some(Filter(Pruning.inBroadcast(column, by.built, by.keys, by.at), relation))
        case _ => None
      }
      case Filter(condition, child) if condition.deterministic && !isPruned(condition) => in(child, column)
      case Project(list, child) if list.forall(_.deterministic) => source(list).flatMap(in(child, _))
      case aggregate: Aggregate if aggregate.deterministic => source(aggregate.aggregateExpressions)
        .filter(group => aggregate.groupingExpressions.exists(_.semanticEquals(group))).flatMap(in(aggregate.child, _))
      case Join(left, right, kind, _, _) => kind match {
        case _: InnerLike => if (left.outputSet.contains(column)) in(left, column) else in(right, column)
        case LeftOuter | LeftSemi | LeftAnti | _: ExistenceJoin if left.outputSet.contains(column) => in(left, column)
        case RightOuter if right.outputSet.contains(column) => in(right, column)
        case _ => None
      }
      case _ => None
    }
  }

  /** Whether a join prunes a scan already. */
  private def isPruned(condition: Expression): Boolean = condition.exists(_.isInstanceOf[DynamicPruningSubquery])
}
