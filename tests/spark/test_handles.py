"""What a planner worker remembers of tables between calls."""

import dataclasses
import json

import pyarrow as pa
import pytest

import phalanx
from phalanx.spark.handles import Handle
from phalanx.transaction.snapshot import Snapshot
from tests.spark.door import call, catalog

SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}


def stage(folder, mode):
    return call(
        "stage_table",
        catalog=catalog(warehouse=str(folder)),
        ident=["default", "t"],
        mode=mode,
        schema=json.dumps(SCHEMA),
        partitioning=[],
        properties={},
    )


def handle_of(uri):
    """The handle that another worker has given out."""
    snapshot = Snapshot.latest(phalanx.open(uri)._snapshot.location)
    return Handle(uri, snapshot.sequence, snapshot.head.transaction_id)


@pytest.mark.parametrize("mode", ["create", "replace"])
def test_what_is_staged_is_not_what_is_read(tmp_path, mode):
    """A worker that has staged a table must not take the staged one, without rows, for it."""
    uri = str(tmp_path / "default" / "t")
    if mode == "replace":
        table = phalanx.create(uri, pa.schema([("id", pa.int64())]))
        table.append([{"id": 1}])
    staged = stage(tmp_path, mode)["handle"]
    if mode == "create":
        call("commit_staged", table=staged)
        # The same version and transaction, now with rows: as after CREATE TABLE AS SELECT.
        made = Handle(uri, 1, staged["head"]["transaction_id"])
        assert made.snapshot().manifest.version >= 1
    else:
        assert handle_of(uri).snapshot().leaves.row_counts.tolist() == [1]


def test_a_table_that_was_made_again_is_noticed(tmp_path):
    uri = str(tmp_path / "t")
    phalanx.create(uri, pa.schema([("id", pa.int64())]))
    with pytest.raises(phalanx.ConflictError, match="dropped and made again"):
        Handle(uri, 1, "another").snapshot()


def test_who_has_other_credentials_reads_with_those(tmp_path):
    uri = str(tmp_path / "t")
    phalanx.create(uri, pa.schema([("id", pa.int64())]))
    options = {"session_token": "that of the first"}
    first = Handle.of(phalanx.open(uri, storage_options=options)._snapshot)
    for others in ({"session_token": "that of the second"}, {}, None):
        second = dataclasses.replace(first, options=others)
        assert (second.snapshot().location.options or None) == (others or None)
    assert first.snapshot().location.options == options
    assert first.snapshot() is first.snapshot()
