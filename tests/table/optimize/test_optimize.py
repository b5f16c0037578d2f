"""Optimize: fewer and larger files, the same rows."""

import pickle
import random

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import phalanx
from phalanx import InvalidInput
from phalanx.storage import compaction
from phalanx.storage.compaction import Target
from phalanx.storage.leaf import Leaf
from phalanx.storage.records import FragmentSize
from phalanx.table import optimize
from tests.table.optimize.files import (
    SCHEMA,
    deleted_in_files,
    fragments,
    last_operation,
    row,
    rows_of,
    statistics_of,
)


class TestWhatItDoes:
    def test_one_file_for_each_leaf_and_the_rows_as_they_were(self, table):
        before = rows_of(table)
        report = table.optimize()
        assert rows_of(table) == before
        assert fragments(table) == {"a": 1, "b": 1, None: 1}
        assert deleted_in_files(table) == 0
        assert last_operation(table) == ("optimize", 0, 0, 2)
        assert (report.leaves, report.rewritten, report.deleted_rows) == (3, 2, 3)
        assert (report.files_before, report.files_after) == (11, 3)
        assert report.bytes_after == sum(table.files()["bytes"].to_pylist()) < report.bytes_before
        assert report.versions == (table.version,)
        assert table.check().ok

    def test_the_manifest_counts_what_is_there(self, table):
        table.optimize()
        for leaf in table.partitions().to_pylist():
            files = [f for f in table.files().to_pylist() if f["path"].startswith(leaf["uri"])]
            assert leaf["bytes"] == sum(file["bytes"] for file in files)
            assert leaf["rows"] == sum(file["rows"] for file in files)

    def test_a_second_time_there_is_nothing_to_do(self, table):
        table.optimize()
        version = table.version
        report = table.optimize()
        assert (report.rewritten, report.versions, table.version) == (0, (), version)
        assert report.files_before == report.files_after == 3
        assert report.bytes_before == report.bytes_after

    def test_older_versions_stay_readable(self, table):
        before, version = rows_of(table), table.version
        table.optimize()
        assert rows_of(phalanx.open(table.uri, version=version)) == before
        table.rollback(version)
        assert fragments(table)["a"] == 5
        table.optimize()
        assert rows_of(table) == before

    def test_a_dry_run_changes_nothing_and_says_what_would(self, table):
        version, uri = table.version, table.partitions().to_pylist()[0]["uri"]
        files = len(lance.dataset(uri).get_fragments())
        report = table.optimize(dry_run=True)
        assert (table.version, fragments(table)["a"]) == (version, 5)
        assert len(lance.dataset(uri).get_fragments()) == files
        assert (report.rewritten, report.files_after, report.bytes_after) == (2, 3, None)
        assert str(report).startswith("would rewrite 2 of 3 leaves: 11 files, ")
        done = table.optimize()
        assert (done.files_after, done.deleted_rows) == (report.files_after, report.deleted_rows)
        assert str(done).startswith("rewrote 2 of 3 leaves: 11 files, ")

    def test_an_empty_table(self, root):
        table = phalanx.create(root, SCHEMA, ["part"])
        assert str(table.optimize()) == (
            "rewrote 0 of 0 leaves: 0 files, 0 B before, 0 files, 0 B after"
        )
        assert table.version == 1

    def test_a_leaf_without_partition_values(self, root):
        table = phalanx.create(root, SCHEMA)
        for i in range(3):
            table.append([row(i)])
        assert table.optimize().files_after == 1
        assert [r["id"] for r in rows_of(table)] == [0, 1, 2]

    def test_plain_lance_sees_the_rows_afterwards(self, table):
        table.optimize()
        for leaf in table.partitions().to_pylist():
            assert lance.dataset(leaf["uri"]).count_rows() == leaf["rows"]

    def test_nothing_is_published_where_the_table_says_never(self, table):
        table.set_properties({"anchor": "never"})
        uris = table.partitions()["uri"].to_pylist()
        before = [lance.dataset(uri).version for uri in uris]
        table.optimize()
        assert [lance.dataset(uri).version for uri in uris] == before

    def test_deleted_rows_of_a_single_file(self, root):
        table = phalanx.create(root, SCHEMA, ["part"]).append([row(i) for i in range(10)])
        table.delete("id < 3")
        assert deleted_in_files(table) == 3
        report = table.optimize()
        assert (report.files_before, report.files_after, report.deleted_rows) == (1, 1, 3)
        assert deleted_in_files(table) == 0
        assert [r["id"] for r in rows_of(table)] == list(range(3, 10))


class TestStatistics:
    def test_bounds_are_exact_again_after_a_delete(self, table):
        loose = statistics_of(table, "a")
        assert (loose[0].low, loose[0].exact, loose[2].null_count) == (0, False, None)
        table.optimize()
        tight = statistics_of(table, "a")
        assert (tight[0].low, tight[0].high, tight[0].exact) == (2, 44, True)
        ids = table.scan(where="part = 'a'").to_arrow()["n"]
        assert tight[2].null_count == ids.null_count > 0

    def test_others_stay_as_they_were(self, root):
        table = phalanx.create(root, SCHEMA, ["part"])
        table.append([row(1, n=1.5)]).append([row(2)])
        before = statistics_of(table, "a")
        table.optimize()
        assert statistics_of(table, "a") == before

    def test_of_a_leaf_that_is_rewritten_in_part_they_stay_bounds(self, root):
        table = phalanx.create(root, SCHEMA, ["part"])
        table.append([row(i) for i in range(100)]).append([row(200)]).append([row(201)])
        table.delete("id = 201 OR id = 0")
        before = rows_of(table)
        report = table.optimize(target_rows=100)
        # The large file has a deleted row, so it is rewritten; make it whole, and delete again.
        assert report.rewritten == 1
        table.append([row(300)]).append([row(301)])
        table.delete("id = 301")
        table.append([row(302)])
        table.optimize(target_rows=100)
        found = statistics_of(table, "a")
        assert not found[0].exact
        assert found[0].high >= 302
        assert rows_of(table) == [*before, row(300), row(302)]


class TestWhere:
    def test_chooses_partitions(self, table):
        report = table.optimize("part = 'b'")
        assert fragments(table) == {"a": 5, "b": 1, None: 1}
        assert (report.leaves, report.rewritten, report.notes) == (1, 1, [])

    def test_null_is_a_partition_like_any_other(self, table):
        table.append([row(101, None)])
        table.optimize("part IS NULL")
        assert fragments(table) == {"a": 5, "b": 5, None: 1}

    def test_says_so_where_partition_values_do_not_decide(self, table):
        report = table.optimize("id = 10")
        assert fragments(table) == {"a": 1, "b": 1, None: 1}
        assert "3 leaves that may hold matching rows are taken whole" in str(report)

    def test_that_nothing_matches(self, table):
        assert table.optimize("part = 'zzz'").leaves == 0

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"where": "nope = 1"}, "unknown column 'nope'"),
            ({"target_rows": 0}, "target_rows is a whole number from 1"),
            ({"target_bytes": "1"}, "target_bytes is a whole number from 1"),
            ({"sort_by": ["nope"]}, "unknown column 'nope'"),
            ({"sort_by": "id"}, "sort_by is a list of columns"),
            ({"sort_by": [("id", "up")]}, "descending"),
            ({"sort_by": ["id", "id"]}, "twice"),
            ({"zorder_by": ["id"]}, "2 to 8 columns"),
            ({"sort_by": ["id"], "zorder_by": ["id", "n"]}, "not both"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, table, options, message):
        version = table.version
        with pytest.raises(InvalidInput, match=message):
            table.optimize(**options)
        assert table.refresh().version == version


class TestTargets:
    def test_rows_bound_the_files(self, root):
        table = phalanx.create(root, SCHEMA, ["part"])
        for k in range(12):
            table.append([row(10 * k + i) for i in range(10)])
        report = table.optimize(target_rows=40)
        assert table.files()["rows"].to_pylist() == [40, 40, 40]
        assert report.files_after == 3
        assert [r["id"] for r in rows_of(table)] == list(range(120))
        assert table.optimize(target_rows=40).rewritten == 0

    def test_files_that_are_large_enough_stay(self, root):
        table = phalanx.create(root, SCHEMA, ["part"]).append([row(i) for i in range(100)])
        table.append([row(100)]).append([row(101)])
        before = table.files().to_pylist()[0]["path"]
        table.optimize(target_rows=100)
        assert table.files()["rows"].to_pylist() == [100, 2]
        assert table.files().to_pylist()[0]["path"] == before

    def test_files_that_are_too_large_are_cut(self, root):
        table = phalanx.create(root, SCHEMA, ["part"]).append([row(i) for i in range(100)])
        table.optimize(target_rows=30)
        assert table.files()["rows"].to_pylist() == [30, 30, 30, 10]
        assert [r["id"] for r in rows_of(table)] == list(range(100))

    def test_bytes_bound_the_files(self, root):
        schema = pa.schema([("id", pa.int64()), ("data", pa.binary())])
        table = phalanx.create(root, schema)
        noise = random.Random(5)
        for k in range(8):
            table.append([{"id": k, "data": noise.randbytes(50_000)}])
        table.optimize(target_bytes=120_000)
        assert table.files()["rows"].to_pylist() == [2, 2, 2, 2]

    @given(
        sizes=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=30),
        rows=st.integers(1, 60),
    )
    @settings(max_examples=200, deadline=None)
    def test_groups_are_neighbors_that_make_one_file(self, sizes, rows):
        parts = [
            FragmentSize(i, live, 10 * (live + gone), gone) for i, (live, gone) in enumerate(sizes)
        ]
        target = Target(rows, 10**9)
        found = compaction.groups(parts, target)
        ids = [part.id for group in found for part in group]
        assert ids == sorted(set(ids))
        for group in found:
            numbers = [part.id for part in group]
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
            assert len(group) == 1 or sum(part.rows for part in group) <= rows
        assert {p.id for p in parts if p.deletions} <= set(ids)
        # What comes of it is left alone the next time.
        after, number = [], 0
        by_first = {group[0].id: group for group in found}
        for part in parts:
            if part.id in by_first:
                live = sum(p.rows for p in by_first[part.id])
                for start in range(0, live, rows):
                    after.append(FragmentSize(number, min(rows, live - start), 10))
                    number += 1
            elif part.id not in ids:
                after.append(FragmentSize(number, part.rows, 10))
                number += 1
        again = compaction.groups(after, target)
        assert len([p for group in again for p in group]) <= len(after)


class TestSteps:
    def test_the_work_travels_to_another_process_and_back(self, table):
        """What Spark will do: tasks go out as bytes, and what was written comes back so."""
        before, base = rows_of(table), table._snapshot
        with optimize.ThreadPoolExecutor(2) as pool:
            target = Target(optimize.TARGET_ROWS, optimize.TARGET_BYTES)
            found = optimize.plan(base, None, optimize.Goal(target), pool)
            (group,) = found.groups()
            sent = [pickle.loads(pickle.dumps(task)) for task in group]
            done = [pickle.loads(pickle.dumps(optimize.compact(task))) for task in sent]
            assert fragments(table.refresh())["a"] == 5
            version, _ = optimize.commit(base, done, pool, 0.0)
        assert table.refresh().version == version
        assert rows_of(table) == before
        assert fragments(table) == {"a": 1, "b": 1, None: 1}

    def test_many_leaves_become_several_transactions(self, table, monkeypatch):
        monkeypatch.setattr(optimize, "GROUP_LEAVES", 1)
        report = table.optimize()
        assert len(report.versions) == 2
        assert fragments(table) == {"a": 1, "b": 1, None: 1}

    def test_and_so_do_many_bytes(self, table, monkeypatch):
        monkeypatch.setattr(optimize, "GROUP_BYTES", 1)
        assert len(table.optimize().versions) == 2


class TestEarlierSchemas:
    @pytest.fixture
    def changed(self, table):
        """The leaves know nothing of it: they are read through the table's schema."""
        table.add_column("extra", pa.int32(), default=7)
        table.rename_column("id", "number")
        table.change_type("extra", pa.int64())
        table.drop_column("n")
        return table

    def test_a_leaf_gets_the_tables_schema(self, changed):
        before = rows_of(changed)
        report = changed.optimize()
        assert rows_of(changed) == before
        assert (report.rewritten, report.files_after, deleted_in_files(changed)) == (2, 3, 0)
        for leaf in changed.partitions().to_pylist():
            if leaf["part"] is not None:
                assert lance.dataset(leaf["uri"]).schema.names == ["number", "part", "extra"]
                assert lance.dataset(leaf["uri"]).count_rows("extra = 7") == leaf["rows"]
        found = statistics_of(changed, "a")
        assert {id: (s.low, s.high, s.exact) for id, s in found.items()} == {
            0: (2, 44, True),
            1: ("a", "a", True),
            3: (7, 7, True),
        }
        assert changed.check().ok

    def test_an_append_in_between_has_it_done_again(self, changed, meanwhile):
        new = {"number": 500, "part": "a", "extra": 1}
        meanwhile(lambda: phalanx.open(changed.uri).append([new]))
        before = rows_of(changed)
        changed.optimize()
        assert sorted(rows_of(changed), key=str) == sorted([*before, new], key=str)
        assert changed.check().ok

    def test_so_does_a_change_of_the_schema(self, table, meanwhile):
        meanwhile(lambda: phalanx.open(table.uri).add_column("late", pa.string(), default="x"))
        before = rows_of(table)
        report = table.optimize()
        assert rows_of(table) == [{**r, "late": "x"} for r in before]
        assert (report.rewritten, fragments(table)) == (2, {"a": 1, "b": 1, None: 1})

    def test_another_spec_is_of_no_consequence(self, table, meanwhile):
        meanwhile(lambda: phalanx.open(table.uri).evolve_partitioning(["bucket(4, id)"]))
        before = rows_of(table)
        assert table.optimize().rewritten == 2
        assert rows_of(table) == before


class TestIndexes:
    def test_files_that_an_index_points_into_stay(self, table):
        """It stays valid: no row moves away from where it says."""
        snapshot = table._snapshot
        place = next(snapshot.leaves.row(i) for i in range(3) if snapshot.leaves.row(i).keys[0])
        leaf = Leaf(snapshot.location, place.location, snapshot.head.schema)
        handle = leaf.open(place.read_version)
        ids = [f.fragment_id for f in handle.get_fragments()]
        index = handle.create_index_uncommitted("id", "BTREE", name="by_id", fragment_ids=ids[:3])
        operation = lance.LanceOperation.CreateIndex([index], [])
        made = lance.LanceDataset.commit(
            handle, operation, read_version=handle.version, detached=True
        )
        contents = compaction.look(leaf, made.version)
        assert contents.indexes == ("by_id",)
        found = compaction.groups(contents.fragments, Target(1000, 10**6))
        assert [[part.id for part in group] for group in found] == [ids[3:]]
        delta, _ = compaction.rewrite(leaf, made.version, [ids[3:]], Target(1000, 10**6))
        after = leaf.open(leaf.commit(made.version, delta))
        (described,) = after.describe_indices()
        assert described.num_rows_indexed == sum(p.rows for p in contents.fragments[:3])
        assert after.count_rows() == handle.count_rows()
        assert "ScalarIndexQuery" in after.scanner(filter="id = 10").explain_plan(True)
        assert after.to_table(filter="id = 40").num_rows == handle.count_rows("id = 40")


class TestWeakTables:
    @pytest.fixture
    def weak(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], transactions="weak")
        for k in range(4):
            table.append([row(10 * k + i, "ab"[i % 2]) for i in range(4)])
        table.delete("id = 2")
        return table

    def test_are_compacted_on_main(self, weak):
        before = rows_of(weak)
        report = weak.optimize()
        assert rows_of(weak) == before
        assert [leaf["fragments"] for leaf in weak.partitions().to_pylist()] == [1, 1]
        assert (report.files_before, report.files_after, report.deleted_rows) == (8, 2, 1)
        assert weak.optimize().rewritten == 0

    def test_beside_a_delete(self, weak, monkeypatch):
        real, first = compaction.rewrite, []

        def rewrite(leaf, *args):
            done = real(leaf, *args)
            if not first:
                first.append(leaf)
                phalanx.open(weak.uri).delete("id = 10")
                phalanx.open(weak.uri).append([row(77, "a"), row(78, "b")])
            return done

        monkeypatch.setattr(compaction, "rewrite", rewrite)
        expected = sorted([r["id"] for r in rows_of(weak) if r["id"] != 10] + [77, 78])
        report = weak.optimize("part = 'a'")
        assert (len(first), report.rewritten) == (1, 1)
        assert sorted(r["id"] for r in rows_of(weak)) == expected
