"""Evolution: changes of the partition spec or the schema, each one snapshot that moves no rows.

Leaves stay as they are. A leaf is pruned by the spec it was written under, and read through the
table's current schema (`phalanx.storage.mapping`). If another transaction commits first, the change
is computed again, so that no id is assigned twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phalanx.errors import ConflictError, InvalidInput
from phalanx.model import evolution
from phalanx.model.evolution import Path
from phalanx.model.schema import TableSchema
from phalanx.model.specs import CustomField, PartitionSpec, build_spec
from phalanx.storage.head import Head
from phalanx.storage.lance_types import check_storable
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
        check_storable(schema)
        highest = max(head.max_field_id, *schema.field_ids)
        view.change_head(schema=schema, max_field_id=highest)
        specs = self.specs(head, schema)
        if specs != head.specs:
            view.change_specs(specs)

    @abstractmethod
    def change(self, head: Head) -> TableSchema:
        """The new schema of the table."""

    def specs(self, head: Head, schema: TableSchema) -> tuple[PartitionSpec, ...]:
        """The specs under the new schema."""
        return head.specs


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
    name = "change type"
    path: Path
    type: pa.DataType | str

    def change(self, head: Head) -> TableSchema:
        return evolution.change_type(head.schema, self.path, self.type)

    def specs(self, head: Head, schema: TableSchema) -> tuple[PartitionSpec, ...]:
        column = evolution.find(head.schema, self.path)
        return evolution.widen_specs(head.specs, head.schema, schema, column)


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
