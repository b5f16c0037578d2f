package org.apache.spark.sql.phalanx

import scala.annotation.tailrec

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, Expression, TransformExpression}
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys
import org.apache.spark.sql.catalyst.plans.{ExistenceJoin, InnerLike, JoinType, LeftAnti, LeftOuter, LeftSemi, RightOuter}
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, Filter, HintInfo, Join, JoinHint, LogicalPlan, Project, RepartitionByExpression, SHUFFLE_HASH}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.functions.BoundFunction
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation
import org.apache.spark.sql.internal.SQLConf

/** A scan that has partition keys, as Spark's expressions. */
object KeyedScan {
  def unapply(relation: DataSourceV2ScanRelation): Option[(PhalanxScan, Seq[Expression])] = relation.scan match {
    case scan: PhalanxScan => relation.keyGroupedPartitioning.map(scan -> _)
    case _ => None
  }
}

/** A partition key: a transform as Python names it, and as Spark does. */
case class Key(name: JsonNode, expression: Expression) {
  /** This key and another one, both as coarse as the coarser of them. */
  def meeting(other: Key): (Key, Key) = (buckets, other.buckets, unit, other.unit) match {
    case (Some(mine), Some(its), _, _) =>
      val common = BigInt(mine).gcd(its).toInt
      (withBuckets(common), other.withBuckets(common))
    case (_, _, Some(mine), Some(its)) =>
      val common = if (SinceReducer.rank(mine) < SinceReducer.rank(its)) its else mine
      (withUnit(common), other.withUnit(common))
    case _ => (this, other)
  }

  /** The same key with the next coarser unit of time. */
  def coarser: Option[Key] = unit.flatMap(SinceReducer.coarser).map(withUnit)

  private def unit: Option[String] = function.collect { case since: Since => since.unit }

  def buckets: Option[Int] = function.collect { case _: Bucket => transform.get.numBucketsOpt }.flatten

  private def transform: Option[TransformExpression] = Some(expression).collect { case t: TransformExpression => t }

  private def function: Option[BoundFunction] = transform.map(_.function)

  def withBuckets(number: Int): Key =
    Key(renamed("bucket", Some(number)), transform.get.copy(numBucketsOpt = Some(number)))

  private def withUnit(unit: String): Key = {
    val kind = function.collect { case since: Since => since.kind }.get
    Key(renamed(unit, None), transform.get.copy(function = Since(unit, kind)))
  }

  private def renamed(called: String, buckets: Option[Int]): JsonNode = {
    val args = Json.each(name.get("args")).map(arg =>
      if (arg.has("column")) arg else Json.node(Map("value" -> buckets)))
    Json.node(Map("name" -> called, "args" -> args))
  }
}

/**
 * Two tables that are joined by their partition columns, but not partitioned alike: by the keys that both
 * have, in one order and as coarse as those of the coarser one, neither is shuffled. Spark itself compares all keys
 * of both, and reads the leaves of finer keys one by one.
 */
object CommonKeys {
  /** A scan with keys, as Python names them and as Spark does. */
  private case class Side(scan: PhalanxScan, names: Seq[JsonNode], keys: Seq[Expression]) {
    def at(place: Int): Key = Key(names(place), keys(place))
    def choosing(chosen: Seq[Key]): Side = {
      val names = chosen.map(_.name)
      Side(scan.choosing(names), names, chosen.map(_.expression))
    }
    def fits: Boolean = !scan.settled.isPacked
  }

  /** A scan is changed for one join at a time, so this goes on until all that are joined with each other agree. */
  @tailrec
  def apply(plan: LogicalPlan, passes: Int = MostPasses): LogicalPlan = {
    val changed = once(plan)
    if (passes == 0 || changed.fastEquals(plan)) plan else apply(changed, passes - 1)
  }

  /** Joins are a tree, so that fewer passes than there are tables are enough. */
  private val MostPasses = 16

  private def once(plan: LogicalPlan): LogicalPlan = {
    val chosen = plan.collect {
      case join @ ExtractEquiJoinKeys(_, left, right, _, _, a, b, _) =>
        for (one <- keyed(a); other <- keyed(b); (mine, its) <- common(one, other, left.zip(right))
             if !wantedElsewhere(plan, join, one, mine) && !wantedElsewhere(plan, join, other, its))
          yield Seq(one.scan -> mine, other.scan -> its)
    }.flatten.flatten
    plan.transform {
      case relation @ KeyedScan(scan, _) if chosen.exists(_._1 eq scan) =>
        val (_, side) = chosen.find(_._1 eq scan).get
        relation.copy(scan = side.scan, keyGroupedPartitioning = Some(side.keys))
    }
  }

  /** The scan with keys on one side of a join. */
  def scanOf(plan: LogicalPlan): Option[PhalanxScan] = keyed(plan).map(_.scan)

  /**
   * The scan by whose keys the rows of one side of a join are clustered: behind columns and filters, groups by its keys,
   * and joins that leave its rows where they are.
   */
  private def keyed(plan: LogicalPlan): Option[Side] = plan match {
    case KeyedScan(scan, keys) => Some(Side(scan, scan.partitioning, keys))
    case Project(_, child) => keyed(child)
    case Filter(_, child) => keyed(child)
    case shuffled: RepartitionByExpression if SharedGroups.isShared(shuffled) => keyed(shuffled.child)
    case aggregate: Aggregate =>
      val groups = AttributeSet(aggregate.groupingExpressions.collect { case column: Attribute => column })
      keyed(aggregate.child).filter(_.keys.forall(_.references.subsetOf(groups)))
    case ExtractEquiJoinKeys(kind, keys, others, _, _, left, right, hint) =>
      val streamed = if (hint == JoinHint.NONE) BuildSides.streamed(kind, left, right) else None
      if (streamed.isDefined) streamed.flatMap(keyed)
      else if (!BuildSides.right(kind)) None
      else for (one <- keyed(left); other <- keyed(right) if areJoined(one, other, keys.zip(others))) yield one
    case _ => None
  }

  /** Whether the keys of both sides of a join are of the columns that they are joined by, all of them. */
  def areJoined(left: LogicalPlan, right: LogicalPlan, equal: Seq[(Expression, Expression)]): Boolean =
    keyed(left).exists(one => keyed(right).exists(areJoined(one, _, equal)))

  private def areJoined(one: Side, other: Side, equal: Seq[(Expression, Expression)]): Boolean =
    one.keys.forall(key => other.keys.exists(matches(key, _, equal))) &&
      other.keys.forall(key => one.keys.exists(matches(_, key, equal)))

  /** The keys that both sides have, in one order and equally coarse; none if nothing changes by that. */
  private def common(one: Side, other: Side, equal: Seq[(Expression, Expression)]): Option[(Side, Side)] = {
    val (keys, its) = (one.keys, other.keys)
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
    if (pairs.isEmpty || !(alike || odd || turned)) None
    else {
      val met = pairs.map { case (at, there) => one.at(at).meeting(other.at(there)) }
      val levels = coarser(met).map { level =>
        val (mine, its) = level.unzip
        (one.choosing(mine), other.choosing(its))
      }
      val (a, b) = levels.find { case (a, b) => a.fits && b.fits }.getOrElse(levels.head)
      if (a.names == one.names && b.names == other.names) None else Some(a -> b)
    }
  }

  /** Pairs of keys, and then the same pairs with coarser units of time: there are fewer of these. */
  private def coarser(pairs: Seq[(Key, Key)]): LazyList[Seq[(Key, Key)]] = {
    val next = pairs.map { case (a, b) => a.coarser.zip(b.coarser).getOrElse(a -> b) }
    if (next == pairs) LazyList(pairs) else pairs #:: coarser(next)
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
  private def wantedElsewhere(plan: LogicalPlan, join: LogicalPlan, side: Side, kept: Side): Boolean =
    kept.keys.size < side.keys.size && plan.exists(node => node.isInstanceOf[Join] && (node ne join))
}

/**
 * Buckets with few rows share tasks: a task takes some milliseconds, however little it reads. There stays one for each core,
 * and none gets more rows of any table than can be looked up in memory. Rows that are shuffled for a join come to the same
 * tasks, so that all tables of the query count. Those that are joined have equally many buckets, and keep them so.
 */
object FewerBuckets {
  def apply(plan: LogicalPlan): LogicalPlan = {
    val bucketed = plan.collect { case KeyedScan(scan, keys) => buckets(scan, keys).map(_ -> scan) }.flatten
    if (bucketed.isEmpty) plan
    else {
      val largest = plan.collectLeaves().map(_.stats.sizeInBytes).max
      val fewer = bucketed.groupMap(_._1)(_._2).map { case (number, scans) =>
        number -> scans.map(enough(_, number, largest)).max }
      plan.transform {
        case relation @ KeyedScan(scan, keys) if buckets(scan, keys).exists(number => fewer(number) < number) =>
          val chosen = named(scan, keys).map(key => key.buckets.fold(key)(number => key.withBuckets(fewer(number))))
          relation.copy(scan = scan.choosing(chosen.map(_.name)), keyGroupedPartitioning = Some(chosen.map(_.expression)))
      }
    }
  }

  private def named(scan: PhalanxScan, keys: Seq[Expression]): Seq[Key] = scan.partitioning.zip(keys).map(Key.tupled)

  /** How many buckets a scan has, if they are those of one key. */
  private def buckets(scan: PhalanxScan, keys: Seq[Expression]): Option[Int] = named(scan, keys).flatMap(_.buckets) match {
    case Seq(number) => Some(number)
    case _ => None
  }

  /** The least number that divides that of the buckets of a scan, and leaves tasks enough for tables up to some size. */
  private def enough(scan: PhalanxScan, number: Int, size: BigInt): Int = {
    val cores = SparkSession.active.sparkContext.defaultParallelism
    (1 until number).find { fewer =>
      number % fewer == 0 && scan.keyCount.toLong * fewer >= cores.toLong * number &&
        size.toDouble * math.min(1.0, scan.largestShare * number / fewer) <= HashedJoins.MostBytes
    }.getOrElse(number)
  }
}

/**
 * Joins without a shuffle whose smaller side has so few rows of each key that they can be looked up in memory: then
 * neither side needs to be sorted. Spark itself would sort both, and does so where that is faster. What it broadcasts,
 * and hints, are left alone.
 */
object HashedJoins {
  /** What the rows of the largest key may take in memory: what is looked up cannot be spilled. */
  val MostBytes = 16L << 20

  def apply(plan: LogicalPlan): LogicalPlan =
    if (SQLConf.get.getConf(SQLConf.V2_BUCKETING_ENABLED)) hinted(plan) else plan

  private def hinted(plan: LogicalPlan): LogicalPlan = plan.transform {
    case join @ ExtractEquiJoinKeys(kind, keys, others, _, _, left, right, JoinHint.NONE)
        if CommonKeys.areJoined(left, right, keys.zip(others)) =>
      val (leftBuilt, rightBuilt) = (BuildSides.left(kind), BuildSides.right(kind))
      val hint = Some(HintInfo(strategy = Some(SHUFFLE_HASH)))
      val isLeftSmaller = left.stats.sizeInBytes < right.stats.sizeInBytes
      if (BuildSides.areBroadcast(kind, left, right) || QuickSorts(left, right, keys.zip(others))) join
      else if (leftBuilt && isSmall(left) && (isLeftSmaller || !rightBuilt)) join.copy(hint = JoinHint(hint, None))
      else if (rightBuilt && isSmall(right)) join.copy(hint = JoinHint(None, hint))
      else join
  }

  private def isSmall(side: LogicalPlan): Boolean =
    CommonKeys.scanOf(side).exists(scan => side.stats.sizeInBytes.toDouble * scan.largestShare <= MostBytes)
}

/**
 * Joins of two large tables by one number that takes few different values. Spark sorts such numbers byte by byte, each byte
 * in one pass over the rows. To look them up takes longer: each row waits for memory twice, when it is put into a table that
 * no cache of the processor holds, and when it is found there.
 */
object QuickSorts {
  /** A task with fewer rows on the smaller side looks them up in its caches. */
  private val FewRows = 100000
  /** The larger side is sorted too: if it has so many times the rows of the smaller one, that takes longer. */
  private val MostTimes = 2
  /** In how many bytes the numbers may differ. */
  private val MostBytes = 4

  def apply(left: LogicalPlan, right: LogicalPlan, equal: Seq[(Expression, Expression)]): Boolean = equal match {
    case Seq((a: Attribute, b: Attribute)) =>
      (for (one <- scanned(left, a); other <- scanned(right, b); rows <- one.rowsLeft; others <- other.rowsLeft) yield {
        val (smaller, few, many) = if (rows < others) (one, rows, others) else (other, others, rows)
        few * smaller.largestShare >= FewRows && few * MostTimes >= many && isNarrow(one, a) && isNarrow(other, b)
      }).getOrElse(false)
    case _ => false
  }

  /** The scan of a plan that does nothing but read and filter rows with this column. */
  @tailrec
  private def scanned(plan: LogicalPlan, column: Attribute): Option[PhalanxScan] = plan match {
    case relation @ KeyedScan(scan, _) if relation.outputSet.contains(column) => Some(scan)
    case Project(_, child) => scanned(child, column)
    case Filter(_, child) => scanned(child, column)
    case _ => None
  }

  private def isNarrow(scan: PhalanxScan, column: Attribute): Boolean = scan.boundsOf(column.name).exists { case (low, high) =>
    java.lang.Long.SIZE - java.lang.Long.numberOfLeadingZeros(low ^ high) <= MostBytes * java.lang.Byte.SIZE
  }
}

/** Which sides of a join Spark can keep in memory. */
object BuildSides {
  /** Whether Spark broadcasts one of the sides, because it is small. */
  def areBroadcast(kind: JoinType, left: LogicalPlan, right: LogicalPlan): Boolean = streamed(kind, left, right).isDefined

  /** The side that Spark reads row by row while it has the other one in memory, of a join that it broadcasts. */
  def streamed(kind: JoinType, left: LogicalPlan, right: LogicalPlan): Option[LogicalPlan] = {
    val (leftBuilt, rightBuilt) = (this.left(kind) && isSmall(left), this.right(kind) && isSmall(right))
    if (leftBuilt && rightBuilt) Some(if (left.stats.sizeInBytes <= right.stats.sizeInBytes) right else left)
    else if (leftBuilt) Some(right)
    else if (rightBuilt) Some(left)
    else None
  }

  /** Whether Spark broadcasts a plan of this size. */
  def isSmall(side: LogicalPlan): Boolean = side.stats.sizeInBytes <= SQLConf.get.autoBroadcastJoinThreshold

  def left(kind: JoinType): Boolean = kind match {
    case _: InnerLike | RightOuter => true
    case _ => false
  }

  def right(kind: JoinType): Boolean = kind match {
    case _: InnerLike | LeftOuter | LeftSemi | LeftAnti | _: ExistenceJoin => true
    case _ => false
  }
}
