"""The key=value layout: `event_date=2025-12-10/country=US.lance`.

A table with `layout="hive"` is a table like any other. Its leaves lie in a tree of folders that
spell their partition values, as the Lance Partition Spec for namespaces says, and the metadata of
its manifest has the entries `lance.partitioning.*` of that document. Other engines, and people, can
thus find a partition by its path.

A level of the tree is named after the source column and the partition function:

| function              | level                            |
|-----------------------|----------------------------------|
| identity              | `country=US`                     |
| year month day hour   | `ts_year=2025`, `ts_month=01`    |
| bucket                | `user_id_bucket=3`               |
| truncate              | `s_trunc=abc`                    |
| hash                  | `c_hash=481f22d9`                |

How values are spelled is defined in `phalanx.interop.folders`. The last level ends with `.lance`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.interop.folders import LEAF, column_name, leaf_path, parse_leaf_path, text_of, value_of
from phalanx.interop.hive_metadata import metadata_of
from phalanx.model.domains import domain_of
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionField, PartitionSpec
from phalanx.model.transforms import (
    Bucket,
    Day,
    Extract,
    FloorTruncate,
    Hash,
    Hour,
    Identity,
    ModBucket,
    Month,
    Transform,
    Truncate,
    Year,
)
from phalanx.storage import names
from phalanx.storage.folders import FolderKind, walk
from phalanx.storage.head import HIVE_LAYOUT, Head
from phalanx.storage.location import Location

FEATURES = frozenset({HIVE_LAYOUT})
SHARED = True
#: Whoever chooses this layout has plain Lance readers, which see main.
DEFAULTS: Mapping[str, str] = {"anchor": "commit"}

_DIGITS: dict[type[Transform], int] = {Year: 4, Month: 2, Day: 2, Hour: 2}


def adapted(
    spec: PartitionSpec, schema: TableSchema, with_all_columns: bool = False
) -> PartitionSpec:
    """The spec with the partition functions of the layout, which names fields as paths do.

    Raises InvalidInput for a field that it does not have, and for a spec that leaves no column to
    the files, unless they hold all of them.
    """
    if not spec.fields:
        raise InvalidInput("a table with layout='hive' needs at least one partition field")
    fields = tuple(_adapted(field, schema) for field in spec.fields)
    sources = {field.source_ids[0] for field in fields if isinstance(field.transform, Identity)}
    if not with_all_columns and all(id in sources for id in _top_ids(schema)):
        raise InvalidInput(
            "every column is a partition column, so that the files would have none: leave one out "
            "of partition_by"
        )
    levels = [level_name(field, schema) for field in fields]
    for level in levels:
        if levels.count(level) > 1:
            raise InvalidInput(
                f"two partition fields are called {level!r} in paths: leave one out of "
                "partition_by, or rename a column"
            )
    return replace(spec, fields=fields)


def _top_ids(schema: TableSchema) -> list[int]:
    return [schema.column((name,)).field_id for name in schema.tagged.names]


def _adapted(field: PartitionField, schema: TableSchema) -> PartitionField:
    spelled, columns = field.spell(schema), field.sources(schema)
    if len(columns) != 1 or columns[0] is None or len(columns[0].path) != 1:
        raise InvalidInput(
            f"cannot partition by {spelled} with layout='hive': its functions take one column, "
            "which is not inside a struct"
        )
    match field.transform:
        case Bucket(num_buckets=number):
            return replace(field, transform=ModBucket(number))
        case Truncate(width=width):
            transform = FloorTruncate(width)
            try:
                type = transform.result_type([columns[0].type])
            except InvalidInput as error:
                raise InvalidInput(f"cannot partition by {spelled}: {error}") from None
            name = field.field_id.replace(Truncate.suffix, FloorTruncate.suffix)
            return PartitionField(name, field.source_ids, transform, type)
        case Identity() | Extract() | Hash() | ModBucket() | FloorTruncate():
            return field
    raise InvalidInput(
        f"cannot partition by {spelled} with layout='hive': it has identity, year, month, day, "
        "hour, bucket, truncate and hash"
    )


def level_name(field: PartitionField, schema: TableSchema) -> str:
    """What a level of the tree is called."""
    (column,) = field.sources(schema)
    assert column is not None, field
    return column.path[0] + field.transform.suffix


def level_text(field: PartitionField, key: Any) -> str | None:
    """The text of a partition value in a path, before it is escaped; None for NULL."""
    digits = _DIGITS.get(type(field.transform))
    if digits is None or key is None:
        return text_of(key, field.result_type)
    return f"{key:0{digits}d}"


def folder(head: Head, spec: PartitionSpec, keys: Sequence[Any], leaf: str) -> str:
    """The folder of a leaf. Raises InvalidInput for a value that is too long for a name."""
    levels = [level_name(field, head.schema) for field in spec.fields]
    texts = [level_text(field, key) for field, key in zip(spec.fields, keys, strict=True)]
    return leaf_path(levels, texts)


def leaf_folders(location: Location, head: Head) -> list[str]:
    """The folders in the tree that are named like those of leaves."""
    levels = [level_name(field, head.schema) for field in head.spec.fields]
    prefixes = [column_name(level) for level in levels]

    def kind_of(name: str, depth: int) -> FolderKind:
        if not name.startswith(f"{prefixes[depth]}="):
            return FolderKind.OTHER
        if depth < len(levels) - 1:
            return FolderKind.LEVEL
        return FolderKind.LEAF if name.endswith(LEAF) else FolderKind.OTHER

    return walk(location, kind_of).leaves


def leaf_in(folder: str, head: Head) -> str | None:
    """The id of the leaf that a folder is named after."""
    keys = keys_in(folder, head)
    if keys is None:
        return None
    types = [field.result_type for field in head.spec.fields]
    namespaces = names.namespace_names(head.salt, head.spec.id, keys, types)
    return names.leaf_id(head.spec.id, namespaces)


def keys_in(folder: str, head: Head) -> tuple[Any, ...] | None:
    """The partition values that the path of a leaf spells; None for another path."""
    spec = head.spec
    try:
        pairs = parse_leaf_path(folder)
        levels = [level_name(field, head.schema) for field in spec.fields]
        if pairs is None or [name for name, _ in pairs] != levels:
            return None
        return tuple(
            key_of(field, level, text)
            for field, (level, text) in zip(spec.fields, pairs, strict=True)
        )
    except InvalidInput:
        return None


def key_of(field: PartitionField, level: str, text: str | None) -> Any:
    """The partition value that a text stands for. Raises InvalidInput for one that is none."""
    if text is None:
        return None
    value = value_of(text, pa.field(level, field.result_type))
    return domain_of(field.result_type).key(value)


def texts(head: Head) -> Mapping[str, str]:
    """The entries `lance.partitioning.*`."""
    return _texts(head.schema, head.spec)


@lru_cache(maxsize=64)
def _texts(schema: TableSchema, spec: PartitionSpec) -> Mapping[str, str]:
    return metadata_of(schema, spec)


def check_change(before: Head, after: Head) -> None:
    """Refuse what paths cannot express: another partitioning, or other partition columns."""
    if after.spec_id != before.spec_id or after.specs != before.specs:
        raise InvalidInput(
            "the partitioning of a table with layout='hive' cannot be changed, because its paths "
            "have one level for each field: create another table and append the rows to it"
        )
    for field in before.spec.fields:
        (old,), (new,) = field.sources(before.schema), field.sources(after.schema)
        assert old is not None
        if new is None or new.path != old.path or new.type != old.type:
            raise InvalidInput(
                f"column {old.path[0]!r} is in the paths of a table with layout='hive', so it "
                "cannot be renamed, dropped or get another type: create another table and append "
                "the rows to it"
            )
