"""The leaves of a snapshot as columns: everything that planning needs to know about them.

Rows are sorted by spec and partition values, so the order of a scan does not depend on the order in
which rows were written. The columns are also cached in a memory-mapped file
(`phalanx.storage.cache`), so that a new process can plan immediately.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import CorruptTable, PhalanxError, UnsupportedTable
from phalanx.model.domains import domain_of
from phalanx.model.partition_columns import Given
from phalanx.model.pruning import PartitionColumn, column_of
from phalanx.model.specs import PartitionField, PartitionSpec
from phalanx.storage.head import Head
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.manifest_update import READ_VERSION, manifest_schema, partition_columns
from phalanx.storage.names import SEPARATOR, is_leaf_id, leaf_version, spec_of
from phalanx.storage.records import LeafRow

Array = np.ndarray[Any, Any]
_NUMBERS = ("version_number", "row_count", "byte_count", "fragment_count")
_CHANGING = ("read_version", *_NUMBERS)
#: Up to this many new leaves are inserted one by one; with more, all leaves are sorted again.
_INSERT_ONE_BY_ONE = 256
_PLANNING = ("object_id", "location", "spec_id", *_CHANGING)


class LeafIndex:
    """The leaves of one snapshot."""

    def __init__(self, table: pa.Table, specs: Iterable[PartitionSpec]) -> None:
        self.table = table.combine_chunks() if table.num_rows else table
        self.specs = {spec.id: spec for spec in specs}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @staticmethod
    def read(
        manifest: ManifestVersion,
        head: Head,
        *,
        ids: Sequence[str] | None = None,
        since: int | None = None,
    ) -> LeafIndex:
        """Read every leaf, some leaves by their ids, or those written since a version."""
        rows = manifest.leaves(LeafIndex.columns_in(head), ids=ids, since=since)
        return LeafIndex.of_rows(rows, manifest, head)

    @staticmethod
    def columns_in(head: Head) -> list[str]:
        """The columns of the manifest that an index of the leaves needs."""
        return [*_PLANNING, *partition_columns(head.specs)]

    @staticmethod
    def of_rows(rows: pa.Table, manifest: ManifestVersion, head: Head) -> LeafIndex:
        """The leaves in rows of the manifest; tables of other clients are left out.

        Raises CorruptTable if a column of partition values is missing or if the row of a leaf fits
        no spec, and UnsupportedTable if another client has made the table without such a column. It
        may do so as long as there is no leaf.
        """
        for name, field in partition_columns(head.specs).items():
            if name not in rows.schema.names and not (head.ours or rows.num_rows):
                rows = rows.append_column(name, pa.nulls(0, field.result_type))
            elif name not in rows.schema.names:
                raise _lost(name, field.field_id, manifest.location.uri, head.ours)
            if rows.schema.field(name).type != field.result_type:
                # A transaction that failed before its swap has widened the column.
                index = rows.schema.names.index(name)
                rows = rows.set_column(index, name, rows.column(name).cast(field.result_type))
        return LeafIndex._sorted(_leaves_in(_completed(rows, manifest), manifest, head), head.specs)

    @staticmethod
    def _sorted(rows: pa.Table, specs: Iterable[PartitionSpec]) -> LeafIndex:
        """The leaves in planning columns, which are in any order and have plain values."""
        specs = tuple(specs)
        arrays: dict[str, Any] = {name: rows.column(name) for name in _PLANNING}
        order = [_array(arrays["spec_id"])]
        for name in partition_columns(specs):
            column = column_of(_combined(rows.column(name)))
            indices = pa.array(column.codes, pa.int32(), mask=column.codes < 0)
            arrays[name] = pa.DictionaryArray.from_arrays(indices, column.values)
            order.append(column.codes)
        ranks = np.lexsort(order[::-1])
        return LeafIndex(pa.table(arrays).take(pa.array(ranks)), specs)

    @staticmethod
    def empty(specs: Iterable[PartitionSpec]) -> LeafIndex:
        """The leaves of a table without rows."""
        specs = tuple(specs)
        fields = partition_columns(specs).values()
        schema = manifest_schema(specs)
        plain = [schema.field(name) for name in _PLANNING]
        plain += [pa.field(f.column_name, f.result_type) for f in fields]
        return LeafIndex._sorted(pa.schema(plain).empty_table(), specs)

    def under(self, specs: Iterable[PartitionSpec]) -> LeafIndex:
        """These leaves in a table with newer specs, which may have more fields or wider types."""
        specs, table = tuple(specs), self.table
        for name, field in partition_columns(specs).items():
            if name not in table.schema.names:
                nulls = pa.nulls(len(self), pa.int32())
                values = pa.array([], field.result_type)
                table = table.append_column(name, pa.DictionaryArray.from_arrays(nulls, values))
            elif table.schema.field(name).type.value_type != field.result_type:
                column = _combined(table.column(name))
                values = column.dictionary.cast(field.result_type)
                wider = pa.DictionaryArray.from_arrays(column.indices, values)
                table = table.set_column(table.schema.names.index(name), name, wider)
        return LeafIndex(table, specs)

    def none(self) -> LeafIndex:
        """An index of the same table without any leaf."""
        return LeafIndex(self.table.slice(0, 0), self.specs.values())

    def only(self, index: int) -> LeafIndex:
        """An index of the same table with one of its leaves."""
        return LeafIndex(self.table.slice(index, 1), self.specs.values())

    def apply(self, changed: Sequence[LeafRow], removed: Collection[str] = ()) -> LeafIndex:
        """The leaves after some have been changed, added (`index` is -1) or removed."""
        old = [row for row in changed if row.index >= 0]
        new = [row for row in changed if row.index < 0]
        columns = {name: self.table.column(name) for name in self.table.schema.names}
        if old:
            at = np.array([row.index for row in old])
            for name in _CHANGING:
                columns[name] = _with(columns[name], at, [getattr(row, name) for row in old])
        table = pa.table(columns)
        if removed:
            gone = pc.is_in(table.column("object_id"), pa.array(sorted(removed), pa.string()))
            table = table.filter(pc.invert(gone))
        leaves = LeafIndex(table, self.specs.values())
        return leaves._inserted(new) if new else leaves

    def _inserted(self, new: Sequence[LeafRow]) -> LeafIndex:
        """The leaves with new ones inserted in order."""
        fields = partition_columns(self.specs.values())
        if len(new) > _INSERT_ONE_BY_ONE or not len(self):
            table = self.table
            for name, field in fields.items():
                index = table.schema.names.index(name)
                table = table.set_column(index, name, table.column(name).cast(field.result_type))
            more = _rows_table(new, table.schema, self.specs)
            return LeafIndex._sorted(pa.concat_tables([table, more]), self.specs.values())
        plain = _rows_table(new, _plain_schema(self.table.schema, fields), self.specs)
        old = {name: self.column(name) for name in fields}
        grown = {name: _grown(old[name], _combined(plain.column(name))) for name in fields}
        codes = [self.spec_ids, *(column.codes for column, _ in grown.values())]
        new_codes = [
            np.array([row.spec_id for row in new], dtype=np.int32),
            *(more for _, more in grown.values()),
        ]
        order = sorted(range(len(new)), key=lambda i: tuple(int(column[i]) for column in new_codes))
        places = [_position(codes, [int(column[i]) for column in new_codes]) for i in order]
        count = len(self)
        indices = np.insert(np.arange(count), places, count + np.array(order))
        columns = {}
        for name in self.table.schema.names:
            if name in fields:
                column, more = grown[name]
                merged = np.concatenate([column.codes, more])[indices].astype(np.int32)
                keys = pa.array(merged, pa.int32(), mask=merged < 0)
                columns[name] = pa.DictionaryArray.from_arrays(keys, column.values)
            else:
                parts = [_combined(self.table.column(name)), _combined(plain.column(name))]
                columns[name] = pa.concat_arrays(parts).take(pa.array(indices))
        return LeafIndex(pa.table(columns), self.specs.values())

    @property
    def ids(self) -> pa.ChunkedArray:
        """The ids of the leaves."""
        return self.table.column("object_id")

    @property
    def folders(self) -> pa.ChunkedArray:
        """The folders of the leaves, relative to the table's root."""
        return self.table.column("location")

    @property
    def read_versions(self) -> pa.ChunkedArray:
        """The versions of the leaves to read; NULL for the newest on main."""
        return self.table.column(READ_VERSION)

    @cached_property
    def spec_ids(self) -> Array:
        return _array(self.table.column("spec_id"))

    @cached_property
    def row_counts(self) -> Array:
        """The number of rows of each leaf; -1 if the manifest does not record it."""
        return _array(self.table.column("row_count"))

    @cached_property
    def byte_counts(self) -> Array:
        return _array(self.table.column("byte_count"))

    @cached_property
    def fragment_counts(self) -> Array:
        return _array(self.table.column("fragment_count"))

    def range_of(self, spec_id: int) -> tuple[int, int]:
        """The index of the first leaf of a spec, and the index after the last."""
        run = self._ranges.get(spec_id)
        if run is None:
            run = self._ranges[spec_id] = _run(self.spec_ids, spec_id)
        return run

    @cached_property
    def _ranges(self) -> dict[int, tuple[int, int]]:
        return {}

    def column(self, field_name: str) -> PartitionColumn:
        """A partition column over all leaves."""
        column = self._columns.get(field_name)
        if column is None:
            column = self._columns[field_name] = _partition_column(self.table.column(field_name))
        return column

    @cached_property
    def _columns(self) -> dict[str, PartitionColumn]:
        return {}

    def columns_of(self, spec: PartitionSpec) -> dict[str, PartitionColumn]:
        """The partition columns of the leaves of one spec, by field id."""
        low, high = self.range_of(spec.id)
        columns = {}
        for field in spec.fields:
            whole = self.column(field.column_name)
            columns[field.field_id] = PartitionColumn(whole.values, whole.codes[low:high])
        return columns

    def row(self, index: int) -> LeafRow:
        """One leaf. For many leaves, `rows` takes a tenth of the time."""
        return self._rows(self.table.slice(index, 1), np.array([index]))[0]

    def rows(self, indices: Sequence[int] | Array | None = None) -> list[LeafRow]:
        """Some leaves, or all."""
        if indices is None:
            return self._rows(self.table, np.arange(len(self)))
        at = np.asarray(indices, dtype=np.int64)
        return self._rows(self.table.select(_PLANNING).take(pa.array(at)), at)

    def by_id(self, ids: Iterable[str]) -> dict[str, LeafRow]:
        """Leaves by their ids; ids without a leaf are left out."""
        id_set = set(ids)
        places = [at for at, id in enumerate(self.ids.to_pylist()) if id in id_set]
        return {row.object_id: row for row in self.rows(places)}

    def are_in(self, indices: Array, ids: Collection[str]) -> Array:
        """Which of the leaves at `indices` have one of these ids, as a mask."""
        leaf_ids = self.ids.take(pa.array(indices))
        return np.asarray(pc.is_in(leaf_ids, pa.array(sorted(ids), pa.string())))

    def _rows(self, part: pa.Table, at: Array) -> list[LeafRow]:
        cells = {name: part.column(name).to_pylist() for name in _PLANNING}
        for name in _NUMBERS[1:]:
            cells[name] = [None if n is None or n < 0 else n for n in cells[name]]
        spec_ids = self.spec_ids[at].tolist()
        specs = [self.specs[id] for id in set(spec_ids)]
        columns = {name: self._keys(name, at) for name in partition_columns(specs)}
        keys = {
            spec.id: list(zip(*(columns[field.column_name] for field in spec.fields), strict=True))
            or [()] * len(spec_ids)
            for spec in specs
        }
        return [
            LeafRow(
                index=index,
                object_id=cells["object_id"][n],
                location=cells["location"][n],
                read_version=cells["read_version"][n],
                spec_id=spec_id,
                keys=keys[spec_id][n],
                version_number=max(cells["version_number"][n] or 0, 0),
                row_count=cells["row_count"][n],
                byte_count=cells["byte_count"][n],
                fragment_count=cells["fragment_count"][n],
            )
            for n, (index, spec_id) in enumerate(zip(at.tolist(), spec_ids, strict=True))
        ]

    def _keys(self, name: str, at: Array) -> list[Any]:
        """The keys of some leaves in one partition column."""
        column = self.column(name)
        codes, domain = column.codes[at].tolist(), domain_of(column.values.type)
        keys = {code: domain.key(column.values[code]) for code in set(codes) if code >= 0}
        return [keys.get(code) for code in codes]

    def versions(self, indices: Array | None = None) -> Iterator[tuple[str, int | None]]:
        """The folder and version of some leaves, or of all."""
        leaves = self.table.select(["location", READ_VERSION])
        if indices is not None:
            leaves = leaves.take(pa.array(indices))
        return zip(*(column.to_pylist() for column in leaves.columns), strict=True)

    def given(self, head: Head, indices: Array) -> Iterable[Given]:
        """The columns that the partitions of some leaves give, with their values."""
        if not head.gives_columns:
            return repeat((), len(indices))
        return [head.given(row.spec_id, row.keys) for row in self.rows(indices)]

    def holds(self, row: LeafRow | None) -> bool:
        """Whether a leaf of another index is also in this one, at the same index and version."""
        if row is None or not 0 <= row.index < len(self) or row.read_version is None:
            return False
        id, version = (self.table.column(name)[row.index] for name in ("object_id", "read_version"))
        return bool(id.as_py() == row.object_id and version.as_py() == row.read_version)

    def matching(self, row: LeafRow) -> LeafRow:
        """A leaf of another index, with the `index` that it has in this one (-1 for none)."""
        index = self.find(self.specs[row.spec_id], row.keys)
        return replace(row, index=-1 if index is None else index)

    def find(self, spec: PartitionSpec, keys: Sequence[Any]) -> int | None:
        """The index of the first leaf whose outermost values are these keys, or None."""
        low, high, mask = self._under(spec, keys)
        if mask is None:
            return low if low < high else None
        first = int(np.argmax(mask)) if low < high else 0
        return low + first if low < high and mask[first] else None

    def find_all(self, spec: PartitionSpec, keys: Sequence[Any]) -> Array:
        """The places of all leaves with these values. Another client may have made several."""
        low, high, mask = self._under(spec, keys)
        return np.arange(low, high) if mask is None else low + np.flatnonzero(mask)

    def groups(self, spec: PartitionSpec) -> Iterator[Array]:
        """For each field of a spec, a group number for each leaf of the spec.

        It is the same for leaves with the same values in this field and all outer ones. The leaves
        are those of `range_of`.
        """
        low, high = self.range_of(spec.id)
        groups = np.zeros(high - low, dtype=np.int64)
        for field in spec.fields:
            codes = self.column(field.column_name).codes[low:high].astype(np.int64) + 1
            combined = groups * (int(codes.max(initial=0)) + 1) + codes
            groups = np.unique(combined, return_inverse=True)[1]
            yield groups

    def _under(self, spec: PartitionSpec, keys: Sequence[Any]) -> tuple[int, int, Array | None]:
        """The range of the leaves with these outermost values, and a mask if not all in it match.

        Rows are sorted by the codes of their values, so a binary search finds the range. A later
        spec may have its fields in another order than the columns that rows are sorted by. The
        fields for which that is so are compared row by row.
        """
        low, high = self.range_of(spec.id)
        if low == high:  # also for a spec that is not in this index yet
            return low, low, None
        codes = {}
        for field, key in zip(spec.fields, keys, strict=False):
            code = self._code(field.column_name, key)
            if code is None:
                return low, low, None
            codes[field.column_name] = code
        own = {field.column_name for field in spec.fields}
        for name in partition_columns(self.specs.values()):
            if name not in own:
                continue  # NULL in all leaves of this spec
            if name not in codes:
                break
            first, last = _run(self.column(name).codes[low:high], codes.pop(name))
            low, high = low + first, low + last
        if not codes:
            return low, high, None
        mask = np.ones(high - low, dtype=bool)
        for name, code in codes.items():
            mask &= self.column(name).codes[low:high] == code
        return low, high, mask

    def _code(self, name: str, key: Any) -> int | None:
        """The code of a key in a partition column, or None if no leaf has it."""
        codes = self._codes.setdefault(name, {})
        if key not in codes:
            codes[key] = _code(self.column(name), key)
        return codes[key]

    @cached_property
    def _codes(self) -> dict[str, dict[Any, int | None]]:
        return {}


def _code(column: PartitionColumn, key: Any) -> int | None:
    """The code of a key in a partition column, or None if no leaf has it."""
    if key is None:
        return -1
    ranges = column.code_ranges(domain_of(column.values.type).point(key))
    return next((low for low, high in ranges if low < high), None)


def _plain_schema(schema: pa.Schema, fields: Mapping[str, PartitionField]) -> pa.Schema:
    """The schema of planning columns with plain values instead of dictionaries."""
    types = {f.name: f.type for f in schema}
    types |= {name: field.result_type for name, field in fields.items()}
    return pa.schema(list(types.items()))


def _grown(column: PartitionColumn, more: pa.Array) -> tuple[PartitionColumn, Array]:
    """A partition column that also covers more values, and the codes of those values."""
    codes = [_code(column, key) for key in _keys(more)]
    if None in codes:
        values = pa.concat_arrays([column.values, more.drop_null()]).unique()
        ranked = column_of(values)
        shift = np.append(ranked.codes[: len(column.values)], -1).astype(np.int32)
        column = PartitionColumn(ranked.values, shift[column.codes])
        codes = [_code(column, key) for key in _keys(more)]
    return column, np.array(codes, dtype=np.int32)


def _keys(array: pa.Array) -> list[Any]:
    domain = domain_of(array.type)
    return [domain.key(scalar) if scalar.is_valid else None for scalar in array]


def _position(columns: Sequence[Array], codes: Sequence[int]) -> int:
    """Where to insert a row with these codes into rows that are sorted by their codes."""
    low, high = 0, len(columns[0])
    for column, code in zip(columns, codes, strict=True):
        first, last = _run(column[low:high], code)
        low, high = low + first, low + last
    return high


def _run(ordered: Array, code: int) -> tuple[int, int]:
    """Where the run of a code begins and ends in a sorted array."""
    typed = ordered.dtype.type(code)  # with another type, numpy would copy the whole array first
    first, last = np.searchsorted(ordered, typed), np.searchsorted(ordered, typed, side="right")
    return int(first), int(last)


def _with(column: pa.ChunkedArray, at: Array, values: list[Any]) -> pa.Array:
    """A column with the values at some places replaced."""
    array = _combined(column)
    if array.null_count or None in values:
        cells = array.to_pylist()
        for place, value in zip(at.tolist(), values, strict=True):
            cells[place] = value
        return pa.array(cells, array.type)
    dtype = np.uint64 if pa.types.is_uint64(array.type) else np.int64
    copy = np.array(np.frombuffer(array.buffers()[1], dtype=dtype)[array.offset :][: len(array)])
    copy[at] = np.array(values, dtype=dtype)
    return pa.array(copy, array.type)


def _rows_table(
    rows: Sequence[LeafRow], schema: pa.Schema, specs: Mapping[int, PartitionSpec]
) -> pa.Table:
    """Leaves that are not in the manifest yet, as planning columns."""
    columns = {}
    for field in schema:
        if field.name in _PLANNING:
            columns[field.name] = pa.array([getattr(row, field.name) for row in rows], field.type)
            continue
        keys = []
        for row in rows:
            names = [f.column_name for f in specs[row.spec_id].fields]
            keys.append(row.keys[names.index(field.name)] if field.name in names else None)
        columns[field.name] = domain_of(field.type).array(keys)
    return pa.table(columns, schema=schema)


def _partition_column(column: pa.ChunkedArray) -> PartitionColumn:
    array = _combined(column)
    codes = _array(array.indices)
    if array.null_count:
        codes = np.where(_valid(array.indices), codes, -1)
    return PartitionColumn(array.dictionary, codes.astype(np.int32, copy=False))


def _combined(column: pa.ChunkedArray) -> pa.Array:
    """A chunked column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def _array(column: Any) -> Array:
    """An integer column as a numpy array over its buffer; NULL becomes -1."""
    array = _combined(column) if isinstance(column, pa.ChunkedArray) else column
    if not len(array):
        return np.zeros(0, dtype=array.type.to_pandas_dtype())
    dtype = {8: np.int64, 4: np.int32, 2: np.int16, 1: np.int8}[array.type.byte_width]
    values = np.frombuffer(array.buffers()[1], dtype=dtype)[
        array.offset : array.offset + len(array)
    ]
    return np.where(_valid(array), values, -1) if array.null_count else values


def _valid(array: pa.Array) -> Array:
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], dtype=np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(bool)


def _lost(column: str, field_id: str, uri: str, ours: bool) -> PhalanxError:
    """The error for a manifest without a column of partition values."""
    if ours:
        return CorruptTable(f"the manifest of {uri} has lost the column {column}: repair it")
    return UnsupportedTable(
        f"the table {uri} was made by another client, and its manifest has no column {column}, so "
        f"the values of its partition field {field_id!r} are not known: the Lance partitioning "
        "specification asks for this column, and its client must add it"
    )


def _leaves_in(rows: pa.Table, manifest: ManifestVersion, head: Head) -> pa.Table:
    """The rows of leaves, without the tables of other clients.

    Raises CorruptTable for a leaf that fits no spec: nothing says which rows are in it.
    """
    ids = rows.column("object_id")
    depths = pc.count_substring(ids, SEPARATOR)
    fits = pa.scalar(False)
    for spec in head.specs:
        named = pc.starts_with(ids, spec.namespace + SEPARATOR)
        has_depth = pc.equal(depths, len(spec.fields) + 1)
        of_spec = pc.fill_null(pc.equal(rows.column("spec_id"), spec.id), False)
        fits = pc.or_(fits, pc.and_(of_spec, pc.and_(named, has_depth)))
    leaves = rows.filter(fits)
    if leaves.num_rows == rows.num_rows:
        return rows
    for id in ids.filter(pc.invert(fits)).to_pylist():
        if is_leaf_id(id):
            raise CorruptTable(
                f"the row {id} in the manifest of {manifest.location.uri} fits no partition spec "
                "of the table, so its rows cannot be read: run repair(). A row that it cannot mend "
                "does not belong to the table and can be deleted from __manifest with Lance"
            )
    return leaves


def _completed(rows: pa.Table, manifest: ManifestVersion) -> pa.Table:
    """Add missing planning columns: a manifest that another client wrote does not have them."""
    count = rows.num_rows
    ids = rows.column("object_id").to_pylist() if "spec_id" not in rows.schema.names else []
    defaults: Mapping[str, Any] = {
        "spec_id": lambda: pa.array([spec_of(id) for id in ids], pa.int32()),
        READ_VERSION: lambda: pa.nulls(count, pa.uint64()),
        **{name: (lambda: pa.nulls(count, pa.int64())) for name in _NUMBERS},
    }
    for name, default in defaults.items():
        if name not in rows.schema.names:
            rows = rows.append_column(name, default())
    if rows.column(READ_VERSION).null_count and manifest.has_column(READ_VERSION):
        rows = _with_newest_versions(rows, manifest)
    return rows


def _with_newest_versions(rows: pa.Table, manifest: ManifestVersion) -> pa.Table:
    """Fill in each `read_version` that is NULL from the newest row of the leaf's timeline."""
    newest: dict[str, tuple[int, int]] = {}
    for id, version in manifest.timeline():
        numbered = leaf_version(id)
        if numbered is not None and version is not None:
            leaf, number = numbered
            newest[leaf] = max(newest.get(leaf, (0, 0)), (number, version))
    ids = rows.column("object_id").to_pylist()
    current = rows.column(READ_VERSION).to_pylist()
    versions = [
        version if version is not None else newest.get(id, (0, None))[1]
        for id, version in zip(ids, current, strict=True)
    ]
    index = rows.schema.names.index(READ_VERSION)
    return rows.set_column(index, READ_VERSION, pa.array(versions, pa.uint64()))
