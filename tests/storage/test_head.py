import dataclasses
import datetime as dt
import json

import pyarrow as pa
import pytest

from phalanx import CorruptTable, UnsupportedTable
from phalanx.model.schema import TableSchema
from phalanx.model.specs import build_spec
from phalanx.storage.head import Head

NOW = dt.datetime(2025, 12, 10, 12, tzinfo=dt.UTC)
LATER = NOW + dt.timedelta(seconds=1)


@pytest.fixture
def head():
    return new_head()


def new_head():
    schema = TableSchema.assign(pa.schema([("id", pa.int64()), ("country", pa.string())]))
    return Head.first(schema, build_spec(1, ["country"], schema), NOW, "strong")


def read_back(head, **changes):
    metadata = head.to_metadata() | changes
    return Head.from_row(head.sequence, head.committed_at, metadata, "a/b")


class TestContent:
    def test_a_new_table(self, head):
        assert (head.sequence, head.spec_id, head.max_field_id) == (1, 1, 1)
        assert head.spec is head.specs[0]
        assert head.ours

    def test_no_two_tables_share_salt_or_id(self, head):
        other = new_head()
        assert other.salt != head.salt
        assert other.table_id != head.table_id
        assert len(head.salt) == 16

    def test_it_is_read_back_as_it_was(self, head):
        head = dataclasses.replace(head, properties={"anchor": "never", "x.y": ""})
        assert read_back(head) == head

    def test_metadata_is_of_strings(self, head):
        assert all(isinstance(value, str) for value in head.to_metadata().values())


class TestNext:
    def test_the_sequence_rises_by_one(self, head):
        after = head.after(LATER, "t")
        assert (after.sequence, after.committed_at) == (2, LATER)
        assert after.salt == head.salt

    def test_time_never_runs_backwards(self, head):
        assert head.after(NOW - dt.timedelta(days=1), "t").committed_at == NOW


class TestFeatures:
    def test_an_unknown_reader_feature_is_refused(self, head):
        with pytest.raises(
            UnsupportedTable, match="a/b needs time-travel: upgrade Phalanx to read"
        ):
            read_back(head, reader_features='["time-travel"]')

    def test_another_format_is_refused(self, head):
        with pytest.raises(UnsupportedTable, match="the table a/b needs format 2"):
            read_back(head, format_version="2")

    def test_an_unknown_writer_feature_lets_one_read(self, head):
        found = read_back(head, writer_features='["checksums"]')
        with pytest.raises(UnsupportedTable, match="a/b needs checksums: upgrade Phalanx to write"):
            found.check_writable("a/b")

    def test_our_own_can_be_written(self, head):
        read_back(head).check_writable("a/b")

    def test_a_part_that_is_missing(self, head):
        metadata = head.to_metadata()
        del metadata["salt"]
        with pytest.raises(CorruptTable, match="the head row of a/b has no salt: repair it"):
            Head.from_row(1, NOW, metadata, "a/b")

    @pytest.mark.parametrize(
        ("key", "text"),
        [
            ("schema", "{"),
            ("schema", "[]"),
            ("specs", "5"),
            ("specs", "[{}]"),
            ("salt", "xyz"),
            ("spec_id", "one"),
            ("format_version", "new"),
            ("reader_features", "5"),
        ],
    )
    def test_a_part_that_is_damaged(self, head, key, text):
        with pytest.raises(CorruptTable, match=r"the head row of a/b is damaged \(.*\): repair it"):
            read_back(head, **{key: text})


class TestForeign:
    def test_the_newest_spec_counts(self, head):
        schema = json.dumps(head.schema.to_json())
        specs = {id: build_spec(id, ["country"], head.schema).dumps() for id in (2, 10, 1)}
        metadata = {"schema": schema} | {f"partition_spec_v{id}": s for id, s in specs.items()}
        found = Head.foreign(7, metadata, True, "a/b")
        assert [spec.id for spec in found.specs] == [1, 2, 10]
        assert (found.spec_id, found.sequence, found.transactions) == (10, 7, "strong")
        with pytest.raises(UnsupportedTable, match=r"the table a/b was made .* can only be read"):
            found.check_writable("a/b")
