"""The table's schema: Arrow fields with ids that are never reused.

A field is identified by its id; its name can change. Ids are assigned depth first, as Lance assigns
them in a new dataset, and stored in the metadata key `lance:field_id` of every field, nested ones
included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import InvalidInput
from phalanx.model import jsonarrow
from phalanx.model.defaults import default_of, without_defaults
from phalanx.model.expressions import evaluate_custom
from phalanx.model.paths import join_path
from phalanx.model.predicates import Column

FIELD_ID = b"lance:field_id"
#: The parts of a path that stand for the elements of a list, and the keys and values of a map.
ELEMENT, KEY, VALUE = "element", "key", "value"
#: In the metadata of a schema: columns of leaves are found by their names, not by their ids.
_BY_NAME = b"phalanx:by_name"
#: Names that no column can have.
RESERVED_NAMES = {
    *("*", "_rowid", "_rowaddr", "_rowoffset", "_distance", "_score", "_relevance_score"),
    *("_row_created_at_version", "_row_last_updated_at_version"),
}


@dataclass(frozen=True, eq=False)
class TableSchema:
    """A pyarrow schema in which every field carries its id."""

    tagged: pa.Schema

    def __eq__(self, other: object) -> bool:
        # Arrow leaves metadata out by default, and with it the ids.
        return isinstance(other, TableSchema) and bool(
            self.tagged.equals(other.tagged, check_metadata=True)
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> Any:
        # Without cached values: hashes differ between processes.
        return TableSchema, (self.tagged,)

    @cached_property
    def _hash(self) -> int:
        return hash((tuple(self.field_ids), tuple(self.tagged.names)))

    @staticmethod
    def assign(schema: pa.Schema, first: int = 0) -> TableSchema:
        """The schema of a new table: every field gets the next id from `first` on, depth first.

        Raises InvalidInput for an empty schema, a repeated or impossible name, an unknown zone.
        """
        if not isinstance(schema, pa.Schema):
            raise InvalidInput(f"a schema is a pyarrow.Schema, not {type(schema).__name__}")
        if not len(schema):
            raise InvalidInput("a table needs at least one column")
        names: set[str] = set()
        for field in schema:
            check_name(field.name, names)
            check_zones(field.type, field.name)
        counter = iter(range(first, 2**31))
        fields = [_retag(field, lambda _: str(next(counter))) for field in schema]
        return TableSchema(pa.schema(fields, metadata=schema.metadata))

    @staticmethod
    def numbered(schema: pa.Schema, ids: Iterable[int]) -> TableSchema:
        """A schema whose fields have the given ids, depth first."""
        left = iter(ids)
        fields = [_retag(field, lambda _: str(next(left))) for field in schema]
        return TableSchema(pa.schema(fields, metadata=schema.metadata))

    @staticmethod
    def from_json(value: dict[str, Any]) -> TableSchema:
        """The inverse of `to_json`. Raises InvalidInput where a field has no id of its own."""
        schema = TableSchema(jsonarrow.schema_from_json(value))
        if len(set(schema.field_ids)) < len(schema.field_ids):
            raise InvalidInput("two fields of the schema have the same lance:field_id")
        return schema

    def to_json(self) -> dict[str, Any]:
        return jsonarrow.schema_to_json(self.tagged)

    def matched_by_name(self) -> TableSchema:
        """This schema for leaves whose fields have other ids: others have made them."""
        metadata = {**(self.tagged.metadata or {}), _BY_NAME: b"true"}
        return TableSchema(self.tagged.with_metadata(metadata))

    def matched_by_id(self) -> TableSchema:
        """The inverse of `matched_by_name`."""
        return TableSchema(self.tagged.with_metadata(self._metadata))

    @cached_property
    def is_by_name(self) -> bool:
        """Whether columns of leaves are found by their names."""
        return _BY_NAME in (self.tagged.metadata or {})

    @property
    def _metadata(self) -> dict[bytes, bytes] | None:
        """What the user says about the schema."""
        metadata = dict(self.tagged.metadata or {})
        metadata.pop(_BY_NAME, None)
        return metadata or None

    def all_nullable(self) -> TableSchema:
        """This schema with every field nullable, also inside of others; keys of maps are not."""
        fields = [_nullable(field) for field in self.tagged]
        return TableSchema(pa.schema(fields, metadata=self.tagged.metadata))

    def ids_for(self, schema: pa.Schema) -> TableSchema:
        """Another schema with the ids that columns of the same names have here.

        Fields that this schema does not have get the next ids.
        """
        other = TableSchema.assign(schema)
        paths = {column.field_id: path for path, column in other._places.items()}
        following = iter(range(max(self.field_ids) + 1, 2**31))
        known = (self._places.get(paths.get(id, ())) for id in other.field_ids)
        ids = [next(following) if column is None else column.field_id for column in known]
        return TableSchema.numbered(schema, ids)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema as the user wrote it, without ids."""
        fields = [_retag(field, lambda _: None) for field in self.tagged]
        return pa.schema(fields, metadata=self._metadata)

    @cached_property
    def stored(self) -> pa.Schema:
        """The schema of files: without ids and defaults, which only the table has."""
        return pa.schema([without_defaults(f) for f in self.arrow], metadata=self._metadata)

    def only(self, names: Iterable[str]) -> TableSchema:
        """Some columns of the schema."""
        wanted = set(names)
        return TableSchema(pa.schema([f for f in self.tagged if f.name in wanted]))

    @cached_property
    def field_ids(self) -> list[int]:
        """Every id, depth first."""
        return [id for field in self.tagged for id in _ids(field)]

    @cached_property
    def id_set(self) -> frozenset[int]:
        return frozenset(self.field_ids)

    def name_of(self, id: int) -> str | None:
        """The name of the column with an id; None if there is none at the top level."""
        return next((field.name for field in self.tagged if field_id(field) == id), None)

    @cached_property
    def always_written(self) -> list[tuple[str, frozenset[int]]]:
        """The columns, with their ids, that no file may leave out, because NULL would be wrong."""
        return [
            (field.name, frozenset(_ids(field)))
            for field in self.tagged
            if not field.nullable or default_of(field) is not None
        ]

    @cached_property
    def columns(self) -> dict[int, Column]:
        """Every column that can be named in a filter, by id: nested struct fields included."""
        columns = (c for field in self.tagged for c in _columns(field, field.name, (), True, False))
        return {column.field_id: column for column in columns}

    def column(self, path: tuple[str, ...]) -> Column:
        """The column with this path. Case matters only where columns differ in nothing else.

        Raises InvalidInput where there is none, or more than one.
        """
        return self._named(path, self._by_path)

    def place(self, path: tuple[str, ...]) -> Column:
        """The same, also for a field inside a list or a map.

        Such a path has the part `element` for the elements of a list, and `key` or `value` for
        those of a map.
        """
        return self._named(path, self._places)

    def _named(self, path: tuple[str, ...], columns: Mapping[tuple[str, ...], Column]) -> Column:
        exact = columns.get(path)
        if exact is not None:
            return exact
        folded = tuple(part.casefold() for part in path)
        candidates = [c for p, c in columns.items() if tuple(x.casefold() for x in p) == folded]
        if len(candidates) == 1:
            return candidates[0]
        name = join_path(path)
        if candidates:
            raise InvalidInput(f"column {name!r} is ambiguous: quote it in its exact case")
        known = ", ".join(join_path([field.name]) for field in self.tagged)
        raise InvalidInput(f"unknown column {name!r}: the table has {known}")

    @cached_property
    def _by_path(self) -> dict[tuple[str, ...], Column]:
        return {column.path: column for column in self.columns.values()}

    @cached_property
    def _places(self) -> dict[tuple[str, ...], Column]:
        """Every field by its path, also inside lists and maps."""
        places = (c for field in self.tagged for c in _columns(field, field.name, (), True, True))
        return {place.path: place for place in places}

    @property
    def places(self) -> Iterable[Column]:
        """Every field, also inside lists and maps."""
        return self._places.values()


def field_id(field: pa.Field) -> int:
    """The id of a field. Raises InvalidInput where it has none."""
    metadata = field.metadata or {}
    if FIELD_ID not in metadata:
        raise InvalidInput(f"field {field.name!r} has no lance:field_id")
    return int(metadata[FIELD_ID])


def extract(table: pa.Table | pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    """A column, or a field inside struct columns (NULL where the struct is NULL), as one array."""
    column = table.column(path[0])
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    for part in path[1:]:
        array = pc.struct_field(array, part)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def check_name(name: str, seen: set[str]) -> None:
    """Refuse a name that a column cannot have, or that is in `seen`; then add it there."""
    if not isinstance(name, str):
        raise InvalidInput(f"a column's name is a string, not {name!r}")
    if name in seen:
        raise InvalidInput(f"column {name!r} appears twice in the schema")
    if not name:
        raise InvalidInput("a column cannot be called '': names are not empty")
    if name in RESERVED_NAMES:
        raise InvalidInput(f"a column cannot be called {name!r}: Lance uses that name itself")
    seen.add(name)


def check_zones(type: pa.DataType, name: str) -> None:
    """Refuse an unknown time zone: such a column could be written, but not read."""
    if pa.types.is_timestamp(type) and type.tz not in (None, "UTC"):
        try:
            evaluate_custom("date_part('hour', col0)", [pa.array([0], type)])
        except InvalidInput:
            raise InvalidInput(
                f"column {name!r} has the unknown time zone {type.tz!r}: write one such as "
                "'UTC', 'Europe/Berlin' or '+02:00'"
            ) from None
    if isinstance(type, pa.BaseExtensionType):
        return check_zones(type.storage_type, name)
    if pa.types.is_dictionary(type):
        return check_zones(type.value_type, name)
    for index in range(type.num_fields):
        child = type.field(index)
        check_zones(child.type, f"{name}.{child.name}")


def _children(type: pa.DataType) -> list[pa.Field]:
    """The child fields that Lance gives ids of their own."""
    t = pa.types
    if t.is_struct(type):
        return [type.field(i) for i in range(type.num_fields)]
    if t.is_map(type):
        entries = pa.struct([type.key_field, type.item_field])
        return [pa.field("entries", entries, nullable=False)]
    if t.is_fixed_size_list(type):
        return [type.value_field] if t.is_struct(type.value_type) else []
    if t.is_list(type) or t.is_large_list(type):
        return [type.value_field]
    return []


def _rebuilt(type: pa.DataType, children: list[pa.Field]) -> pa.DataType:
    t = pa.types
    if not children:
        return type
    if t.is_struct(type):
        return pa.struct(children)
    if t.is_map(type):
        entries = children[0].type
        return pa.map_(entries.field(0), entries.field(1), keys_sorted=type.keys_sorted)
    if t.is_fixed_size_list(type):
        return pa.list_(children[0], type.list_size)
    return pa.large_list(children[0]) if t.is_large_list(type) else pa.list_(children[0])


def _retag(field: pa.Field, tag: Any) -> pa.Field:
    """The field with its id, and those of the fields below it, set by `tag` (None removes)."""
    value = tag(field)
    metadata = {k: v for k, v in (field.metadata or {}).items() if k != FIELD_ID}
    if value is not None:
        metadata[FIELD_ID] = value.encode()
    children = [_retag(child, tag) for child in _children(field.type)]
    return pa.field(field.name, _rebuilt(field.type, children), field.nullable, metadata or None)


def _nullable(field: pa.Field) -> pa.Field:
    type = field.type
    if pa.types.is_map(type):
        item = _nullable(type.item_field)
        type = pa.map_(type.key_field, item, keys_sorted=type.keys_sorted)
    else:
        type = _rebuilt(type, [_nullable(child) for child in _children(type)])
    return field.with_type(type).with_nullable(True)


def _ids(field: pa.Field) -> Iterator[int]:
    yield field_id(field)
    if pa.types.is_map(field.type):
        # Arrow's map type has no place for the metadata of its entries, whose id comes just
        # before the key's.
        yield field_id(field.type.key_field) - 1
        yield from _ids(field.type.key_field)
        yield from _ids(field.type.item_field)
        return
    for child in _children(field.type):
        yield from _ids(child)


def _columns(
    field: pa.Field, name: str, parents: tuple[str, ...], required: bool, deep: bool
) -> Iterator[Column]:
    """A field and those inside it; those inside lists and maps only if `deep`."""
    path = (*parents, name)
    required = required and not field.nullable
    yield Column(path, field_id(field), untagged(field.type), not required)
    if deep or pa.types.is_struct(field.type):
        for child_name, child in inner_fields(field.type).items():
            yield from _columns(child, child_name, path, required, deep)


def inner_fields(type: pa.DataType) -> dict[str, pa.Field]:
    """The fields with ids right inside a type, by the names that paths have for them.

    The elements of a fixed-size list have no id unless they are structs.
    """
    if pa.types.is_struct(type):
        return {field.name: field for field in type}
    if pa.types.is_map(type):
        return {KEY: type.key_field, VALUE: type.item_field}
    elements = _children(type)
    return {ELEMENT: elements[0]} if elements else {}


def with_inner_fields(type: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """The type with other fields inside it, in the order of `inner_fields`."""
    if pa.types.is_map(type):
        return pa.map_(*fields, keys_sorted=type.keys_sorted)
    return _rebuilt(type, list(fields))


def untagged(type: pa.DataType) -> pa.DataType:
    """The type without the ids of the fields inside it."""
    if not _children(type):
        return type
    return _retag(pa.field("x", type), lambda _: None).type


def column_names(before: TableSchema, after: TableSchema) -> dict[str, str]:
    """The new names of the columns that stay, by the earlier ones."""
    names = {field_id(field): field.name for field in after.tagged}
    ids = ((field.name, field_id(field)) for field in before.tagged)
    return {name: names[id] for name, id in ids if id in names}
