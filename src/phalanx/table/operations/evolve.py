"""Evolution: changes of the partition spec or the schema, each one snapshot that moves no rows.

Leaves stay as they are. A leaf is pruned by the spec it was written under, and read through the
table's current schema (`phalanx.storage.mapping`). If another transaction commits first, the change
is computed again, so that no id is assigned twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.errors import ConflictError, InvalidInput
from phalanx.model import evolution
from phalanx.model.constraints import broken_by
from phalanx.model.domains import domain_of
from phalanx.model.evolution import Path
from phalanx.model.indexes import IndexDefinition
from phalanx.model.paths import join_path
from phalanx.model.predicates import Column
from phalanx.model.properties import of_columns
from phalanx.model.renaming import renamed_filter
from phalanx.model.schema import TableSchema, column_names
from phalanx.model.specs import CustomField, PartitionField, PartitionSpec, build_spec
from phalanx.model.spelling import shown_value
from phalanx.storage.head import Head
from phalanx.storage.lance_types import check_storable
from phalanx.storage.leaf import Leaf
from phalanx.storage.records import LeafRow
from phalanx.transaction.view import View


@dataclass
class EvolvePartitioning:
    """Add a new version of the partition spec; has no effect if the fields stay the same."""

    name = "evolve partitioning"
    entries: Sequence[str | CustomField]
    #: The spec that the entries were derived from, if any. If it is no longer the current one,
    #: running this raises ConflictError.
    instead_of: PartitionSpec | None = None

    def run(self, view: View) -> None:
        if self.instead_of not in (None, view.head.spec):
            raise ConflictError(
                f"the partitioning of {view.base.location.uri} was changed by another transaction: "
                "nothing was changed, try again"
            )
        spec = next_spec(view.head, self.entries)
        if spec.fields != view.head.spec.fields:
            view.add_spec(spec)


def next_spec(head: Head, entries: Sequence[str | CustomField]) -> PartitionSpec:
    """The next version of the spec. Raises InvalidInput for entries that are not valid."""
    number = max(spec.id for spec in head.specs) + 1
    return build_spec(number, entries, head.schema, head.specs)


class SchemaChange(ABC):
    """A change of the schema; has no effect if the schema stays the same."""

    name: str

    def run(self, view: View) -> None:
        """Raises InvalidInput if the change is not possible, or the table is weak."""
        head = view.head
        if head.transactions == "weak":
            raise InvalidInput(
                f"the table {view.base.location.uri} is weak, and the schema of a weak table "
                "cannot be changed: make_strong() it first"
            )
        schema = self.change(head)
        if schema == head.schema:
            return
        check_storable(schema, head.schema)
        broken = broken_by(head.constraints, head.schema, schema)
        if broken is not None:
            raise InvalidInput(
                f"the constraint {broken[0]!r} of {view.base.location.uri} needs the column "
                f"{broken[1]!r}: drop the constraint first"
            )
        specs = self.specs(head, schema)
        self.check_rows(view, schema, specs)
        highest = max(head.max_field_id, *schema.field_ids)
        indexes = _kept_indexes(head, schema)
        view.change_head(schema=schema, max_field_id=highest, indexes=indexes)
        properties = of_columns(head.properties, column_names(head.schema, schema))
        if properties != head.properties:
            view.change_head(properties=properties)
        if specs != head.specs:
            view.change_specs(specs)

    @abstractmethod
    def change(self, head: Head) -> TableSchema:
        """The new schema of the table."""

    def specs(self, head: Head, schema: TableSchema) -> tuple[PartitionSpec, ...]:
        """The specs under the new schema."""
        return head.specs

    def check_rows(self, view: View, schema: TableSchema, specs: tuple[PartitionSpec, ...]) -> None:
        """Raise InvalidInput if rows of the table forbid the change."""
        return


def _kept_indexes(head: Head, schema: TableSchema) -> dict[str, IndexDefinition]:
    """The indexes of columns that are still there; their filters name columns as the schema does.

    Raises InvalidInput for an index whose filter names a column that is dropped.
    """
    kept = {}
    for name, index in head.indexes.items():
        if index.column_id not in schema.id_set:
            continue
        if index.where is not None:
            try:
                where = renamed_filter(index.where, head.schema, schema)
            except InvalidInput:
                raise InvalidInput(
                    f"the index {name!r} is for partitions with {index.where}: drop it before a "
                    "column that it names"
                ) from None
            index = replace(index, where=where)
        kept[name] = index
    return kept


@dataclass
class AddColumn(SchemaChange):
    name = "add column"
    path: Path
    type: pa.DataType | str
    default: Any
    nullable: bool
    first: bool
    after: str | None

    def change(self, head: Head) -> TableSchema:
        return evolution.add_column(
            head.schema,
            self.path,
            self.type,
            head.max_field_id + 1,
            self.default,
            self.nullable,
            self.first,
            self.after,
        )


@dataclass
class AddMissing(SchemaChange):
    """Add the columns of input rows that are missing in the table.

    This is part of another operation, such as an append, and has its name.
    """

    name: str
    #: The columns to add.
    columns: pa.Schema

    def change(self, head: Head) -> TableSchema:
        return evolution.add_missing(head.schema, self.columns, head.max_field_id + 1)


@dataclass
class DropColumn(SchemaChange):
    name = "drop column"
    path: Path

    def change(self, head: Head) -> TableSchema:
        return evolution.drop_column(head.schema, self.path)


@dataclass
class RenameColumn(SchemaChange):
    name = "rename column"
    path: Path
    to: str

    def change(self, head: Head) -> TableSchema:
        return evolution.rename_column(head.schema, self.path, self.to)


@dataclass
class ChangeType(SchemaChange):
    """Widen a column.

    Whether a custom expression gives the same value for a wider type can only be tried. So if a
    table is partitioned by one, the column is read, and the change is refused if a row would
    belong to another partition.
    """

    name = "change type"
    path: Path
    type: pa.DataType | str
    #: The versions of leaves whose rows would stay: a retry does not read them again.
    _stay: set[tuple[str, int | None]] = field(default_factory=set)

    def change(self, head: Head) -> TableSchema:
        return evolution.change_type(head.schema, self.path, self.type)

    def specs(self, head: Head, schema: TableSchema) -> tuple[PartitionSpec, ...]:
        column = evolution.find(head.schema, self.path)
        return evolution.widen_specs(head.specs, head.schema, schema, column)

    def check_rows(self, view: View, schema: TableSchema, specs: tuple[PartitionSpec, ...]) -> None:
        column = evolution.find(view.schema, self.path)
        unproven = {spec.id: evolution.unproven_fields(spec, column) for spec in view.head.specs}
        if not any(unproven.values()):
            return
        leaves = view.current().leaves
        for spec in specs:
            if unproven[spec.id]:
                before = leaves.specs[spec.id]
                check = _StayCheck(view, column, schema, before, spec, unproven[spec.id])
                rows = leaves.rows(np.arange(*leaves.range_of(spec.id)))
                new = [r for r in rows if (r.object_id, r.read_version) not in self._stay]
                for row in view.pool.map(check.leaf, new):
                    self._stay.add((row.object_id, row.read_version))


@dataclass(frozen=True)
class _StayCheck:
    """Whether the rows of a spec stay in their leaves when a column becomes wider."""

    view: View
    column: Column
    #: The table's schema with the wider column.
    schema: TableSchema
    #: The spec before and after.
    before: PartitionSpec
    after: PartitionSpec
    #: The fields to look at.
    numbers: Sequence[int]

    def leaf(self, row: LeafRow) -> LeafRow:
        """The leaf itself. Raises InvalidInput if a row of it would belong elsewhere."""
        fields = [self.after.fields[number] for number in self.numbers]
        sources = {source for field in fields for source in field.sources(self.schema)}
        names = sorted({source.path[0] for source in sources if source is not None})
        head = replace(self.view.head, schema=self.schema)
        leaf = Leaf.of(self.view.base.location, head, row)
        for batch in leaf.scan(row.read_version, names, None):
            for number in self.numbers:
                self._batch(batch, number, row)
        return row

    def _batch(self, batch: pa.RecordBatch, number: int, row: LeafRow) -> None:
        before, after = self.before.fields[number], self.after.fields[number]
        held = domain_of(before.result_type).array([row.keys[number]]).cast(after.result_type)
        try:
            values = after.apply(batch, self.schema)
        except InvalidInput as error:
            raise self._refusal(before, f"and {error}") from None
        domain = domain_of(after.result_type)
        keys = {domain.key(value) if value.is_valid else None for value in values.unique()}
        wanted = domain.key(held[0]) if held[0].is_valid else None
        for other in keys - {wanted}:
            texts = [shown_value(key, after.result_type) for key in (wanted, other)]
            raise self._refusal(
                before,
                f"and a row of the partition {before.field_id}={texts[0]} would belong to "
                f"{before.field_id}={texts[1]}",
            )

    def _refusal(self, field: PartitionField, reason: str) -> InvalidInput:
        head = self.view.head
        wanted = self.schema.columns[self.column.field_id].type
        return InvalidInput(
            f"column {join_path(self.column.path)!r} of {self.view.base.location.uri} cannot "
            f"become {wanted}: the table is partitioned by {field.spell(head.schema)}, {reason}; "
            "partition it by something else with evolve_partitioning, rewrite its rows, and try "
            "again"
        )


@dataclass
class SetDefault(SchemaChange):
    name = "set default"
    path: Path
    #: A value, a `Default`, or None for none.
    default: Any

    def change(self, head: Head) -> TableSchema:
        return evolution.set_default(head.schema, self.path, self.default)


@dataclass
class MakeNullable(SchemaChange):
    name = "make nullable"
    path: Path

    def change(self, head: Head) -> TableSchema:
        return evolution.make_nullable(head.schema, self.path)


@dataclass
class DescribeColumn(SchemaChange):
    name = "describe column"
    path: Path
    texts: Mapping[str, str | None]

    def change(self, head: Head) -> TableSchema:
        return evolution.describe_column(head.schema, self.path, self.texts)


@dataclass
class MoveColumn(SchemaChange):
    name = "move column"
    path: Path
    first: bool
    after: str | None

    def change(self, head: Head) -> TableSchema:
        return evolution.move_column(head.schema, self.path, self.first, self.after)


@dataclass
class ReorderColumns(SchemaChange):
    name = "reorder columns"
    names: Sequence[str]

    def change(self, head: Head) -> TableSchema:
        return evolution.reorder_columns(head.schema, self.names)
