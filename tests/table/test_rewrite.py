"""Rewrite: rows move to the newest spec, each is there once at any time, and a call goes on."""

import pickle
import shutil
import threading

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import phalanx
from phalanx import InvalidInput
from phalanx.table import rewrite
from phalanx.transaction.snapshot import Snapshot
from tests.transaction.sabotage import failing, steps

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])


def row(id, part="a", n=0):
    return {"id": id, "part": part, "n": n}


def rows_of(table, where=None):
    found = table.scan(where=where).to_arrow().to_pylist()
    return sorted(found, key=lambda r: (r["id"] is None, r["id"] or 0, str(r)))


def specs(table):
    return sorted(set(table.partitions()["spec"].to_pylist()))


def operations(table):
    return table.snapshots()["operation"].to_pylist()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Three leaves of the first spec, of several files and with deleted rows, one of the next."""
    table = phalanx.create(tmp_path_factory.mktemp("prepared") / "table", SCHEMA, ["part"])
    for k in range(3):
        table.append([row(10 * k + i, ["a", "b", None][i % 3], i) for i in range(6)])
    table.delete("id IN (0, 11)")
    table.evolve_partitioning(["bucket(4, id)"])
    table.append([row(100), row(101, "b")])
    return table.uri


@pytest.fixture
def table(prepared, root):
    return phalanx.open(shutil.copytree(prepared, root))


class TestWhatItDoes:
    def test_all_rows_are_in_the_newest_spec(self, table):
        before, version = rows_of(table), table.version
        report = table.rewrite()
        assert rows_of(table) == before
        assert specs(table) == [2]
        assert (report.leaves, report.left, report.steps, report.rows) == (3, 0, 1, 16)
        assert report.versions == (table.version,) == (version + 1,)
        last = table.snapshots().to_pylist()[-1]
        assert (last["operation"], last["rows_added"], last["rows_removed"]) == ("rewrite", 16, 16)
        assert table.count() == len(before)
        assert table.check().ok
        assert str(report).startswith("moved 16 rows (")

    def test_queries_are_pruned_by_the_new_fields_alone(self, table):
        table.rewrite()
        plan = table.scan(where="id = 12").plan()
        assert plan.selected == 1
        assert rows_of(table, "id = 12") == [row(12, None, 2)]
        assert table.scan(where="part = 'a'").plan().pruned == 0

    def test_deleted_rows_do_not_come_back(self, table):
        table.rewrite()
        assert rows_of(table, "id IN (0, 11)") == []
        assert sum(table.files()["deleted_rows"].to_pylist()) == 0

    def test_a_second_time_there_is_nothing_to_do(self, table):
        table.rewrite()
        version = table.version
        report = table.rewrite()
        assert (report.leaves, report.steps, table.version) == (0, 0, version)

    def test_a_table_of_one_spec(self, root):
        table = phalanx.create(root, SCHEMA, ["part"]).append([row(1)])
        assert (table.rewrite().steps, table.version) == (0, 2)

    def test_earlier_versions_stay_as_they_were(self, table):
        before, version = rows_of(table), table.version
        table.rewrite()
        assert rows_of(phalanx.open(table.uri, version=version)) == before
        table.rollback(version)
        assert (rows_of(table), specs(table)) == (before, [1, 2])

    def test_several_specs_at_once(self, table):
        table.evolve_partitioning([]).append([row(200)])
        before = rows_of(table)
        table.rewrite()
        assert (rows_of(table), specs(table), len(table.partitions())) == (before, [3], 1)

    def test_a_dry_run_changes_nothing(self, table):
        version = table.version
        report = table.rewrite(dry_run=True)
        assert (report.leaves, report.steps, report.rows, report.versions) == (3, 1, 16, ())
        assert str(report).startswith("would move 16 rows")
        assert table.refresh().version == version
        assert specs(table) == [1, 2]

    def test_plain_lance_sees_the_new_leaves(self, table):
        import lance

        table.rewrite()
        for leaf in table.partitions().to_pylist():
            assert lance.dataset(leaf["uri"]).count_rows() == leaf["rows"]

    def test_a_dropped_source_counts_as_null(self, root):
        table = phalanx.create(root, SCHEMA, ["part"]).append([row(1), row(2, "b")])
        table.evolve_partitioning(["part", "bucket(2, id)"]).append([row(3)])
        table.drop_column("part")
        before = rows_of(table)
        table.rewrite()
        assert (rows_of(table), specs(table)) == (before, [2])

    def test_leaves_of_an_earlier_schema(self, table):
        table.add_column("extra", pa.int32(), default=5)
        table.rename_column("n", "m")
        before = rows_of(table)
        table.rewrite(step_rows=5)
        assert (rows_of(table), specs(table)) == (before, [2])
        assert table.check().ok


class TestWhere:
    def test_chooses_partitions(self, table):
        before = rows_of(table)
        report = table.rewrite("part = 'a'")
        assert (report.leaves, report.left, report.notes) == (1, 0, [])
        assert rows_of(table) == before
        left = [leaf["part"] for leaf in table.partitions().to_pylist() if leaf["spec"] == 1]
        assert sorted(left, key=str) == [None, "b"]

    def test_null_is_a_partition_like_any_other(self, table):
        table.rewrite("part IS NULL")
        left = [leaf["part"] for leaf in table.partitions().to_pylist() if leaf["spec"] == 1]
        assert sorted(left) == ["a", "b"]

    def test_says_so_where_partition_values_do_not_decide(self, table):
        report = table.rewrite("id = 10")
        assert "3 leaves that may hold matching rows are moved whole" in str(report)
        assert specs(table) == [2]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"where": "nope = 1"}, "unknown column 'nope'"),
            ({"step_rows": 0}, "step_rows is a whole number from 1"),
            ({"step_bytes": -1}, "step_bytes is a whole number from 1"),
            ({"max_steps": 0}, "max_steps is a whole number from 1"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, table, options, message):
        with pytest.raises(InvalidInput, match=message):
            table.rewrite(**options)

    def test_a_weak_table_is_refused(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], transactions="weak")
        with pytest.raises(InvalidInput, match="make_strong"):
            table.rewrite()


class TestSteps:
    def test_are_bounded_by_rows(self, table):
        before = rows_of(table)
        report = table.rewrite(step_rows=3)
        assert report.steps == len(report.versions) > 4
        assert (rows_of(table), specs(table)) == (before, [2])
        # Every row is there once after each of them.
        for version in report.versions:
            assert rows_of(phalanx.open(table.uri, version=version)) == before

    def test_are_bounded_by_bytes(self, table):
        assert table.rewrite(step_bytes=1).steps == 9
        assert specs(table) == [2]

    def test_can_be_counted(self, table):
        before = rows_of(table)
        first = table.rewrite(step_rows=3, max_steps=2)
        assert (first.steps, specs(table)) == (2, [1, 2])
        assert "left" in str(first)
        assert rows_of(table) == before
        assert table.rewrite(step_rows=3).left == 0
        assert (rows_of(table), specs(table)) == (before, [2])

    def test_travel_to_another_process_and_back(self, table):
        """What Spark will do: all steps are planned at once, and done in any order."""
        before, base = rows_of(table), table._snapshot
        found = list(rewrite.plan(base, None, (3, 10**9)))
        sent = [pickle.loads(pickle.dumps(step)) for step in found]
        done = [pickle.loads(pickle.dumps(rewrite.move(step))) for step in reversed(sent)]
        assert table.refresh().version == base.sequence
        with rewrite.ThreadPoolExecutor(2) as pool:
            for moved in done:
                rewrite.commit(base, moved, pool, 0.0)
                assert rows_of(table.refresh()) == before
        assert specs(table) == [2]
        assert table.check().ok

    def test_what_was_committed_is_not_committed_again(self, table):
        base, before = table._snapshot, rows_of(table)
        (step,) = rewrite.plan(base, None, (100, 10**9))
        first, second = rewrite.move(step), rewrite.move(step)
        with rewrite.ThreadPoolExecutor(2) as pool:
            rewrite.commit(base, first, pool, 0.0)
            with pytest.raises(rewrite.Overtaken):
                rewrite.commit(base, second, pool, 0.0)
        assert rows_of(table.refresh()) == before


@pytest.fixture
def meanwhile(monkeypatch):
    """Somebody else does something just before a step is committed."""

    def arrange(*changes):
        left, real = list(changes), rewrite.commit

        def commit(*args):
            if left:
                left.pop(0)()
            return real(*args)

        monkeypatch.setattr(rewrite, "commit", commit)

    return arrange


class TestBesideOthers:
    def test_a_delete_of_rows_that_move(self, table, meanwhile):
        meanwhile(lambda: phalanx.open(table.uri).delete("id = 10"))
        before = [r for r in rows_of(table) if r["id"] != 10]
        table.rewrite()
        assert (rows_of(table), specs(table)) == (before, [2])
        assert table.check().ok

    def test_an_update_of_rows_that_move(self, table, meanwhile):
        meanwhile(lambda: phalanx.open(table.uri).update({"n": "77"}, "id = 10"))
        before = [r if r["id"] != 10 else {**r, "n": 77} for r in rows_of(table)]
        table.rewrite()
        assert (rows_of(table), specs(table)) == (before, [2])

    def test_a_whole_leaf_that_goes(self, table, meanwhile):
        meanwhile(lambda: phalanx.open(table.uri).delete("part = 'a'"))
        before = [r for r in rows_of(table) if r["part"] != "a"]
        table.rewrite()
        assert (rows_of(table), specs(table)) == (before, [2])

    def test_an_append_that_was_prepared_under_the_old_spec(self, prepared, root):
        """It lands in a leaf that rows are moved out of, and is moved too."""
        shutil.copytree(prepared, root)
        table = phalanx.open(root)
        version = operations(table).index("evolve partitioning")
        old = phalanx.open(root, version=version)
        before = rows_of(table)
        with old.transaction() as tx:
            tx.append([row(500), row(501, "new")])
            table.rewrite()
        assert rows_of(table.refresh()) == rows_of(phalanx.open(root))
        assert [r["id"] for r in rows_of(table)] == [r["id"] for r in before] + [500, 501]
        table.rewrite()
        assert specs(table) == [2]
        assert [r["id"] for r in rows_of(table)] == [r["id"] for r in before] + [500, 501]

    def test_rows_added_to_a_leaf_that_is_moved_stay(self, table, meanwhile):
        version = operations(table).index("evolve partitioning")
        old = phalanx.open(table.uri, version=version)
        tx = old.transaction()
        tx.append([row(500)])
        before = rows_of(table)
        meanwhile(tx.commit)
        table.rewrite()
        assert (rows_of(table), specs(table)) == ([*before, row(500)], [2])

    def test_an_optimize_of_the_same_files(self, table, meanwhile):
        meanwhile(lambda: phalanx.open(table.uri).optimize())
        before = rows_of(table)
        table.rewrite()
        assert (rows_of(table), specs(table)) == (before, [2])

    def test_another_spec(self, table, meanwhile):
        meanwhile(lambda: phalanx.open(table.uri).evolve_partitioning(["part", "id"]))
        before = rows_of(table)
        table.rewrite()
        assert (rows_of(table), specs(table)) == (before, [3])

    def test_another_schema(self, table, meanwhile):
        meanwhile(lambda: phalanx.open(table.uri).add_column("late", pa.string(), default="x"))
        before = rows_of(table)
        table.rewrite()
        assert (rows_of(table), specs(table)) == ([{**r, "late": "x"} for r in before], [2])

    def test_another_rewrite(self, table, meanwhile):
        meanwhile(lambda: phalanx.open(table.uri).rewrite(step_rows=5))
        before = rows_of(table)
        table.rewrite()
        assert (rows_of(table), specs(table)) == (before, [2])
        assert table.check().ok

    def test_who_never_rests_is_told_of(self, table, meanwhile):
        ids = (1, 3, 4, 10, 13, 14, 20, 21)
        meanwhile(*(lambda id=id: phalanx.open(table.uri).delete(f"id = {id}") for id in ids))
        before = [r for r in rows_of(table) if r["id"] not in ids]
        report = table.rewrite()
        assert (rows_of(table), report.steps) == (before, 0)
        assert "kept being changed by others" in str(report)
        assert table.rewrite().left == 0
        assert (rows_of(table), specs(table)) == (before, [2])

    @pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
    @pytest.mark.parametrize("where", ["id = 10", "part = 'a'", "n = 4"])
    def test_a_delete_that_began_before_finds_its_rows(self, table, isolation, where):
        """Wherever they are by then: nothing is lost that somebody wanted gone."""
        expected = [r for r in rows_of(table) if r not in rows_of(table, where)]
        other = phalanx.open(table.uri)
        with other.transaction(isolation=isolation) as tx:
            count = tx.delete(where)
            table.rewrite()
        assert count > 0
        assert rows_of(other) == expected

    @pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
    def test_so_does_an_update(self, table, isolation):
        expected = [{**r, "n": 9} if r["n"] == 4 else r for r in rows_of(table)]
        other = phalanx.open(table.uri)
        with other.transaction(isolation=isolation) as tx:
            tx.update({"n": "9"}, "n = 4")
            table.rewrite(step_rows=4)
        assert rows_of(other) == expected

    def test_all_the_while(self, table):
        errors = []

        def write():
            mine = phalanx.open(table.uri)
            try:
                for k in range(6):
                    mine.append([row(1000 + k)])
                    mine.update({"n": "n + 100"}, f"id = {10 + k % 2 * 2}")
                    mine.delete(f"id = {1 + k}")
            except Exception as error:
                errors.append(error)

        def move():
            try:
                phalanx.open(table.uri).rewrite(step_rows=3)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=target) for target in (write, move)]
        expected = [r for r in rows_of(table) if r["id"] not in range(1, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        found = rows_of(table.refresh())
        assert [r["id"] for r in found] == [r["id"] for r in expected] + list(range(1000, 1006))
        changed = {r["id"]: r["n"] for r in found}
        assert (changed[10], changed[12]) == (300, 302)
        table.rewrite()
        assert specs(table) == [2]
        assert rows_of(table) == found
        assert table.check().ok


def test_it_goes_on_after_a_failure_at_every_step(prepared, tmp_path):
    """The whole matrix, with kills too, is in tests/transaction/test_failures.py."""
    first = shutil.copytree(prepared, tmp_path / "first")
    before = rows_of(phalanx.open(first))
    found = steps(lambda: phalanx.open(first).rewrite(step_rows=6))
    named = [name for name in found if name.startswith("rewrite.")]
    assert named == ["rewrite.files-written", "rewrite.before-commit", "rewrite.step-done"]
    for name in named:
        for visit in range(1, found[name] + 1):
            uri = shutil.copytree(prepared, tmp_path / f"{name}-{visit}")
            with pytest.raises(OSError, match="failpoint"), failing(name, "raise", visit):
                phalanx.open(uri).rewrite(step_rows=6)
            table = phalanx.open(uri)
            assert rows_of(table) == before
            assert specs(table) in ([1, 2], [2])
            table.rewrite(step_rows=6)
            assert (rows_of(table), specs(table)) == (before, [2])


VALUES = st.lists(
    st.builds(
        row,
        st.integers(-4, 4) | st.none(),
        st.sampled_from(["a", "b", None]),
        st.integers(0, 3) | st.none(),
    ),
    max_size=6,
)
FIELDS = st.sampled_from([["part"], [], ["bucket(2, id)"], ["truncate(3, id)", "part"], ["n"]])


@given(
    batches=st.lists(st.tuples(FIELDS, VALUES), min_size=2, max_size=4),
    deletes=st.lists(st.sampled_from(["id < 0", "part = 'a'", "n IS NULL", "id = 2"]), max_size=2),
    where=st.sampled_from([None, "part = 'b'", "id > 0"]),
    step=st.sampled_from([1, 4, None]),
    stream=st.booleans(),
)
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_table_holds_the_same_before_and_after(
    tmp_path_factory, batches, deletes, where, step, stream
):
    table = phalanx.create(tmp_path_factory.mktemp("same") / "t", SCHEMA, batches[0][0])
    for fields, rows in batches:
        if table.spec.spell(table._snapshot.head.schema) != fields:
            table.evolve_partitioning(fields)
        table.append(pa.Table.from_pylist(rows, SCHEMA))
    for text in deletes:
        table.delete(text)
    before, last = rows_of(table), table.spec.id
    with pytest.MonkeyPatch.context() as patch:
        if stream:  # as if leaves were too large to be read in one go
            patch.setattr(rewrite, "_SMALL_BYTES", 0)
        table.rewrite(where, step_rows=step)
    assert rows_of(table) == before
    if where is None:
        assert specs(table) in ([], [last])
    for text in ("id = 2", "part = 'a'", "n IS NULL", "id < 0 AND part IS NULL"):
        assert table.count(text) == len(rows_of(table, text))
    assert table.count() == len(before)
    assert Snapshot.latest(table._snapshot.location).sequence == table.version
    assert table.check().ok


def test_in_an_object_store(s3_options):
    """Nothing of it needs a file system: neither compaction nor the move to another spec."""
    uri = "s3://lake/upkeep"
    table = phalanx.create(uri, SCHEMA, ["part"], storage_options=s3_options)
    table.append([row(1), row(2, "b")]).append([row(3), row(4, "b")])
    table.delete("id = 3")
    before = rows_of(table)
    assert table.optimize().files_after == 2
    table.evolve_partitioning(["bucket(2, id)"])
    table.rewrite(step_rows=1)
    assert (rows_of(table), specs(table)) == (before, [2])
    assert table.check().ok
