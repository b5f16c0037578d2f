"""Leaves whose data files are another dataset's: nothing is copied, and nothing there is changed.

A shallow clone of Lance would keep the field ids of its source, and its first version would not be
empty, as that of a leaf must be. So such a leaf is created as any other, with its source as a base
that files are found under, and gets fragments of the source with the table's field ids.

Deleted rows are deleted in the leaf again: a deletion file is named after the fragment that it
belongs to, and fragments have other numbers here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance import DatasetBasePath, LanceOperation
from lance.fragment import DataFile, FragmentMetadata

from phalanx.errors import InvalidInput, StorageError
from phalanx.model.schema import TableSchema, field_id
from phalanx.storage.field_ids import lance_schema
from phalanx.storage.files import is_lasting, version_of
from phalanx.storage.lance_errors import LANCE_ERRORS, raise_interrupt
from phalanx.storage.leaf import BATCH_ROWS, GONE, Leaf
from phalanx.storage.leaf_delta import LeafDelta, Written
from phalanx.storage.location import Location, refuse_forked

#: The id of the source among the bases of a leaf.
_BASE = 1


class BorrowedDataset:
    """A Lance dataset whose files become those of a leaf."""

    def __init__(self, source: Any, table: Location) -> None:
        """`source` is a path, a URI or an open dataset; it is opened with the table's options.

        Raises InvalidInput if it cannot be opened, lies inside of the table, or is a path whose
        newest version may not be the one that is meant.
        """
        refuse_forked()
        if isinstance(source, lance.LanceDataset):
            self._dataset: Any = source
        elif isinstance(source, str | os.PathLike):
            try:
                uri = Location(source, table.options).uri
                self._dataset = lance.dataset(uri, storage_options=table.options)
            except LANCE_ERRORS as error:
                raise_interrupt(error)
                reason = table.reason(error)
                raise InvalidInput(
                    f"{source} cannot be opened as a Lance dataset: {reason}"
                ) from None
            _refuse_detached(self._dataset)
        else:
            raise InvalidInput(f"a Lance dataset is a path, a URI or open, not {source!r}")
        self._location = Location(self._dataset.uri, table.options)
        self.uri = self._location.uri
        if f"{self.uri}/".startswith(f"{table.uri}/"):
            raise InvalidInput(
                f"{self.uri} lies inside of the table {table.uri}: move it elsewhere"
            )

    @property
    def schema(self) -> pa.Schema:
        return self._dataset.schema

    def count(self) -> int:
        return int(self._dataset.count_rows())

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows, with some of the columns."""
        yield from self._dataset.to_batches(columns=list(columns), batch_size=BATCH_ROWS)

    def check(self, schema: TableSchema) -> None:
        """Raise InvalidInput if its files cannot be those of a leaf with this schema."""
        own = {field.name: field for field in self.schema}
        wanted = {field.name: field for field in schema.stored}
        for name in sorted(wanted.keys() - own.keys()):
            raise self._refused(f"it has no column {name!r}")
        for name in sorted(own.keys() - wanted.keys()):
            raise self._refused(f"its column {name!r} is not in the schema of the table")
        for name, field in wanted.items():
            if own[name].type != field.type:
                raise self._refused(f"its column {name!r} is {own[name].type}, not {field.type}")
            if own[name].nullable and not field.nullable:
                raise self._refused(f"its column {name!r} may be NULL: declare it nullable")
            if any(b"blob" in key for key in own[name].metadata or ()):
                raise self._refused(f"the values of its column {name!r} are blobs")
        for fragment in self._fragments:
            files = fragment.files
            if any(file.base_id is not None for file in files) or fragment.overlays:
                raise self._refused("it borrows files of another dataset itself")
            if any(file.file_major_version < 2 for file in files):
                raise self._refused("its files have the first format of Lance")

    def _refused(self, why: str) -> InvalidInput:
        return InvalidInput(
            f"the dataset {self.uri} cannot be adopted: {why}; its rows can still be appended"
        )

    def lend(self, leaf: Leaf) -> int:
        """Create a leaf with the rows of the dataset, and return its version, which is detached.

        Raises StorageError if it cannot be created.
        """
        base = DatasetBasePath(self.uri, is_dataset_root=True, id=_BASE)
        try:
            lance.LanceDataset.commit(
                leaf.uri,
                LanceOperation.Overwrite(lance_schema(leaf.schema), [], [base]),
                max_retries=0,
                storage_options=leaf.location.options,
            )
        except OSError as error:
            reason = leaf.location.reason(error)
            raise StorageError(f"cannot make the leaf {leaf.uri}: {reason}") from None
        ids = self._ids(leaf.schema)
        fragments = tuple(_moved(fragment, ids) for fragment in self._fragments)
        version = leaf.commit(None, LeafDelta(added=(Written(fragments),)))
        deleted = self._deleted(leaf.open(version))
        if not len(deleted):
            return version
        delta, _ = leaf.delete_rows(version, deleted)
        return leaf.commit(version, delta)

    @cached_property
    def _fragments(self) -> list[FragmentMetadata]:
        return [fragment.metadata for fragment in self._dataset.get_fragments()]

    def _ids(self, schema: TableSchema) -> dict[int, int]:
        """The table's id of each field, by the dataset's."""
        table = {field_id(field): field for field in schema.tagged}
        by_name = {field.name: id for id, field in table.items()}
        ids: dict[int, int] = {}
        for field in self._dataset.lance_schema.fields():
            position = schema.field_ids.index(by_name[field.name()])
            own = list(_walk(field))
            ids |= zip(own, schema.field_ids[position : position + len(own)], strict=True)
        return ids

    def _deleted(self, handle: Any) -> Any:
        """The addresses of deleted rows, in a leaf that has them still."""
        addresses = []
        for own, lent in zip(self._dataset.get_fragments(), handle.get_fragments(), strict=True):
            if own.num_deletions:
                kept = own.scanner(columns=[], with_row_address=True).to_table()["_rowaddr"]
                offsets = np.asarray(kept).astype(np.uint64) & np.uint64(0xFFFFFFFF)
                gone = np.setdiff1d(np.arange(own.physical_rows, dtype=np.uint64), offsets)
                addresses.append(gone + (np.uint64(lent.fragment_id) << np.uint64(32)))
        return np.concatenate(addresses) if addresses else np.zeros(0, np.uint64)


def _refuse_detached(dataset: Any) -> None:
    """Refuse a dataset with detached versions, such as a leaf: its rows may be on no branch."""
    paths = dataset.all_files().read_all().column("path").to_pylist()
    if any(is_lasting(version_of(path)) for path in paths):
        raise InvalidInput(
            f"the dataset {dataset.uri} has the versions of a leaf of a table, and main "
            "may not show its rows: pass the version that you mean, opened with lance.dataset"
        )


def _walk(field: Any) -> Iterator[int]:
    yield field.id()
    for child in field.children():
        yield from _walk(child)


def _moved(fragment: FragmentMetadata, ids: Mapping[int, int]) -> FragmentMetadata:
    """A fragment with the table's field ids, whose files are found under the base."""
    files = [
        DataFile(
            str(file.path),
            [ids.get(id, GONE) for id in file.fields],
            file.column_indices,
            file.file_major_version,
            file.file_minor_version,
            file.file_size_bytes,
            _BASE,
        )
        for file in fragment.files
    ]
    return FragmentMetadata(0, files, fragment.physical_rows)
