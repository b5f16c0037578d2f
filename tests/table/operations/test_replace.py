"""How a table comes to be: with its first rows, or in the place of another."""

from concurrent.futures import ThreadPoolExecutor

import lance
import pyarrow as pa
import pytest
from lance.dataset import MergeInsertBuilder

import phalanx
from phalanx import ConflictError, InvalidInput, TableExists
from phalanx.storage.location import Location
from phalanx.table import create as creation
from phalanx.table.partitioned_writer import BUFFER_BYTES, PartitionedWriter
from phalanx.transaction.snapshot import Snapshot

FIRST = pa.schema([("id", pa.int64()), ("country", pa.string())])
SECOND = pa.schema([("country", pa.string()), ("size", pa.list_(pa.int32()))])
ROWS = pa.table({"id": [1, 2, 3], "country": ["DE", "FR", "DE"]}, FIRST)
OTHER = pa.table({"country": ["DE", None], "size": [[1], [2, 3]]}, SECOND)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(2) as found:
        yield found


def write(root, head, rows, pool):
    """Rows as files of a table that is not there yet."""
    staged = Snapshot.unborn(Location(root), head)
    return PartitionedWriter(staged, pool, BUFFER_BYTES).write(iter([rows]))


def create(root, pool, rows=ROWS, partition_by=("country",), transactions="strong"):
    head = creation.first_head(rows.schema, partition_by, transactions, {"team": "us"})
    return creation.create_table(Location(root), head, write(root, head, rows, pool), pool, 0.0)


def replaced_head(root, schema=SECOND, partition_by=("country",)):
    base = phalanx.open(root)._snapshot
    return base, creation.replaced_head(base.head, schema, partition_by, {})


def rows_of(table):
    return table.scan().to_arrow().to_pylist()


class TestCreate:
    def test_rows_and_table_in_one_snapshot(self, root, pool):
        create(root, pool)
        table = phalanx.open(root)
        assert table.version == 1
        assert table.count() == 3
        assert table.count("country = 'DE'") == 2
        assert table.partitions().num_rows == 2
        (snapshot,) = table.snapshots().to_pylist()
        assert (snapshot["operation"], snapshot["rows_added"]) == ("create", 3)

    def test_weak(self, root, pool):
        create(root, pool, transactions="weak")
        assert phalanx.open(root).count() == 3

    def test_nothing_is_there_before(self, root, pool):
        head = creation.first_head(FIRST, ["country"], "strong", None)
        write(root, head, ROWS, pool)
        with pytest.raises(phalanx.PhalanxError):
            phalanx.open(root)

    def test_two_creators(self, root, pool):
        create(root, pool)
        with pytest.raises(TableExists):
            create(root, pool, ROWS.slice(1))
        assert phalanx.open(root).count() == 3

    def test_later_changes(self, root, pool):
        create(root, pool)
        table = phalanx.open(root)
        table.append(ROWS)
        table.delete("id = 1")
        assert table.count() == 4
        assert phalanx.open(root, version=1).count() == 3

    @pytest.mark.parametrize(
        ("partition_by", "transactions", "properties", "said"),
        [
            (["none"], "strong", {}, "none"),
            (["country"], "firm", {}, "'strong' or 'weak'"),
            (["country"], "strong", {"anchor": "x"}, "anchor"),
        ],
    )
    def test_what_is_refused(self, partition_by, transactions, properties, said):
        with pytest.raises(InvalidInput, match=said):
            creation.first_head(FIRST, partition_by, transactions, properties)


class TestReplace:
    def test_schema_spec_rows_and_properties(self, root, pool):
        create(root, pool)
        base, head = replaced_head(root)
        creation.replace_table(base, head, write(root, head, OTHER, pool), pool, 0.0)
        table = phalanx.open(root)
        assert table.version == 2
        assert table.schema == SECOND
        assert sorted(map(str, rows_of(table))) == sorted(map(str, OTHER.to_pylist()))
        assert table.count("country IS NULL") == 1
        assert "team" not in table._snapshot.head.properties

    def test_history_is_kept(self, root, pool):
        create(root, pool)
        base, head = replaced_head(root)
        creation.replace_table(base, head, [], pool, 0.0)
        assert phalanx.open(root).count() == 0
        old = phalanx.open(root, version=1)
        assert old.schema == FIRST
        assert old.count("country = 'DE'") == 2

    def test_no_id_is_used_again(self, root, pool):
        create(root, pool)
        ids = set(phalanx.open(root)._snapshot.head.schema.field_ids)
        specs = {1}
        for schema in (SECOND, FIRST, SECOND):
            base, head = replaced_head(root, schema)
            creation.replace_table(base, head, [], pool, 0.0)
            found = phalanx.open(root)._snapshot.head
            assert not ids & set(found.schema.field_ids)
            assert found.spec_id not in specs
            ids |= set(found.schema.field_ids)
            specs.add(found.spec_id)

    def test_leaves_have_the_ids_of_the_table(self, root, pool):
        create(root, pool)
        base, head = replaced_head(root)
        creation.replace_table(base, head, write(root, head, OTHER, pool), pool, 0.0)
        table = phalanx.open(root)
        table.append(OTHER)
        for leaf in table.scan().plan().leaves:
            found = lance.dataset(leaf.uri, version=leaf.version).lance_schema
            assert [field.id() for field in found.fields()] == [2, 3]
        assert table.count() == 4

    def test_back_to_the_old_one(self, root, pool):
        create(root, pool)
        base, head = replaced_head(root)
        creation.replace_table(base, head, write(root, head, OTHER, pool), pool, 0.0)
        table = phalanx.open(root)
        table.rollback(1)
        assert table.schema == FIRST
        assert table.count() == 3
        table.append(ROWS)
        assert table.count() == 6
        assert phalanx.open(root, version=2).count() == 2

    def test_rows_of_a_leaf_with_the_same_values(self, root, pool):
        """The new spec has leaves of its own: the old leaf's files are not the new one's."""
        create(root, pool)
        base, head = replaced_head(root, FIRST)
        creation.replace_table(base, head, write(root, head, ROWS.slice(0, 1), pool), pool, 0.0)
        table = phalanx.open(root)
        assert rows_of(table) == [{"id": 1, "country": "DE"}]
        table.append(ROWS)
        assert table.count() == 4
        assert phalanx.open(root, version=1).count() == 3

    def test_an_append_in_between_is_replaced_too(self, root, pool):
        create(root, pool)
        base, head = replaced_head(root)
        written = write(root, head, OTHER, pool)
        phalanx.open(root).append(ROWS)
        creation.replace_table(base, head, written, pool, 0.0)
        table = phalanx.open(root)
        assert table.version == 3
        assert table.count() == 2
        assert phalanx.open(root, version=2).count() == 6

    def test_an_append_that_comes_late_is_refused(self, root, pool):
        create(root, pool)
        late = phalanx.open(root)
        base, head = replaced_head(root)
        creation.replace_table(base, head, [], pool, 0.0)
        with pytest.raises(ConflictError, match="schema"):
            late.append(ROWS)
        assert phalanx.open(root).count() == 0

    def test_two_at_once(self, root, pool):
        create(root, pool)
        base, head = replaced_head(root)
        other_base, other = replaced_head(root, FIRST)
        creation.replace_table(base, head, [], pool, 0.0)
        with pytest.raises(ConflictError):
            creation.replace_table(other_base, other, write(root, other, ROWS, pool), pool, 0.0)
        assert phalanx.open(root).schema == SECOND

    def test_after_a_replace_that_was_rolled_back(self, root, pool):
        """The schema is the old one again, but its successor's ids are taken."""
        create(root, pool)
        late_base, late = replaced_head(root)
        base, head = replaced_head(root)
        creation.replace_table(base, head, [], pool, 0.0)
        phalanx.open(root).rollback(1)
        with pytest.raises(ConflictError, match="replaced in between"):
            creation.replace_table(late_base, late, [], pool, 0.0)
        assert phalanx.open(root).count() == 3

    def test_weak_tables_are_refused(self, root, pool):
        create(root, pool, transactions="weak")
        base, head = replaced_head(root)
        with pytest.raises(phalanx.PhalanxError, match="replaced"):
            creation.replace_table(base, head, [], pool, 0.0)
        assert phalanx.open(root).count() == 3

    def test_a_failure_before_the_swap_changes_nothing(self, root, pool, monkeypatch):
        create(root, pool)
        base, head = replaced_head(root)
        written = write(root, head, OTHER, pool)

        def fail(*args, **options):
            raise OSError("the disk is full")

        for name in ("execute", "execute_uncommitted"):
            monkeypatch.setattr(MergeInsertBuilder, name, fail)
        with pytest.raises((phalanx.PhalanxError, OSError)):
            creation.replace_table(base, head, written, pool, 0.0)
        monkeypatch.undo()
        table = phalanx.open(root)
        assert table.version == 1
        assert table.schema == FIRST
        assert table.count() == 3
