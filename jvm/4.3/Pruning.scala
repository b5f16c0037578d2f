package org.apache.spark.sql.phalanx

import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery

/** Pruning by the keys of a join's other side. */
object Pruning {
  /** The same, if the other side is broadcast in any case. */
  def onlyInBroadcast(pruning: DynamicPruningSubquery): DynamicPruningSubquery =
    pruning.copy(onlyInBroadcast = true)(pruning.broadcastValueProjection)
}
