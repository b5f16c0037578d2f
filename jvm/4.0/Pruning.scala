package org.apache.spark.sql.phalanx

import org.apache.spark.sql.catalyst.expressions.{Attribute, DynamicPruningSubquery, Expression}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** Pruning by the keys of a join's other side. */
object Pruning {
  /** The same, if the other side is broadcast in any case. */
  def onlyInBroadcast(pruning: DynamicPruningSubquery): DynamicPruningSubquery = pruning.copy(onlyInBroadcast = true)

  /** A filter of a column by one of the keys in a broadcast: by that one, and not by rows that are read once more,
   *  because these may be others. */
  def inBroadcast(column: Attribute, built: LogicalPlan, keys: Seq[Expression], at: Int): DynamicPruningSubquery =
    DynamicPruningSubquery(column, built, keys, Seq(at), onlyInBroadcast = true)
}
