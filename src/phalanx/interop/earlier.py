"""Tables of the earlier specification, read as they are.

They differ from today's in three ways. A partition spec is a JSON array of fields, each with an
expression and no transform; it has no id but in its key, `partition_spec_v<N>`. A leaf's row says
which version of the leaf is read by `read_version`, `read_branch` and `read_tag`, and its newest
version on main is read if none of them is set. There are no rows for versions of leaves.

Expressions that equal a transform of ours become that transform, so that filters prune by it.
`phalanx.interop.upgrade` makes a table of today's form of such a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import CorruptTable, InvalidInput, UnsupportedTable
from phalanx.model.literals import Literal
from phalanx.model.predicates import Call, Column, Term
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionField, PartitionSpec
from phalanx.model.transforms import EXTRACTS, Expression, Identity, Transform, Truncate
from phalanx.storage.head import Head
from phalanx.storage.leaf_refs import Reference, tagged
from phalanx.storage.location import Location
from phalanx.storage.manifest import SPEC_KEY, ManifestVersion, OtherManifest
from phalanx.storage.manifest_update import READ_VERSION
from phalanx.storage.names import branch_folder
from phalanx.storage.records import TimelineRow

READ_BRANCH, READ_TAG = "read_branch", "read_tag"
_LOCATION = "location"
#: Tags that are looked up at a time.
_READERS = 8


def read(location: Location, manifest: ManifestVersion | None) -> ManifestVersion | None:
    """The table at a root, if it is one of the earlier specification."""
    if manifest is None or not any(_is_array(text) for _, text in _spec_texts(manifest.metadata)):
        return None
    return EarlierManifest(manifest)


def occupies(location: Location) -> bool:
    """No: such a table has a manifest, and creating another one there is refused anyway."""
    return False


class EarlierManifest(OtherManifest):
    """One version of the manifest of a table of the earlier specification.

    A tag of a leaf can be moved without a new version of it.
    """

    def head(self) -> Head:
        """The head, from the table's metadata.

        Raises UnsupportedTable if the metadata is not what the specification says.
        """
        uri = self.location.uri
        try:
            schema = TableSchema.from_json(json.loads(self.metadata["schema"]))
            specs = [_spec(number, text, schema) for number, text in _spec_texts(self.metadata)]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UnsupportedTable(
                f"the table {uri} is one of the earlier specification, and its metadata cannot be "
                f"read: {error}"
            ) from None
        strong = self.has_column(READ_VERSION) or self.has_column(READ_TAG)
        return Head.of_others(self.version, schema, specs, strong)

    def leaves(
        self,
        columns: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        since: int | None = None,
    ) -> pa.Table:
        """Columns of all leaves, or of some, each with the folder and version to read.

        Which leaves were written since a version is not recorded, so `since` has no effect. Raises
        CorruptTable for a leaf whose row does not say clearly what is read.
        """
        own = ("object_id", _LOCATION, READ_VERSION, READ_BRANCH, READ_TAG)
        rows = super().leaves(list(dict.fromkeys([*columns, *own])), ids=ids)
        if _LOCATION not in columns and READ_VERSION not in columns:
            return rows.select([name for name in columns if name in rows.schema.names])
        rows = _with(rows, READ_VERSION, _column(rows, READ_VERSION, pa.uint64()))
        rows = _with(rows, _LOCATION, pc.utf8_rtrim(_column(rows, _LOCATION, pa.string()), "/"))
        self._refuse_lost(rows)
        return self._resolved(rows).select([name for name in columns if name in rows.schema.names])

    def timeline(self) -> list[TimelineRow]:
        """The earlier specification has no timelines."""
        return []

    def _refuse_lost(self, rows: pa.Table) -> None:
        """Raise CorruptTable for a leaf that is nowhere."""
        lost = rows.filter(pc.is_null(rows.column(_LOCATION))).column("object_id").to_pylist()
        if lost:
            raise CorruptTable(
                f"the row {lost[0]} in the manifest of {self.location.uri} has no location, so its "
                "rows cannot be read: its client must write it"
            )

    def _resolved(self, rows: pa.Table) -> pa.Table:
        """Leaves with the folders of their branches, and versions instead of tags."""
        branches, tags = (_column(rows, name, pa.string()) for name in (READ_BRANCH, READ_TAG))
        named = pc.or_(pc.is_valid(branches), pc.is_valid(tags))
        if not pc.any(named).as_py():
            return rows
        names = ("object_id", _LOCATION, READ_VERSION)
        cells = zip(
            named.to_pylist(),
            *(rows.column(name).to_pylist() for name in names),
            branches.to_pylist(),
            tags.to_pylist(),
            strict=True,
        )
        with ThreadPoolExecutor(_READERS) as pool:
            places = list(pool.map(lambda cells: self._place(*cells), cells))
        folders = pa.array([folder for folder, _ in places], pa.string())
        versions = pa.array([version for _, version in places], pa.uint64())
        return _with(_with(rows, _LOCATION, folders), READ_VERSION, versions)

    def _place(
        self,
        is_named: bool,
        id: str,
        folder: str,
        version: int | None,
        branch: str | None,
        tag: str | None,
    ) -> tuple[str, int | None]:
        """The folder and version of a leaf."""
        match version, branch, tag:
            case _ if not is_named:
                return folder, version
            case int(), str(), None:
                return _place(folder, Reference(branch, version))
            case None, None, str():
                return _place(folder, tagged(self.location, folder, tag))
        raise CorruptTable(
            f"the row {id} in the manifest of {self.location.uri} has read_version {version}, "
            f"read_branch {branch!r} and read_tag {tag!r}, which do not go together: it must have "
            "a version, a branch and a version, a tag, or nothing"
        )


def _place(folder: str, reference: Reference) -> tuple[str, int]:
    if reference.branch in (None, "main"):
        return folder, reference.version
    assert reference.branch is not None
    return branch_folder(folder, reference.branch), reference.version


def _column(rows: pa.Table, name: str, type: pa.DataType) -> Any:
    """A column of a type; NULL everywhere if there is none."""
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, type)
    return rows.column(name).cast(type)


def _with(rows: pa.Table, name: str, column: Any) -> pa.Table:
    if name not in rows.schema.names:
        return rows.append_column(name, column)
    return rows.set_column(rows.schema.names.index(name), name, column)


def _spec_texts(metadata: dict[str, str]) -> list[tuple[int, str]]:
    """The number and text of each spec."""
    numbered = (
        (key.removeprefix(SPEC_KEY), text)
        for key, text in metadata.items()
        if key.startswith(SPEC_KEY)
    )
    return sorted((int(number), text) for number, text in numbered if number.isdigit())


def _is_array(text: str) -> bool:
    return text.lstrip().startswith("[")


def _spec(number: int, text: str, schema: TableSchema) -> PartitionSpec:
    """A spec of either form. Raises InvalidInput where the text is not a spec."""
    value: Any = json.loads(text)
    if isinstance(value, list):
        value = {"id": number, "fields": value}
    spec = PartitionSpec.from_json(value)
    return replace(spec, fields=tuple(recognized(field, schema) for field in spec.fields))


def recognized(field: PartitionField, schema: TableSchema) -> PartitionField:
    """The field with the transform that its expression equals, or as it is if there is none."""
    columns = [column for column in field.sources(schema) if column is not None]
    if (
        not isinstance(field.transform, Expression)
        or len(columns) != 1
        or len(field.source_ids) != 1
    ):
        return field
    term = field.transform.term(columns)
    for transform in () if term is None else _candidates(term):
        if _equals(transform, term, columns[0], field.result_type):
            return replace(field, transform=transform)
    return field


def _candidates(term: Term) -> Iterable[Transform]:
    """The transforms that a term may be."""
    yield Identity()
    yield from (extract() for extract in EXTRACTS.values())
    match term:
        case (
            Call(function="left", args=(_, Literal(kind="number", value=int() as width)))
            | Call(
                function="-",
                args=(
                    _,
                    Call(function="%", args=(_, Literal(kind="number", value=int() as width))),
                ),
            )
        ) if 1 <= width < 2**31:
            yield Truncate(width)


def _equals(transform: Transform, term: Term | None, column: Column, result: pa.DataType) -> bool:
    try:
        same_type = transform.result_type([column.type]) == result
    except InvalidInput:
        return False
    return same_type and transform.term([column]) == term
