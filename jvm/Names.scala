package org.apache.spark.sql.phalanx

import org.apache.spark.sql.{SparkSession, classic}
import org.apache.spark.sql.catalyst.analysis.{UnresolvedIdentifier, UnresolvedRelation}
import org.apache.spark.sql.catalyst.plans.logical.{CreateTable, CreateTableAsSelect, LogicalPlan, ReplaceTable, ReplaceTableAsSelect, TableSpecBase}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}

/** Names of tables, as a session understands them. */
object Names {
  /** The catalog of a name, and the rest of the name. */
  def resolved(session: SparkSession, name: Seq[String]): (CatalogPlugin, Identifier) = {
    val manager = session.asInstanceOf[classic.SparkSession].sessionState.catalogManager
    val (catalog, rest) =
      if (name.size > 1 && manager.isCatalogRegistered(name.head)) (manager.catalog(name.head), name.tail)
      else (manager.currentCatalog, name)
    val namespace = if (rest.size > 1) rest.init.toArray else manager.currentNamespace
    catalog -> Identifier.of(namespace, rest.last)
  }
}

/**
 * Refuses `CREATE TABLE … USING parquet` in a catalog of Phalanx. The catalog itself cannot: a frame or
 * stream that is written to a table names Spark's default format where its user names none.
 */
object Providers {
  def checked(plan: LogicalPlan): LogicalPlan = {
    plan.foreach {
      case create: CreateTable => check(create.name, create.tableSpec)
      case replace: ReplaceTable => check(replace.name, replace.tableSpec)
      case create: CreateTableAsSelect => check(create.name, create.tableSpec)
      case replace: ReplaceTableAsSelect => check(replace.name, replace.tableSpec)
      case _ =>
    }
    plan
  }

  private def check(table: LogicalPlan, spec: TableSpecBase): Unit = (table, spec.provider) match {
    case (UnresolvedIdentifier(name, _), Some(provider)) if !provider.equalsIgnoreCase(PhalanxSource.catalog) =>
      for (session <- SparkSession.getActiveSession) Names.resolved(session, name)._1 match {
        case ours: PhalanxCatalog => throw ours.foreign(provider)
        case _ =>
      }
    case _ =>
  }
}

/** Refuses a path without a table, and a table of Phalanx that is to be made in a catalog of others. */
class CheckPlaces(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case relation @ UnresolvedRelation(Seq(provider, path), _, _)
        if provider.equalsIgnoreCase(PhalanxSource.catalog) && path.contains("/") =>
      Names.resolved(session, relation.multipartIdentifier) match {
        case (ours: PhalanxCatalog, _) if !ours.tableExists(PhalanxPath(path)) =>
          throw Bridge.refusal(s"there is no table at $path", Condition.NotFound)
        case _ => relation
      }
    case create: CreateTable if create.columns.nonEmpty => check(create, create.name, create.tableSpec)
    case replace: ReplaceTable if replace.columns.nonEmpty => check(replace, replace.name, replace.tableSpec)
    case create: CreateTableAsSelect => check(create, create.name, create.tableSpec)
    case replace: ReplaceTableAsSelect => check(replace, replace.name, replace.tableSpec)
  }

  private def check(plan: LogicalPlan, table: LogicalPlan, spec: TableSpecBase): LogicalPlan = {
    (table, spec.provider) match {
      case (UnresolvedIdentifier(name, _), Some(provider)) if provider.equalsIgnoreCase(PhalanxSource.catalog) =>
        Names.resolved(session, name) match {
          case (_: PhalanxCatalog, _) =>
          case (other, ident) => throw Bridge.refusal(s"${other.name()} is not a Phalanx catalog: create the table " +
            s"in one, such as ${ours.getOrElse("lake")}.${(ident.namespace() :+ ident.name()).mkString(".")}")
        }
      case _ =>
    }
    plan
  }

  /** The name of a catalog of Phalanx, other than that of paths. */
  private def ours: Option[String] = {
    val Catalog = """spark\.sql\.catalog\.(\w+)""".r
    session.conf.getAll.collectFirst {
      case (Catalog(name), kind) if kind == classOf[PhalanxCatalog].getName && name != PhalanxSource.catalog => name
    }
  }
}
