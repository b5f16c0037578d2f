"""Search in Spark: `search` returns a DataFrame, and SQL has the table function `phalanx_search`.

Vectors and texts are searched on the executors, each in a part of the leaves, and the best rows of
all parts are put together. The scores of texts depend on all leaves, so the words of a query are
counted first, by a job of its own. A search by both, and one for similar words, is one task with
several threads. The table function searches all leaves in one task, too; in a lateral join there
are as many tasks as the queries have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.text import Statistics, TextQuery, is_fuzzy, query_of
from phalanx.spark.conf import CATALOG_PREFIX, PATH_CATALOG
from phalanx.spark.handles import Handle
from phalanx.spark.types import cast, exchange_type, spark_schema
from phalanx.spark.warehouse import Warehouse, parts_of
from phalanx.storage.location import Location
from phalanx.storage.read_units import ReadUnit
from phalanx.storage.searched import DISTANCE, QUERY, SCORE
from phalanx.table import hybrid
from phalanx.table.arguments import whole_number
from phalanx.table.filters import predicate_of
from phalanx.table.plan import Plan
from phalanx.table.search import (
    RELEVANCE,
    VectorSearch,
    fetched,
    index_of,
    search_share,
    search_units,
    selected_columns,
    vector_column,
    vector_search,
)
from phalanx.table.text_search import Frequencies, TextSearch, best_texts_of, text_units
from phalanx.transaction.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The name of the table function.
FUNCTION = "phalanx_search"
#: How many tasks search if the size of the cluster is not known.
_UNKNOWN_CORES = 16
_CASE_SENSITIVE = "spark.sql.caseSensitive"
#: The place of a row in the result of a task, by which equally near rows are ordered.
_SHARE, _RANK = "__share", "__rank"
_PLACES = (pa.field(_SHARE, pa.int32()), pa.field(_RANK, pa.int32()))
#: The score of a row before it was rounded to the type of the result.
_ORDER = "__order"


def search(
    spark: Any,
    table: str,
    vector: Any = None,
    *,
    queries: DataFrame | None = None,
    query_column: str | None = None,
    column: str | None = None,
    k: int = 10,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    text: Any = None,
    text_column: str | None = None,
    **options: Any,
) -> DataFrame:
    """Search a table by vector, text or both, as `phalanx.Table.search` does.

    Args:
        spark: The session.
        table: The name of the table, such as `lake.db.docs`, or its path.
        vector: The query vector.
        queries: A DataFrame of queries instead: the result has its columns, and the k best rows
            for each of its rows. It is collected.
        query_column: The column of `queries` that holds the vectors.
        column: As in `phalanx.Table.search`, like the other arguments and `options`.
        k: See there.
        where: See there.
        columns: See there.
        text: See there.
        text_column: See there.
        **options: See there.

    Raises:
        InvalidInput: As `phalanx.Table.search`; also if `queries` has a column of the result.
    """
    snapshot = Snapshot.latest(locate(_confs(spark), spark.catalog.currentCatalog(), table))
    arguments = {"column": column, "k": k, "where": where, "columns": columns}
    if text is not None:
        if queries is not None:
            raise InvalidInput("queries are vectors: search for a text without them")
        if vector is None and not is_fuzzy(query_of(text)):
            plan = Plan(snapshot, predicate_of(where, snapshot))
            shares = min(len(text_units(plan)), _parallelism(spark))
            if shares > 1:
                whole_number(k, 1, "k")
                names = selected_columns(snapshot, columns)
                part = TextShare(Handle.of(snapshot), text, text_column or column, where, shares)
                return _texts(spark, snapshot, part, k, names)
        whole = arguments | {"text": text, "text_column": text_column, **options}
        # Without rows there is nothing to search, and the columns of the result are known.
        empty = snapshot.with_leaves(snapshot.leaves.none())
        schema = hybrid.search(empty, vector, **whole).schema
        task = TextSearchTask(Handle.of(snapshot), vector, whole, _spark_json(schema))
        return _mapped(spark, 1, task)
    if queries is not None:
        return _joined(spark, snapshot, queries, query_column, arguments, options)
    asked = vector_search(snapshot, vector, column, k, **options)
    if not asked.is_single:
        raise InvalidInput("search takes one vector; pass several as the DataFrame `queries`")
    return (
        _shares(spark, snapshot, asked, where, selected_columns(snapshot, columns))
        .orderBy(DISTANCE, _SHARE, _RANK)
        .limit(k)
        .drop(QUERY, _SHARE, _RANK)
    )


def _texts(
    spark: Any, snapshot: Snapshot, part: TextShare, k: int, columns: list[str]
) -> DataFrame:
    """The best rows for a text; words are counted now, and rows are searched when asked for."""
    from pyspark.sql import functions as F

    part.asked(snapshot)  # what is wrong with the query is said here
    counted = _mapped(spark, part.shares, CountWordsTask(part)).collect()
    frequencies = sum(
        (Frequencies(Statistics(r[0], r[1]), json.loads(r[2])) for r in counted),
        Frequencies(Statistics(0, 0), {}),
    )
    whole = snapshot.head.schema.arrow
    fields = [*(whole.field(name) for name in columns), pa.field(SCORE, pa.float32())]
    fields += [pa.field(_ORDER, pa.float64()), *_PLACES]
    task = TextShareTask(part, k, tuple(columns), frequencies, _spark_json(pa.schema(fields)))
    return (
        _mapped(spark, part.shares, task)
        .orderBy(F.desc(_ORDER), _SHARE, _RANK)
        .limit(k)
        .drop(_ORDER, _SHARE, _RANK)
    )


def _joined(
    spark: Any,
    snapshot: Snapshot,
    queries: DataFrame,
    query_column: str | None,
    arguments: Mapping[str, Any],
    options: Mapping[str, Any],
) -> DataFrame:
    """The best rows for each of many queries, with the columns of the query."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if query_column is None or query_column not in queries.columns:
        known = ", ".join(queries.columns)
        raise InvalidInput(f"say which column of queries holds vectors: it has {known}")
    names = selected_columns(snapshot, arguments["columns"])
    taken = {*names, QUERY, DISTANCE, _SHARE, _RANK}.intersection(queries.columns)
    if taken:
        raise InvalidInput(
            f"queries and the result both have {', '.join(sorted(taken))}: rename the column, or "
            "leave it out of `columns`"
        )
    rows = queries.toArrow()
    numbers = pa.array(range(rows.num_rows), pa.int32())
    vectors = rows.column(query_column).to_pylist()
    if any(vector is None for vector in vectors):
        raise InvalidInput("a query vector is NULL: leave such rows out of queries")
    if not vectors:
        vectors = [[0.0] * _dimension(snapshot, arguments["column"])]
    asked = vector_search(snapshot, vectors, arguments["column"], arguments["k"], **options)
    hits = _shares(spark, snapshot, asked, arguments["where"], names)
    order = Window.partitionBy(QUERY).orderBy(DISTANCE, _SHARE, _RANK)
    best = (
        hits.withColumn("__place", F.row_number().over(order))
        .where(F.col("__place") <= arguments["k"])
        .drop("__place", _SHARE, _RANK)
    )
    numbered = spark.createDataFrame(rows.append_column(QUERY, numbers))
    return F.broadcast(numbered).join(best, QUERY).drop(QUERY)


def _dimension(snapshot: Snapshot, column: str | None) -> int:
    schema = snapshot.head.schema.arrow
    return int(schema.field(vector_column(snapshot, column)).type.list_size)


def _shares(
    spark: Any, snapshot: Snapshot, asked: VectorSearch, where: str | None, columns: list[str]
) -> DataFrame:
    """The best rows of every part of the leaves, with the numbers of queries and places."""
    plan = Plan(snapshot, predicate_of(where, snapshot))
    units = len(search_units(plan, index_of(snapshot, asked.query.column)))
    shares = max(1, min(units, _parallelism(spark)))
    schema = search_share(
        snapshot.with_leaves(snapshot.leaves.none()), asked, None, columns, 0, 1
    ).schema
    task = VectorSearchTask(
        Handle.of(snapshot),
        asked,
        where,
        tuple(columns),
        shares,
        _spark_json(pa.schema([*schema, *_PLACES])),
    )
    return _mapped(spark, shares, task)


def _parallelism(spark: Any) -> int:
    """How many tasks to search with. A client of Spark Connect does not know the cluster."""
    context = getattr(spark, "_sc", None)
    return int(_UNKNOWN_CORES if context is None else context.defaultParallelism)


def _mapped(spark: Any, count: int, task: Task) -> DataFrame:
    """The rows of a task that runs so many times, each with a number of its own."""
    numbers: DataFrame = spark.range(count, numPartitions=count)
    return numbers.mapInArrow(task, _struct(task.schema))


# Tables by name


def _confs(spark: Any) -> dict[str, str]:
    """The confs of all catalogs, and what says how names are told apart."""
    known = (CATALOG_PREFIX, _CASE_SENSITIVE)
    return {k: v for k, v in spark.conf.getAll.items() if k.startswith(known)}


def locate(confs: Mapping[str, str], current: str, name: str) -> Location:
    """The place of a table by its name, with or without a catalog, or by its path."""
    if not isinstance(name, str) or not name:
        raise InvalidInput("a table is named like 'lake.db.docs', or by its path")
    if "/" in name:
        return Warehouse(_of_catalog(confs, PATH_CATALOG.default)).location([name])
    parts, catalog = parts_of(name), current
    if CATALOG_PREFIX + parts[0] in confs and len(parts) > 1:
        catalog, *parts = parts
    case_sensitive = confs.get(_CASE_SENSITIVE, "false") == "true"
    warehouse = Warehouse(_of_catalog(confs, catalog), case_sensitive, catalog)
    return warehouse.existing(parts) or warehouse.location(parts)


def _of_catalog(confs: Mapping[str, str], catalog: str) -> dict[str, str]:
    prefix = f"{CATALOG_PREFIX}{catalog}."
    return {k.removeprefix(prefix): v for k, v in confs.items() if k.startswith(prefix)}


# Tasks


@dataclass(frozen=True)
class VectorSearchTask:
    """A function from numbers of parts to the best rows of these parts."""

    handle: Handle
    asked: VectorSearch
    where: str | None
    columns: tuple[str, ...]
    shares: int
    #: The columns of the result, as Spark's JSON.
    schema: str

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = self.handle.snapshot()
        for batch in numbers:
            for share in batch.column(0).to_pylist():
                rows = search_share(
                    snapshot, self.asked, self.where, self.columns, share, self.shares
                )
                yield from _for_spark(_placed(rows, share), self.schema).to_batches()


def _placed(rows: pa.Table, share: int) -> pa.Table:
    """Rows with their places in the result of a task."""
    count = rows.num_rows
    rows = rows.append_column(_SHARE, pa.array([share] * count, pa.int32()))
    return rows.append_column(_RANK, pa.array(range(count), pa.int32()))


@dataclass(frozen=True)
class TextShare:
    """A search for a text by several tasks, each in some of the leaves."""

    handle: Handle
    text: str | TextQuery
    column: str | None
    where: str | None
    shares: int

    def asked(self, snapshot: Snapshot) -> TextSearch:
        return TextSearch(snapshot, self.text, self.column)

    def units(self, snapshot: Snapshot, share: int) -> list[ReadUnit]:
        """The leaves of a task: runs, so that those of an earlier task come first."""
        units = text_units(Plan(snapshot, predicate_of(self.where, snapshot)))
        low, high = (len(units) * number // self.shares for number in (share, share + 1))
        return units[low:high]


@dataclass(frozen=True)
class CountWordsTask:
    """A function from numbers of parts to how often the words of a query occur in them."""

    part: TextShare
    schema: str = field(
        default_factory=lambda: _spark_json(
            pa.schema([("rows", pa.int64()), ("words", pa.int64()), ("counts", pa.string())])
        )
    )

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = self.part.handle.snapshot()
        asked = self.part.asked(snapshot)
        for batch in numbers:
            for share in batch.column(0).to_pylist():
                leaves = asked.leaves(self.part.units(snapshot, share))
                frequencies = asked.frequencies(leaves)
                statistics, counts = frequencies.statistics, json.dumps(frequencies.with_word)
                yield pa.record_batch(
                    [[statistics.rows], [statistics.words], [counts]], ["rows", "words", "counts"]
                )


@dataclass(frozen=True)
class TextShareTask:
    """A function from numbers of parts to the best rows of these parts."""

    part: TextShare
    k: int
    columns: tuple[str, ...]
    #: Those of all leaves.
    frequencies: Frequencies
    schema: str

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = self.part.handle.snapshot()
        asked = self.part.asked(snapshot)
        for batch in numbers:
            for share in batch.column(0).to_pylist():
                units = self.part.units(snapshot, share)
                best = best_texts_of(snapshot, asked, self.k, units, self.frequencies)
                scores = {
                    SCORE: pa.array(-best.distances, pa.float32()),
                    _ORDER: pa.array(-best.distances, pa.float64()),
                }
                rows = fetched(snapshot, best, self.columns, scores)
                yield from _for_spark(_placed(rows, share), self.schema).to_batches()


@dataclass(frozen=True)
class TextSearchTask:
    """A function from one row to the best rows of a table, for what needs all leaves at once."""

    handle: Handle
    vector: Any
    arguments: Mapping[str, Any]
    schema: str

    def __call__(self, once: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in once:
            if batch.num_rows:
                rows = hybrid.search(self.handle.snapshot(), self.vector, **self.arguments)
                yield from _for_spark(rows, self.schema).to_batches()


Task: TypeAlias = VectorSearchTask | TextSearchTask | TextShareTask | CountWordsTask


def _spark_json(schema: pa.Schema) -> str:
    return json.dumps(spark_schema(schema))


def _struct(schema: str) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(schema))


def _for_spark(rows: pa.Table, schema: str) -> pa.Table:
    """Rows in the types that Spark takes."""
    fields = json.loads(schema)["fields"]
    arrays = [
        cast(rows.column(f["name"]).combine_chunks(), exchange_type(f["type"]), f["name"])
        for f in fields
    ]
    return pa.Table.from_arrays(arrays, [f["name"] for f in fields])


# The table function


def register(spark: Any) -> None:
    """Make the table function `phalanx_search` known to a session, for its catalogs of now."""
    from pyspark.sql.functions import udtf

    spark.udtf.register(FUNCTION, udtf(_function(_confs(spark), spark.catalog.currentCatalog())))


def _function(confs: Mapping[str, str], current: str) -> type:
    class PhalanxSearch:
        """`SELECT * FROM phalanx_search('lake.db.docs', vector => array(…), k => 10)`."""

        @staticmethod
        def analyze(table: Any, **arguments: Any) -> Any:
            from pyspark.sql.udtf import AnalyzeResult

            values = {name: argument.value for name, argument in arguments.items()}
            struct = function_type(locate(confs, current, table.value), values)
            return AnalyzeResult(schema=struct)

        def eval(self, table: Any, **arguments: Any) -> Iterator[tuple[Any, ...]]:
            yield from function_rows(locate(confs, current, table), arguments)

    return PhalanxSearch


def function_type(location: Location, arguments: Mapping[str, Any]) -> Any:
    """The type of the table function's rows. Raises InvalidInput for an unknown argument."""
    _check_arguments(arguments)
    by_vector, by_text = "vector" in arguments, "text" in arguments
    snapshot = Snapshot.latest(location)
    schema = function_schema(snapshot, arguments.get("columns"), by_vector, by_text)
    return _struct(_spark_json(schema))


def function_schema(
    snapshot: Snapshot, columns: Sequence[str] | None, by_vector: bool, by_text: bool
) -> pa.Schema:
    """The columns of the table function's result."""
    if not by_vector and not by_text:
        raise InvalidInput(f"{FUNCTION} takes a vector, a text, or both")
    whole = snapshot.head.schema.arrow
    fields = [whole.field(name) for name in selected_columns(snapshot, columns)]
    if by_vector and by_text:
        fields.append(pa.field(RELEVANCE, pa.float64()))
    if by_vector:
        fields.append(pa.field(DISTANCE, pa.float32()))
    if by_text:
        fields.append(pa.field(SCORE, pa.float32()))
    return pa.schema(fields)


#: The arguments of the table function, and those of a search that they are.
_ARGUMENTS = {
    "vector": "vector",
    "text": "text",
    "column": "column",
    "text_column": "text_column",
    "k": "k",
    "filter": "where",
    "columns": "columns",
    "metric": "metric",
    "nprobes": "nprobes",
    "refine_factor": "refine_factor",
}


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    unknown = arguments.keys() - _ARGUMENTS.keys()
    if unknown:
        raise InvalidInput(
            f"{FUNCTION} has no argument {sorted(unknown)[0]!r}: it takes {', '.join(_ARGUMENTS)}"
        )


def function_rows(location: Location, arguments: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of the table function. Raises InvalidInput for an argument that it does not have."""
    _check_arguments(arguments)
    given = {_ARGUMENTS[name]: value for name, value in arguments.items() if value is not None}
    if given.get("vector") is None and given.get("text") is None:
        return
    snapshot = Snapshot.latest(location)
    rows = _for_spark(hybrid.search(snapshot, **given), _spark_json(_plain(snapshot, given)))
    yield from zip(*(column.to_pylist() for column in rows.columns), strict=True)


def _plain(snapshot: Snapshot, given: Mapping[str, Any]) -> pa.Schema:
    return function_schema(snapshot, given.get("columns"), "vector" in given, "text" in given)
