"""The head row: the state of a table in one version of the manifest.

Every transaction rewrites this row, so two transactions that start from the same snapshot conflict
on it. It holds the sequence number, the authoritative schema and specs, the highest ids ever used
(so that no id is reused), the salt for names, and the features that a reader or writer must
support.
"""

from __future__ import annotations

import datetime as dt
import json
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from phalanx.errors import CorruptTable, UnsupportedTable
from phalanx.model.constraints import constraints_in, with_constraints
from phalanx.model.indexes import IndexDefinition
from phalanx.model.partition_columns import (
    Given,
    StoredColumns,
    given_values,
    stored_columns,
)
from phalanx.model.properties import LAYOUT, MATERIALIZE
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionSpec
from phalanx.storage.compression import NO_COMPRESSION, Compression

HEAD_ID = "__head"
HEAD_TYPE = "__head"
FORMAT_VERSION = 1
#: Some files do not hold columns of identity partition fields: their values are in the manifest.
PARTITION_COLUMNS = "unstored_partition_columns"
READER_FEATURES: frozenset[str] = frozenset({PARTITION_COLUMNS})
#: Leaves are in a tree of key=value folders.
HIVE_LAYOUT = "hive-layout"
#: A table has this feature as long as it has indexes: a writer that does not know their definitions
#: would drop them from the head.
_INDEXES = "indexes"
#: As long as it has constraints, writers must check rows.
_CONSTRAINTS = "constraints"
WRITER_FEATURES: frozenset[str] = frozenset({HIVE_LAYOUT, _INDEXES, _CONSTRAINTS})
_PROPERTY = "property."
_INDEX = "index."


@lru_cache(maxsize=64)
def _schema_in(text: str) -> TableSchema:
    return TableSchema.from_json(json.loads(text))


@lru_cache(maxsize=64)
def _specs_in(text: str) -> tuple[PartitionSpec, ...]:
    return tuple(PartitionSpec.from_json(spec) for spec in json.loads(text))


@dataclass(frozen=True)
class Head:
    """The state of a table at one sequence number."""

    sequence: int
    committed_at: dt.datetime
    schema: TableSchema
    specs: tuple[PartitionSpec, ...]
    spec_id: int
    max_field_id: int
    table_id: str
    salt: bytes
    #: The transaction that created this snapshot. It differs between two histories of a table even
    #: if their sequence numbers are equal.
    transaction_id: str
    transactions: str = "strong"
    #: The first version that can be opened: earlier ones have expired, unless a tag keeps them.
    oldest: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()
    #: The definitions of indexes, by name.
    indexes: Mapping[str, IndexDefinition] = field(default_factory=dict)
    #: False for a manifest that another client wrote: it has no head row and is read-only.
    ours: bool = True
    #: The schema as another client has declared it; None for a table of ours. Nobody has checked
    #: its NOT NULL, so that every column of `schema` is nullable.
    declared: TableSchema | None = None

    @staticmethod
    def first(schema: TableSchema, spec: PartitionSpec, now: dt.datetime, mode: str) -> Head:
        """The head of a new table. Creating a table is a transaction too."""
        return Head(
            sequence=1,
            committed_at=now,
            schema=schema,
            specs=(spec,),
            spec_id=spec.id,
            max_field_id=max(schema.field_ids),
            table_id=uuid.uuid4().hex,
            salt=secrets.token_bytes(16),
            transaction_id=uuid.uuid4().hex,
            transactions=mode,
        )

    @property
    def spec(self) -> PartitionSpec:
        """The spec that new rows are written under."""
        return self.spec_of(self.spec_id)

    def spec_of(self, spec_id: int) -> PartitionSpec:
        """A spec of the table, by its id."""
        return self._specs_by_id[spec_id]

    @cached_property
    def _specs_by_id(self) -> dict[int, PartitionSpec]:
        return {spec.id: spec for spec in self.specs}

    @property
    def materializes_by_default(self) -> bool:
        """Whether new files hold the partition columns if no property says.

        In the key=value layout they do not: the values are in the paths.
        """
        return LAYOUT.of(self.properties) != "hive"

    @property
    def materializes(self) -> bool:
        """Whether new files hold the columns of identity partition fields."""
        chosen = MATERIALIZE.of(self.properties)
        return self.materializes_by_default if chosen is None else chosen

    @property
    def written_schema(self) -> TableSchema:
        """What new rows must fit: also the NOT NULL that another client has declared."""
        return self.schema if self.declared is None else self.declared

    def with_features(self) -> Head:
        """This head with the features that its properties need. None is ever taken away."""
        if self.materializes:
            return self
        return replace(self, reader_features=self.reader_features | {PARTITION_COLUMNS})

    @property
    def constraints(self) -> dict[str, str]:
        """Conditions that every row satisfies, in SQL, by the names of the constraints."""
        return constraints_in(self.properties) if _CONSTRAINTS in self.writer_features else {}

    def constrained(self, constraints: Mapping[str, str]) -> Head:
        """This head with these constraints and no others.

        Properties that only have the name of a constraint stay, as long as there is none.
        """
        if not (constraints or self.constraints):
            return self
        feature = {_CONSTRAINTS} if constraints else set()
        return replace(
            self,
            properties=with_constraints(self.properties, constraints),
            writer_features=self.writer_features - {_CONSTRAINTS} | feature,
        )

    @cached_property
    def compression(self) -> Compression:
        """How the columns of new files are compressed. Trees of others are left as they are."""
        return (
            Compression.of(self.properties, self.schema, self.table_id)
            if self.ours
            else NO_COMPRESSION
        )

    def stored_schema(self, spec_id: int) -> TableSchema:
        """The columns that new files of a spec's leaves hold."""
        return self._stored(spec_id)[1].schema

    @property
    def gives_columns(self) -> bool:
        """Whether values of partition columns are taken from the manifest: files may lack them."""
        return PARTITION_COLUMNS in self.reader_features

    @property
    def given_ids(self) -> frozenset[int]:
        """The ids of the columns that files of some spec may lack."""
        ids = (id for spec in self.specs for id in self._stored(spec.id)[1].given)
        return frozenset(ids if self.gives_columns else ())

    def given(self, spec_id: int, keys: Sequence[Any]) -> Given:
        """The columns that the partition with these keys gives, with their values.

        There are none as long as all files of the table hold all columns.
        """
        if not self.gives_columns:
            return ()
        spec, columns = self._stored(spec_id)
        return given_values(columns, self.schema, spec, keys)

    def _stored(self, spec_id: int) -> tuple[PartitionSpec, StoredColumns]:
        known = self._stored_by_spec.get(spec_id)
        if known is None:
            spec = self.spec_of(spec_id)
            chosen = MATERIALIZE.of(self.properties)
            materialize = False if not self.materializes else chosen
            schema = self.written_schema
            known = spec, stored_columns(schema, spec, materialize, all_given=not self.ours)
            self._stored_by_spec[spec_id] = known
        return known

    @cached_property
    def _stored_by_spec(self) -> dict[int, tuple[PartitionSpec, StoredColumns]]:
        return {}

    def after(self, now: dt.datetime, transaction_id: str, **changes: Any) -> Head:
        """The head of the next transaction. `committed_at` never goes backwards."""
        return replace(
            self,
            sequence=self.sequence + 1,
            committed_at=max(now, self.committed_at),
            transaction_id=transaction_id,
            **changes,
        )

    def to_metadata(self) -> dict[str, str]:
        """The row's metadata: strings only, as stock clients require."""
        values = {
            "format_version": str(FORMAT_VERSION),
            "reader_features": json.dumps(sorted(self.reader_features)),
            "writer_features": json.dumps(sorted(self._written_features)),
            "table_id": self.table_id,
            "salt": self.salt.hex(),
            "transaction_id": self.transaction_id,
            "transactions": self.transactions,
            "oldest": str(self.oldest),
            # Copies of typed columns, for repair.
            "sequence": str(self.sequence),
            "committed_at": self.committed_at.isoformat(),
            "schema": json.dumps(self.schema.to_json(), separators=(",", ":")),
            "specs": json.dumps([s.to_json() for s in self.specs], separators=(",", ":")),
            "spec_id": str(self.spec_id),
            "max_field_id": str(self.max_field_id),
            "max_spec_id": str(max(spec.id for spec in self.specs)),
        }
        values |= {_INDEX + name: index.to_text() for name, index in self.indexes.items()}
        return values | {_PROPERTY + key: value for key, value in self.properties.items()}

    @property
    def _written_features(self) -> frozenset[str]:
        """What a writer must know, with what follows from the rest of the head."""
        return self.writer_features | ({_INDEXES} if self.indexes else set())

    @staticmethod
    def from_row(
        sequence: int, committed_at: dt.datetime, metadata: Mapping[str, str], uri: str
    ) -> Head:
        """The head of the table at `uri` from its row.

        Raises UnsupportedTable if the table needs an unknown feature, and CorruptTable if the row
        is incomplete or damaged.
        """
        try:
            version = int(metadata.get("format_version", 0))
            readers = frozenset(json.loads(metadata.get("reader_features", "[]")))
            if version != FORMAT_VERSION or not readers <= READER_FEATURES:
                needs = ", ".join(sorted(readers - READER_FEATURES)) or f"format {version}"
                raise UnsupportedTable(f"the table {uri} needs {needs}: upgrade Phalanx to read it")
            return Head(
                sequence=sequence,
                committed_at=committed_at,
                schema=_schema_in(metadata["schema"]),
                specs=_specs_in(metadata["specs"]),
                spec_id=int(metadata["spec_id"]),
                max_field_id=int(metadata["max_field_id"]),
                table_id=metadata["table_id"],
                salt=bytes.fromhex(metadata["salt"]),
                transaction_id=metadata["transaction_id"],
                transactions=metadata["transactions"],
                oldest=int(metadata.get("oldest", 1)),
                properties={
                    key.removeprefix(_PROPERTY): value
                    for key, value in metadata.items()
                    if key.startswith(_PROPERTY)
                },
                reader_features=readers,
                writer_features=frozenset(json.loads(metadata.get("writer_features", "[]")))
                - {_INDEXES},
                indexes={
                    name: IndexDefinition.from_text(name, value)
                    for key, value in metadata.items()
                    if key.startswith(_INDEX)
                    for name in (key.removeprefix(_INDEX),)
                },
            )
        except KeyError as missing:
            raise CorruptTable(
                f"the head row of {uri} has no {missing.args[0]}: repair it"
            ) from None
        except (ValueError, TypeError, AttributeError) as error:
            raise CorruptTable(f"the head row of {uri} is damaged ({error}): repair it") from None

    @staticmethod
    def foreign(version: int, metadata: Mapping[str, str], strong: bool, uri: str) -> Head:
        """The head of another client's manifest, derived from its table metadata.

        Raises UnsupportedTable if the metadata is not what the specification says.
        """
        try:
            specs = [
                PartitionSpec.loads(value)
                for key, value in metadata.items()
                if key.startswith("partition_spec_v")
            ]
            schema = TableSchema.from_json(json.loads(metadata["schema"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UnsupportedTable(
                f"the table {uri} was made by another client, and its metadata cannot be read: "
                f"{error}"
            ) from None
        return Head.of_others(version, schema, specs, strong)

    @staticmethod
    def of_others(
        version: int, schema: TableSchema, specs: Sequence[PartitionSpec], strong: bool
    ) -> Head:
        """The head of another client's table: it has no head row and is only read.

        `version` is that of the manifest.
        """
        specs = sorted(specs, key=lambda spec: spec.id)
        return Head(
            sequence=version,
            committed_at=dt.datetime.fromtimestamp(0, dt.UTC),
            schema=schema.all_nullable(),
            specs=tuple(specs),
            spec_id=specs[-1].id,
            max_field_id=max(schema.field_ids),
            table_id="",
            salt=b"",
            transaction_id="",
            transactions="strong" if strong else "weak",
            ours=False,
            declared=schema,
        )

    def check_writable(self, uri: str) -> None:
        """Raise UnsupportedTable if this version of Phalanx must not write to the table."""
        if not self.ours:
            raise UnsupportedTable(
                f"the table {uri} was made by another client and has no head row: it can only be "
                "read, until phalanx.interop.upgrade or `phalanx upgrade` makes it a table of ours"
            )
        unknown = self.writer_features - WRITER_FEATURES
        if unknown:
            names = ", ".join(sorted(unknown))
            raise UnsupportedTable(f"the table {uri} needs {names}: upgrade Phalanx to write to it")
