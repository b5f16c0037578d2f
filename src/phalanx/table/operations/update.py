"""Update: set columns of the rows that match a predicate."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model import expressions, filters
from phalanx.model.literals import Literal, lit
from phalanx.model.parser import parse
from phalanx.model.predicates import (
    EVERYTHING,
    Call,
    Term,
    columns_of,
    resolve_names,
)
from phalanx.model.schema import TableSchema, extract
from phalanx.model.spelling import type_name
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta
from phalanx.table import ingest
from phalanx.table.operations.leaf_results import (
    LeafResult,
    WhereMatches,
    result_holds,
    take_out,
)
from phalanx.table.partitioned_writer import PartitionedWriter
from phalanx.table.plan import Plan, PlannedLeaf
from phalanx.transaction.failpoints import reach
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import View


@dataclass
class Update(WhereMatches):
    """Set columns of the rows that match a predicate.

    A row whose partition values change moves to its new partition.
    """

    name = "update"
    assignments: Mapping[str, Term]
    updated: int = 0

    def run(self, view: View) -> None:
        view.check_schema(self.schema)
        snapshot = view.current()
        leaves = self._in_scope(view, Plan(snapshot, self.where).leaves)
        # One leaf after the other: each is read and written by several threads already.
        results = [(leaf, self._work_out(snapshot, leaf, view)) for leaf in leaves]
        self.updated = 0
        for leaf, result in results:
            self.updated += result.count
            if result.count and result.count == leaf.row.row_count:
                view.remove([leaf.row])
            elif result.count:
                take_out(view, leaf, result)
        for _, result in results:
            for output in result.outputs:
                place = view.place(snapshot.head.spec, output.keys)
                view.append(place, output.written, output.statistics)

    def _work_out(self, snapshot: Snapshot, leaf: PlannedLeaf, view: View) -> LeafResult:
        """The change in one leaf, with the updated rows written to files."""
        at = Leaf.of(snapshot.location, snapshot.head, leaf.row)
        version = at.newest() if leaf.version is None else leaf.version
        kept = self._kept.get(leaf.row.object_id)
        same_spec = kept is not None and kept.spec == snapshot.head.spec
        if kept is not None and same_spec and result_holds(at, kept, version, self.isolation):
            return kept
        names = snapshot.head.schema.tagged.names
        batches = at.scan(version, names, leaf.where)
        assert isinstance(view.pool, ThreadPoolExecutor)
        writer = PartitionedWriter(snapshot, view.pool)
        outputs = writer.write(self._assigned(batches, snapshot))
        count = sum(output.rows for output in outputs)
        delta = LeafDelta()
        if count and (count != leaf.row.row_count or self.isolation == "snapshot"):
            delta, deleted = at.delete(version, leaf.where or EVERYTHING)
            assert deleted == count, (deleted, count)
        reach("update.worked-out")
        kept = LeafResult(version, delta, count, outputs, snapshot.head.spec)
        kept.only_here = bool(count) and not delta.touched
        self._kept[leaf.row.object_id] = kept
        return kept

    def _assigned(
        self, batches: Iterable[pa.RecordBatch], snapshot: Snapshot
    ) -> Iterator[pa.Table]:
        """The rows with the new values."""
        for batch in batches:
            if not batch.num_rows:
                continue
            columns = {name: batch.column(name) for name in batch.schema.names}
            for name, term in self.assignments.items():
                arrays = {c.field_id: extract(batch, c.path) for c in columns_of(term)}
                columns[name] = expressions.evaluate(term, arrays, batch.num_rows, checked=True)
            yield ingest.conform(pa.table(columns), snapshot.head.schema.arrow)


def assignments_of(values: Mapping[str, Any], snapshot: Snapshot) -> dict[str, Term]:
    """The new value of each column as a term; `now()` is the time of this call.

    Text is SQL; any other value is a constant, and so is text in `phalanx.lit`.

    Raises InvalidInput for an unknown column, an expression that cannot be parsed or is volatile,
    or one whose type does not fit.
    """
    if not isinstance(values, Mapping) or not values:
        raise InvalidInput('update takes what to set, such as {"status": "\'done\'"}')
    schema, now = snapshot.head.schema, dt.datetime.now(dt.UTC)
    assignments = {}
    for name, text in values.items():
        if name not in schema.tagged.names:
            known = ", ".join(schema.tagged.names)
            raise InvalidInput(f"unknown column {name!r}: the table has {known}")
        type = schema.tagged.field(name).type
        zoned = bool(pa.types.is_timestamp(type) and type.tz is not None)
        term = filters.freeze(_parsed(text, schema), now, zoned)
        filters.refuse_volatile(term)
        if isinstance(term, Literal) and term.kind == "number":
            term = _number_of_type(term, type)
        result = expressions.type_of(term)
        if not ingest.fits(result, type):
            raise InvalidInput(f"column {name!r} is {type}, and {text} gives {result}: cast it")
        assignments[name] = term
    return assignments


def _parsed(value: Any, schema: TableSchema) -> Term:
    """What a column is set to. Raises InvalidInput for text that is no SQL about known columns."""
    if not isinstance(value, str):
        return lit(value)
    try:
        return resolve_names(parse(value), schema.column)
    except InvalidInput as error:
        raise InvalidInput(
            f"{error}; text is SQL here: for the text itself write phalanx.lit({value!r})"
        ) from None


def _number_of_type(number: Literal, type: pa.DataType) -> Term:
    """A number in a column's type: as the nearest float, or as a decimal if no digit is lost."""
    name = type_name(type)
    if name is None or not (pa.types.is_floating(type) or pa.types.is_decimal(type)):
        return number
    if pa.types.is_decimal(type):
        try:
            pa.scalar(Decimal(number.value)).cast(type)
        except pa.ArrowException:
            return number
    return Call("arrow_cast", (number, Literal("string", name)))
