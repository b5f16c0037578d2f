package org.apache.spark.sql.phalanx

import java.util

import scala.annotation.tailrec

import org.apache.spark.sql.{SparkSession, SparkSessionExtensions, classic}
import org.apache.spark.sql.catalyst.analysis.ResolvedTable
import org.apache.spark.sql.catalyst.expressions.{Alias, And, Attribute, AttributeSet, DynamicPruning, DynamicPruningExpression, DynamicPruningSubquery, Expression, InSubquery, PredicateHelper, SubqueryExpression}
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, BROADCAST, CTERelationDef, Deduplicate, Filter, Join, JoinHint, LogicalPlan, Project, RepartitionByExpression, ShowCreateTable, Subquery, Window}
import org.apache.spark.sql.catalyst.plans.logical.statsEstimation.EstimationUtils
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.catalyst.trees.TreePattern.{CTE, DYNAMIC_PRUNING_SUBQUERY, PLAN_EXPRESSION}
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.datasources.v2.{BatchScanExec, DataSourceV2Relation, DataSourceV2ScanRelation}
import org.apache.spark.sql.execution.exchange.{ENSURE_REQUIREMENTS, ShuffleExchangeLike}
import org.apache.spark.sql.execution.joins.ShuffledJoin
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** What Phalanx adds to a session: `spark.sql.extensions`. */
class PhalanxExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    Prestart.begin()
    extensions.injectParser((_, spark) => new PhalanxParser(spark))
    // With the hints, because what does not fit is refused as soon as tables are known.
    extensions.injectHintResolutionRule(new MergeSchema(_))
    // Before Spark's own rules, whose errors say less.
    extensions.injectHintResolutionRule(new CheckPlaces(_))
    extensions.injectHintResolutionRule(new CheckOverwriteOptions(_))
    extensions.injectResolutionRule(new OverwriteOptions(_))
    extensions.injectPostHocResolutionRule(_ => CheckNewRowsOnly)
    extensions.injectPostHocResolutionRule(_ => ShowAsCreated)
    extensions.injectOptimizerRule { session =>
      LastRule.in(session)
      MarkScans
    }
    extensions.injectOptimizerRule(_ => FiltersBelowRowNumbers)
    // Where a query is planned as it runs, and where it is planned before.
    extensions.injectQueryStagePrepRule(_ => SayWhyShuffled)
    extensions.injectColumnar(_ => new ColumnarRule {
      override def preColumnarTransitions: Rule[SparkPlan] = SayWhyShuffled
    })
  }
}

/** SHOW CREATE TABLE leaves the version out: no statement gives a table one. */
object ShowAsCreated extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case show: ShowCreateTable => show.child match {
      case resolved @ ResolvedTable(_, _, table: PhalanxTable, _) =>
        show.copy(child = resolved.copy(table = table.withoutProperty("version")))
      case _ => show
    }
  }
}

/**
 * Marks the tables of a query. `Planned` tells Python to report all keys, however many: `KeepUsefulKeys` chooses among
 * them. Where a query joins nothing, Spark need not see the filters of its tables (`Alone`), and where it clusters
 * nothing either, keys are of no use (`Unclustered`).
 */
object MarkScans extends Rule[LogicalPlan] {
  val Planned = "phalanx.planned"
  val Alone = "phalanx.alone"
  val Unclustered = "phalanx.unclustered"
  /** Its rows are changed: what is read of them is decided by the change alone. */
  val Changed = "phalanx.changed"
  /** It is in the loop of a recursive query. */
  val Repeated = "phalanx.repeated"

  override def apply(plan: LogicalPlan): LogicalPlan = {
    // The plan of a subquery becomes part of a join later, and so does what has one.
    val joins = plan.isInstanceOf[Subquery] || plan.exists(node =>
      node.isInstanceOf[Join] || node.expressions.exists(SubqueryExpression.hasSubquery))
    lazy val marks =
      if (joins) Seq(Planned)
      else if (plan.exists(Clustering(_).isDefined)) Seq(Planned, Alone)
      else Seq(Planned, Alone, Unclustered)
    val looped = plan.transform { case loop if loop.nodeName == "UnionLoop" => marked(loop, Seq(Repeated)) }
    marked(looped, marks)
  }

  private def marked(plan: LogicalPlan, marks: => Seq[String]): LogicalPlan = plan.transform {
    case relation: DataSourceV2Relation
        if relation.table.isInstanceOf[PhalanxTable] && !marks.forall(relation.options.containsKey) =>
      val more = new util.HashMap(relation.options.asCaseSensitiveMap())
      marks.foreach(more.put(_, "true"))
      relation.copy(options = new CaseInsensitiveStringMap(more))
  }
}

/** What an operator wants rows clustered by, if it is one that can use partition keys. */
object Clustering {
  def apply(operator: LogicalPlan): Option[Seq[Expression]] = operator match {
    case join: Join => Some(join.condition.toSeq)
    case aggregate: Aggregate => Some(aggregate.groupingExpressions)
    case window: Window => Some(window.partitionSpec)
    case distinct: Deduplicate => Some(distinct.keys)
    case _ => None
  }
}

/** Changes nothing: scans whose rows are shuffled for a join by their partition columns say why. */
object SayWhyShuffled extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan = {
    plan.foreach {
      case join: ShuffledJoin =>
        explain(join.left, join.leftKeys, join.right)
        explain(join.right, join.rightKeys, join.left)
      case _ =>
    }
    plan
  }

  private def explain(side: SparkPlan, keys: Seq[Expression], other: SparkPlan): Unit =
    for (scan <- shuffled(side)) {
      val useful = keys.filter(_.references.exists(column => scan.isPartitionedBy(column.name)))
      scan.shuffled = useful.find(_.isInstanceOf[Attribute]).map(_ => reason(scan, other))
        .orElse(useful.headOption.map(key => s"it is by ${key.sql}, not by a column"))
    }

  private def reason(scan: PhalanxScan, other: SparkPlan): String = {
    val on = SQLConf.V2_BUCKETING_ENABLED
    if (!SQLConf.get.getConf(on)) s"${on.key} is off"
    else scan.unkeyed.getOrElse(scans(other) match {
      case Some(its) if its.unkeyed.isEmpty =>
        s"its keys, ${scan.keys}, do not go with those of ${its.label}, ${its.keys}"
      case Some(its) => s"${its.label} has no keys, because ${its.unkeyed.get}"
      case None => s"the other side is not partitioned by ${scan.keys}"
    })
  }

  /** The scan whose rows go through an exchange that a join needs. */
  private def shuffled(plan: SparkPlan): Option[PhalanxScan] = plan match {
    case exchange: ShuffleExchangeLike => if (exchange.shuffleOrigin == ENSURE_REQUIREMENTS) scans(exchange.child) else None
    case node: UnaryExecNode => shuffled(node.child)
    case _ => None
  }

  private def scans(plan: SparkPlan): Option[PhalanxScan] = plan match {
    case read: BatchScanExec => read.scan match {
      case scan: PhalanxScan => Some(scan)
      case _ => None
    }
    case node: UnaryExecNode => scans(node.child)
    case _ => None
  }
}

/**
 * Puts `KeepUsefulKeys` behind all of Spark's own rules: only then is it known what is read, and joined with what. Spark
 * has no extension for that, but a session has a list of rules that come last. A strategy of the planner would come
 * too late: what it changes is unknown to Spark when it plans a running query again.
 */
object LastRule {
  def in(session: SparkSession): Unit = {
    val methods = session.asInstanceOf[classic.SparkSession].experimental
    methods.synchronized {
      if (!methods.extraOptimizations.contains(KeepUsefulKeys)) methods.extraOptimizations :+= KeepUsefulKeys
    }
  }
}

/**
 * Partition keys cost a task each. Of those that a scan has, only the ones are kept that something above it joins,
 * groups or windows by, so that leaves with the same key share a task. Small leaves share tasks
 * whatever their keys if none is left, if a task for each would cost more than a shuffle, or if a join would only shuffle
 * the larger side to the keys of the smaller one: Spark may broadcast that one when it has seen how small it is.
 */
object KeepUsefulKeys extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan match {
    // It may become part of a join, which would have a use for its keys; it comes again with the whole plan.
    case _: Subquery => plan
    case _ =>
      val cheap = RowPruning(CheapPruning(UnprunedDefinitions(plan)))
      val chosen = settled(FewerBuckets(CommonKeys(kept(cheap))))
      withSubqueries(HashedJoins(SharedGroups(chosen)), relations(cheap).zip(relations(chosen)))
  }

  /** A plan with the same done to its subqueries. `pairs` are the relations of the whole plan, before and after. */
  private def withSubqueries(
      plan: LogicalPlan, pairs: Seq[(DataSourceV2ScanRelation, DataSourceV2ScanRelation)]): LogicalPlan =
    plan.transformAllExpressionsWithPruning(_.containsPattern(PLAN_EXPRESSION)) {
      // What prunes is a part of the plan: Spark reads a broadcast once if both are still the same.
      case pruning: DynamicPruningSubquery =>
        val same = CheapPruning(pruning.buildQuery).transform { case relation: DataSourceV2ScanRelation =>
          pairs.collectFirst { case (before, after) if before == relation => after }.getOrElse(relation)
        }
        pruning.withNewPlan(withSubqueries(HashedJoins(same), pairs))
      case subquery: SubqueryExpression => subquery.withNewPlan(apply(subquery.plan))
    }

  private def relations(plan: LogicalPlan): Seq[DataSourceV2ScanRelation] =
    plan.collect { case relation: DataSourceV2ScanRelation => relation }

  private def kept(plan: LogicalPlan): LogicalPlan = {
    lazy val (wanted, givenUp) = clusteredBy(plan)
    plan.transform {
      case relation @ KeyedScan(scan, keys) =>
        val useful = keys.indices.filter(keys(_).references.exists(wanted.contains))
        if (useful.isEmpty) {
          val isGivenUp = keys.exists(_.references.exists(givenUp.contains))
          val why = if (isGivenUp) Some("they were given up so that Spark may broadcast it") else None
          relation.copy(scan = scan.packing(why), keyGroupedPartitioning = None)
        } else if (useful == keys.indices) relation
        else relation.copy(
          scan = scan.choosing(useful.map(scan.partitioning)), keyGroupedPartitioning = Some(useful.map(keys)))
      // Spark looks for keys among the table's columns, and these are of the aggregation.
      case relation: DataSourceV2ScanRelation if relation.keyGroupedPartitioning.isEmpty =>
        relation.scan match {
          case answer: PhalanxPartialAnswer if answer.keys.nonEmpty =>
            relation.copy(keyGroupedPartitioning = Some(answer.keys.map(relation.output)))
          case _ => relation
        }
    }
  }

  private def settled(plan: LogicalPlan): LogicalPlan = plan.transform {
    case relation @ KeyedScan(scan, keys) =>
      val last = scan.settled
      if (last eq scan) relation
      else relation.copy(scan = last, keyGroupedPartitioning = if (last.isPacked) None else Some(keys))
  }

  /**
   * The columns that some operator wants rows clustered by, with the sources of those; and columns that a
   * join would want so, of a side that Spark may broadcast when it has seen how large it is.
   */
  private def clusteredBy(plan: LogicalPlan): (AttributeSet, AttributeSet) = {
    // Keys are of use where a column itself is asked for, under whatever name; not where a function of it is.
    val renamed = plan.flatMap(_.expressions.flatMap(_.collect {
      case alias @ Alias(column: Attribute, _) => alias.toAttribute -> column
    }))
    def sources(asked: Seq[Expression]): AttributeSet = {
      var columns = AttributeSet(asked.collect { case column: Attribute => column })
      var size = -1
      while (size != columns.size) {
        size = columns.size
        columns ++= AttributeSet(renamed.collect { case (name, column) if columns.contains(name) => column })
      }
      columns
    }
    def has(side: LogicalPlan, columns: AttributeSet) = side.exists {
      case relation: DataSourceV2ScanRelation =>
        relation.keyGroupedPartitioning.exists(_.exists(_.references.exists(columns.contains)))
      case _ => false
    }
    val threshold = if (SQLConf.get.adaptiveExecutionEnabled) SQLConf.get.autoBroadcastJoinThreshold else 0L
    def mayBroadcast(side: LogicalPlan, other: LogicalPlan) = {
      val size = side.stats.sizeInBytes
      size < other.stats.sizeInBytes && size < BigInt(threshold) * MostShrunk
    }
    val (wanted, givenUp) = plan.collect {
      // Spark broadcasts one side, and has no use for the keys of either.
      case ExtractEquiJoinKeys(kind, _, _, _, _, left, right, JoinHint.NONE) if BuildSides.areBroadcast(kind, left, right) =>
        (AttributeSet.empty, AttributeSet.empty)
      case ExtractEquiJoinKeys(kind, leftKeys, rightKeys, _, _, left, right, _) =>
        val (ours, theirs) = (sources(leftKeys), sources(rightKeys))
        (has(left, ours), has(right, theirs)) match {
          case (true, false) if BuildSides.left(kind) && mayBroadcast(left, right) => (AttributeSet.empty, ours)
          case (false, true) if BuildSides.right(kind) && mayBroadcast(right, left) => (AttributeSet.empty, theirs)
          case _ => (ours ++ theirs, AttributeSet.empty)
        }
      case operator => (Clustering(operator).fold(AttributeSet.empty)(sources), AttributeSet.empty)
    }.unzip
    (AttributeSet(wanted.flatten), AttributeSet(givenUp.flatten))
  }

  /** How many times larger than what Spark broadcasts a side may seem: filters may leave little of it. */
  private val MostShrunk = 100
}

/**
 * Groups by partition that a query has twice, such as a subquery that filters two tables. Spark reuses a part of a plan
 * only if it ends in a shuffle or broadcast. These groups need neither, so that their rows would be read and grouped
 * twice. To shuffle the groups that are left costs less, where Spark shuffles them to the keys of the tables.
 */
object SharedGroups {
  def apply(plan: LogicalPlan): LogicalPlan = if (!followsKeys) plan else {
    val repeated = groups(plan).map(_.canonicalized).groupBy(identity).collect { case (same, places) if places.size > 1 => same }
    if (repeated.isEmpty) plan else shared(plan, repeated.toSet)
  }

  /** Whether Spark shuffles one side of a join to the partition keys of the other. */
  private def followsKeys: Boolean = SQLConf.get.getConf(SQLConf.V2_BUCKETING_SHUFFLE_ENABLED) &&
    !SQLConf.get.getConf(SQLConf.V2_BUCKETING_PARTIALLY_CLUSTERED_DISTRIBUTION_ENABLED)

  /** The groups of a plan that are not shared yet: Spark repeats its last rules until nothing changes. */
  private def groups(plan: LogicalPlan): Seq[LogicalPlan] = plan match {
    case shuffled: RepartitionByExpression if isShared(shuffled) => Seq.empty
    case _ => (if (groupedBy(plan).isEmpty) Seq.empty else Seq(plan)) ++ plan.children.flatMap(groups)
  }

  private def shared(plan: LogicalPlan, repeated: Set[LogicalPlan]): LogicalPlan = plan match {
    case shuffled: RepartitionByExpression if isShared(shuffled) => plan
    case _ if groupedBy(plan).isEmpty || !repeated(plan.canonicalized) => plan.mapChildren(shared(_, repeated))
    case _ =>
      val shuffled = RepartitionByExpression(groupedBy(plan), plan, None)
      shuffled.setTagValue(Marked, ())
      shuffled
  }

  private val Marked = TreeNodeTag[Unit]("phalanx.shared")

  /** Whether rows are shuffled only to be shared: Spark then shuffles them to the keys of what they are joined with. */
  def isShared(shuffled: RepartitionByExpression): Boolean = shuffled.getTagValue(Marked).isDefined

  /** What rows are grouped by, if they are those of groups without a shuffle, filtered or not. */
  private def groupedBy(plan: LogicalPlan): Seq[Attribute] = plan match {
    case small if BuildSides.isSmall(small) => Seq.empty // its broadcast is reused
    case aggregate: Aggregate if CommonKeys.scanOf(aggregate).isDefined =>
      val groups = AttributeSet(aggregate.groupingExpressions.collect { case column: Attribute => column })
      aggregate.output.filter(groups.contains)
    case Project(_, child) => groupedBy(child).filter(plan.outputSet.contains)
    case Filter(_, child) => groupedBy(child)
    case _ => Seq.empty
  }
}

/**
 * Takes what prunes out of the definitions of a WITH clause. Spark runs one that is used twice, and that it may not
 * repeat because it is random, with new names for the columns of each use. It does not rename those that prune, and
 * refuses its own plan.
 */
object UnprunedDefinitions extends PredicateHelper {
  def apply(plan: LogicalPlan): LogicalPlan = plan.transformWithPruning(_.containsPattern(CTE)) {
    case definition: CTERelationDef => definition.copy(child = unpruned(definition.child))
  }

  private def unpruned(plan: LogicalPlan): LogicalPlan =
    plan.transformWithPruning(_.containsPattern(DYNAMIC_PRUNING_SUBQUERY)) { case Filter(condition, child) =>
      splitConjunctivePredicates(condition).filterNot(_.isInstanceOf[DynamicPruningSubquery]).reduceOption(And)
        .fold(child)(Filter(_, child))
    }
}

/**
 * Spark prunes one side of a join by the keys of the other, and would read the other side once more to collect them.
 * That pays where partitions keep the order of the column. A bucketed column is pruned by few values only: it
 * is left to joins whose other side is small, or broadcast in any case, where a narrow range or some values may leave
 * few rows of it. Elsewhere the filter is taken out: Spark would wait for the keys, copy each of them several times, and
 * plan the query again, for nothing.
 */
object CheapPruning extends PredicateHelper {
  /** More rows than this have values in every bucket, or take longer to read than what is pruned by them. */
  private val FewRows = 10000

  def apply(plan: LogicalPlan): LogicalPlan = plan.transform {
    case filter: Filter if filter.condition.exists(_.isInstanceOf[DynamicPruning]) =>
      val kept = splitConjunctivePredicates(filter.condition).flatMap {
        case pruning: DynamicPruningSubquery if isInVain(plan, pruning) =>
          if (mayBeFew(pruning.buildQuery) || asksForBroadcast(plan)) Some(Pruning.onlyInBroadcast(pruning)) else None
        // Which leaves have rows to change: Spark runs the whole query for that, with the columns that it needs.
        case DynamicPruningExpression(_: InSubquery) if isSmallChange(filter.child) => None
        case other => Some(other)
      }
      kept.reduceOption(And).fold(filter.child)(condition => filter.copy(condition = condition))
  }

  /** Whether a side is broadcast, and so few of its rows may be left that they prune buckets. */
  private def mayBeFew(side: LogicalPlan): Boolean =
    BuildSides.isSmall(side) && (RowPruning.isChosen(side) || rowsLeft(side).exists(_ <= FewRows))

  @tailrec
  private def rowsLeft(side: LogicalPlan): Option[Long] = side match {
    case Project(_, child) => rowsLeft(child)
    case Filter(_, child) => rowsLeft(child)
    case relation: DataSourceV2ScanRelation => Some(relation.scan).collect { case scan: PhalanxScan => scan }.flatMap(_.rowsLeft)
    case _ => None
  }

  /** Whether the rows of a table are changed that Spark reads at once. */
  private def isSmallChange(child: LogicalPlan): Boolean = child match {
    case relation: DataSourceV2ScanRelation => relation.scan match {
      case scan: PhalanxScan => scan.isSmallChange
      case _ => false
    }
    case _ => false
  }

  private def asksForBroadcast(plan: LogicalPlan): Boolean = plan.exists {
    case join: Join => Seq(join.hint.leftHint, join.hint.rightHint).flatten.exists(_.strategy.contains(BROADCAST))
    case _ => false
  }

  private def isInVain(plan: LogicalPlan, pruning: DynamicPruningSubquery): Boolean = plan.exists {
    case relation: DataSourceV2ScanRelation => relation.scan match {
      case scan: PhalanxScan => pruning.pruningKey.references.exists(column =>
        relation.outputSet.contains(column) && !scan.keepsOrderOf(column.name)) && rows(pruning.buildQuery) > FewRows
      case _ => false
    }
    case _ => false
  }

  /** About how many rows a plan has. Filters never seem to leave less than an eighth of a table. */
  private def rows(plan: LogicalPlan): BigInt =
    plan.stats.rowCount.getOrElse(plan.stats.sizeInBytes / EstimationUtils.getSizePerRow(plan.output))
}
