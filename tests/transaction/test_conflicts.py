"""What becomes of a transaction when another one lands first."""

from collections import Counter

import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError
from phalanx.storage import leaf as leaf_module
from phalanx.storage.leaf import Leaf
from phalanx.storage.leaf_delta import LeafDelta, Written
from phalanx.storage.manifest import ManifestVersion, SwapLost
from phalanx.transaction.view import Commits

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])


def row(id, part="a", n=0):
    return {"id": id, "part": part, "n": n}


@pytest.fixture
def table(root):
    """A leaf of two fragments, ids 1 and 2 in one and 3 and 4 in the other, and one beside it."""
    table = phalanx.create(root, SCHEMA, ["part"])
    table.append([row(1), row(2)])
    table.append([row(3), row(4), row(9, "b")])
    return table


@pytest.fixture
def other(table):
    """Another writer, who comes first in every test."""
    return phalanx.open(table.uri)


@pytest.fixture
def calls(monkeypatch):
    """How often leaves were written to, and worked on."""
    counts = Counter()

    def count(owner, name):
        real = getattr(owner, name)

        def counting(*args, **options):
            counts[name] += 1
            return real(*args, **options)

        monkeypatch.setattr(owner, name, counting)

    count(leaf_module, "write_fragments")
    for name in ("commit", "delete", "delete_rows", "scan"):
        count(Leaf, name)
    return counts


def state(table, version=None):
    found = phalanx.open(table.uri, version=version)
    rows = found.scan().to_arrow().to_pylist()
    assert found.count() == len(rows)
    assert sum(found.partitions()["rows"].to_pylist()) == len(rows)
    return {(found["id"], found["part"]): found["n"] for found in rows} if _unique(rows) else rows


def _unique(rows):
    return len({(found["id"], found["part"]) for found in rows}) == len(rows)


def ids(table):
    return sorted(found["id"] for found in phalanx.open(table.uri).scan().to_arrow().to_pylist())


class TestAppend:
    def test_after_an_append_it_moves_no_data(self, table, other, calls):
        with table.transaction() as tx:
            tx.append([row(5), row(6, "c")])
            other.append([row(7), row(8, "c")])
            calls.clear()
        # Each of the two leaves is committed as it was found first, and on top of the other's.
        assert calls == {"commit": 4}
        assert ids(table) == [1, 2, 3, 4, 5, 6, 7, 8, 9]

    def test_elsewhere_not_even_a_commit_is_repeated(self, table, other, calls):
        with table.transaction() as tx:
            tx.append([row(5)])
            tx.count()
            other.append([row(7, "c")])
            calls.clear()
            with pytest.raises(ConflictError):
                tx.commit()
        with table.refresh().transaction() as tx:
            tx.append([row(5)])
            tx.count("part = 'a'")
            other.append([row(8, "c")])
            calls.clear()
        assert calls == {}
        assert ids(table) == [1, 2, 3, 4, 5, 7, 8, 9]

    @pytest.mark.parametrize(
        ("change", "left"),
        [
            (lambda other: other.delete("id = 1"), [2, 3, 4, 9]),
            (lambda other: other.delete("part = 'a'"), [9]),
            (lambda other: other.delete("id < 5"), [9]),
            (lambda other: other.update({"n": "n + 1"}, "part = 'a'"), [1, 2, 3, 4, 9]),
            (lambda other: other.update({"part": "'c'"}, "part = 'a'"), [1, 2, 3, 4, 9]),
            (lambda other: other.merge([row(1, n=7), row(8)], ["id"]), [1, 2, 3, 4, 8, 9]),
            (lambda other: other.overwrite([row(8)]), [8]),
            (lambda other: other.overwrite([row(8)], "partitions"), [8, 9]),
            (lambda other: other.overwrite([row(1)], where="id = 1"), [1, 2, 3, 4, 9]),
            (lambda other: other.rollback(2), [1, 2]),
            (lambda other: other.rollback(1), []),
        ],
    )
    def test_it_holds_after_everything(self, table, other, calls, change, left):
        with table.transaction() as tx:
            tx.append([row(5), row(6, "c")])
            change(other)
            calls.clear()
        assert calls["write_fragments"] == 0
        assert ids(table) == sorted([*left, 5, 6])

    def test_two_creators_of_a_partition_end_with_one_leaf(self, table, other):
        with table.transaction() as tx:
            tx.append([row(5, "new")])
            other.append([row(6, "new")])
        found = phalanx.open(table.uri)
        assert found.partitions()["part"].to_pylist() == ["a", "b", "new"]
        assert ids(found) == [1, 2, 3, 4, 5, 6, 9]

    def test_a_leaf_that_was_removed_and_made_again(self, table, other):
        with table.transaction() as tx:
            tx.append([row(5)])
            other.delete("part = 'a'")
            other.append([row(6)])
            other.delete("part = 'a'")
            other.append([row(7)])
        assert ids(table) == [5, 7, 9]


class TestDelete:
    def test_rows_that_came_since_are_deleted_too(self, table, other, calls):
        with table.transaction() as tx:
            assert tx.delete("id IN (1, 7, 9)") == 2
            other.append([row(7), row(7, "new")])
            calls.clear()
        assert calls["delete"] == 2  # not where nothing has changed
        assert ids(table) == [2, 3, 4]

    def test_the_count_is_of_what_was_committed(self, table, other):
        other.append([row(1, n=5)])
        assert table.delete("id = 1") == 2

    def test_under_snapshot_isolation_they_stay(self, table, other, calls):
        with table.transaction(isolation="snapshot") as tx:
            tx.delete("id IN (1, 7, 9)")
            other.append([row(7), row(7, "new")])
            calls.clear()
        assert calls["delete"] == 0
        assert ids(table) == [2, 3, 4, 7, 7]

    def test_other_fragments_were_touched(self, table, other, calls):
        with table.transaction() as tx:
            tx.delete("id = 1")
            other.delete("id = 3")
            calls.clear()
        assert calls == {"commit": 2}
        assert ids(table) == [2, 4, 9]

    def test_the_same_fragment_was_touched(self, table, other, calls):
        with table.transaction() as tx:
            tx.delete("id = 1")
            other.delete("id = 2")
            calls.clear()
        assert calls["delete"] == 1
        assert ids(table) == [3, 4, 9]

    def test_the_same_rows_were_deleted(self, table, other):
        other.delete("id = 1")
        assert table.delete("id = 1") == 0
        assert ids(table) == [2, 3, 4, 9]

    def test_the_same_rows_were_updated(self, table, other):
        with table.transaction() as tx:
            tx.delete("n = 0 AND part = 'a'")
            other.update({"n": "1"}, "id IN (1, 3)")
        assert state(table) == {(1, "a"): 1, (3, "a"): 1, (9, "b"): 0}

    def test_the_leaf_was_overwritten(self, table, other, calls):
        with table.transaction() as tx:
            tx.delete("id = 1")
            other.overwrite([row(1), row(8)])
            calls.clear()
        assert calls["delete"] == 1
        assert ids(table) == [8]

    def test_the_leaf_was_removed(self, table, other):
        with table.transaction() as tx:
            tx.delete("id = 1")
            other.delete("part = 'a'")
        assert ids(table) == [9]

    def test_the_leaf_was_rolled_back(self, table, other, calls):
        table.update({"n": "5"}, "id = 1")
        with table.transaction() as tx:
            tx.delete("n = 5")
            other.rollback(3)
            calls.clear()
        assert calls["delete"] == 1
        assert state(table)[1, "a"] == 0

    def test_a_whole_partition_goes_with_what_has_come(self, table, other, calls):
        with table.transaction() as tx:
            tx.delete("part = 'a'")
            other.append([row(7)])
            calls.clear()
        assert calls == {}
        assert ids(table) == [9]

    def test_the_last_rows_of_a_leaf(self, table, other):
        """Everything else in the leaf is gone meanwhile: the leaf goes."""
        with table.transaction() as tx:
            tx.delete("id < 3")
            other.delete("id IN (3, 4)")
        found = phalanx.open(table.uri)
        assert found.partitions()["part"].to_pylist() == ["b"]
        assert ids(found) == [9]


class TestUpdate:
    @pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
    def test_the_same_row_was_updated(self, table, other, isolation):
        with table.transaction(isolation=isolation) as tx:
            tx.update({"n": "n + 1"}, "id = 1")
            other.update({"n": "n + 10"}, "id = 1")
        assert state(table)[1, "a"] == 11

    def test_other_fragments_were_touched(self, table, other, calls):
        with table.transaction() as tx:
            tx.update({"n": "n + 1"}, "id = 1")
            other.delete("id = 3")
            calls.clear()
        assert calls == {"commit": 2}
        assert state(table) == {(1, "a"): 1, (2, "a"): 0, (4, "a"): 0, (9, "b"): 0}

    @pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
    def test_every_row_of_a_leaf_and_one_was_deleted(self, table, other, isolation):
        with table.transaction(isolation=isolation) as tx:
            assert tx.update({"n": "n + 1"}, "part = 'a' AND id > 0") == 4
            other.delete("id = 1")
        assert state(table) == {(2, "a"): 1, (3, "a"): 1, (4, "a"): 1, (9, "b"): 0}

    @pytest.mark.parametrize(("isolation", "n"), [("serializable", 1), ("snapshot", 0)])
    def test_rows_came(self, table, other, isolation, n):
        with table.transaction(isolation=isolation) as tx:
            tx.update({"n": "n + 1"}, "id IN (1, 7)")
            other.append([row(7), row(7, "new")])
        assert state(table)[1, "a"] == 1
        assert (state(table)[7, "a"], state(table)[7, "new"]) == (n, n)

    @pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
    def test_every_row_of_a_leaf_and_others_came(self, table, other, isolation):
        with table.transaction(isolation=isolation) as tx:
            tx.update({"n": "n + 1"}, "id > 0")
            other.append([row(7)])
        assert sorted(state(table)) == [(1, "a"), (2, "a"), (3, "a"), (4, "a"), (7, "a"), (9, "b")]

    def test_rows_move_where_others_have_come(self, table, other):
        with table.transaction() as tx:
            tx.update({"part": "'new'", "n": "n + 1"}, "id = 1")
            other.append([row(7, "new")])
        assert state(table)[1, "new"] == 1
        assert (1, "a") not in state(table)
        assert ids(table) == [1, 2, 3, 4, 7, 9]


class TestSnapshotIsolation:
    """Rows that come are left alone. Rows that were there are found where others have put them."""

    MOVES = {  # noqa: RUF012
        "to a partition that is there": lambda other: other.update({"part": "'b'"}, "id = 1"),
        "to a new one": lambda other: other.update({"part": "'c'"}, "id = 1"),
        "with all of its partition": lambda other: other.update({"part": "'c'"}, "part = 'a'"),
        "by a merge": lambda other: other.merge([row(1, "c")], ["id"]),
        "by a rewrite": lambda other: (other.evolve_partitioning(["id"]), other.rewrite()),
    }

    @pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
    @pytest.mark.parametrize(
        ("where", "left"), [("id = 1", [2, 3, 4, 9]), ("id < 5", [9]), ("TRUE", [])]
    )
    def test_a_delete_of_rows_that_have_moved(self, table, other, move, where, left):
        with table.transaction(isolation="snapshot") as tx:
            tx.delete(where)
            move(other)
        assert ids(table) == left

    @pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
    def test_an_update_of_rows_that_have_moved(self, table, other, move):
        with table.transaction(isolation="snapshot") as tx:
            tx.update({"n": "n + 10"}, "id = 1")
            move(other)
        assert [n for (id, _), n in state(table).items() if id == 1] == [10]
        assert ids(table) == [1, 2, 3, 4, 9]

    def _rolled_back_with_a_tag(other):
        with other.transaction() as tx:
            tx.rollback(3)
            tx.tag("back", 3)

    ROLLBACKS = {  # noqa: RUF012
        "alone": lambda other: other.rollback(3),
        "beside another change": _rolled_back_with_a_tag,
    }
    #: Where rows were before the rollback. In the last case no leaf has fewer rows after it.
    PLACES = {  # noqa: RUF012
        "to a leaf that was seen": lambda table: table.update({"part": "'b'"}, "id = 1"),
        "to new leaves": lambda table: table.update({"part": "'c'"}, "TRUE"),
        "for others": lambda table: table.overwrite([row(1, "b")]),
    }

    @pytest.mark.parametrize("rollback", ROLLBACKS.values(), ids=ROLLBACKS)
    @pytest.mark.parametrize("move", PLACES.values(), ids=PLACES)
    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            (lambda tx: tx.delete("id = 1"), []),
            (lambda tx: tx.update({"n": "n + 10"}, "id = 1"), [10]),
        ],
        ids=["delete", "update"],
    )
    def test_rows_that_a_rollback_moves_back(self, table, move, rollback, change, expected):
        move(table)
        other = phalanx.open(table.uri)
        with table.transaction(isolation="snapshot") as tx:
            change(tx)
            rollback(other)
        assert [n for (id, _), n in state(table).items() if id == 1] == expected
        assert ids(table) == [1] * len(expected) + [2, 3, 4, 9]

    def test_two_updates_of_a_row_that_both_move_it(self, root):
        """After the spec was changed every update does: its rows go to leaves of the new one."""
        table = phalanx.create(root, SCHEMA).append([row(1), row(2)])
        table.evolve_partitioning(["bucket(2, id)"])
        other = phalanx.open(root)
        with table.transaction(isolation="snapshot") as tx:
            tx.update({"n": "n + 100"}, "id = 1")
            assert other.update({"n": "n + 7"}, "id = 1", isolation="snapshot") == 1
        assert state(table) == {(1, "a"): 107, (2, "a"): 0}

    def test_rows_that_move_elsewhere_are_no_reason_to_look_at_new_ones(self, table, other):
        with table.transaction(isolation="snapshot") as tx:
            tx.delete("id IN (1, 7)")
            other.append([row(7), row(7, "new")])
            other.update({"part": "'d'"}, "id = 9")
        assert ids(table) == [2, 3, 4, 7, 7, 9]


class TestMerge:
    def test_a_key_came(self, table, other):
        with table.transaction() as tx:
            tx.merge([row(7, n=1), row(1, n=1)], ["id"])
            other.append([row(7, n=5)])
        assert state(table)[7, "a"] == 1
        assert state(table)[1, "a"] == 1
        assert ids(table) == [1, 2, 3, 4, 7, 9]

    def test_a_key_came_in_another_partition(self, table, other):
        with table.transaction() as tx:
            tx.merge([row(7, n=1)], ["id"])
            other.append([row(7, "new", n=5)])
        assert ids(table) == [1, 2, 3, 4, 7, 9]
        assert state(table)[7, "a"] == 1

    def test_a_key_is_gone(self, table, other):
        with table.transaction() as tx:
            tx.merge([row(1, n=1)], ["id"], when_not_matched="ignore")
            other.delete("id = 1")
        assert ids(table) == [2, 3, 4, 9]

    def test_every_row_of_a_leaf_and_one_was_deleted(self, table, other):
        source = [row(id, n=1) for id in (1, 2, 3, 4)]
        with table.transaction() as tx:
            tx.merge(source, ["id"])
            other.delete("id = 1")
        assert state(table) == {(id, "a"): 1 for id in (1, 2, 3, 4)} | {(9, "b"): 0}

    def test_deleting_every_row_of_a_leaf_and_one_came(self, table, other):
        with table.transaction() as tx:
            tx.merge([row(id) for id in (1, 2, 3, 4)], ["id"], when_matched="delete")
            other.append([row(7)])
        assert ids(table) == [7, 9]

    def test_a_row_that_was_found_and_left_alone_is_gone(self, table, other):
        with table.transaction() as tx:
            tx.merge([row(1, n=1)], ["id"], when_matched="ignore")
            other.delete("id = 1")
        assert state(table)[1, "a"] == 1

    def test_rows_came_that_it_does_not_match(self, table, other, calls):
        with table.transaction() as tx:
            tx.merge([row(1, n=1)], ["id"])
            other.append([row(7, n=5), row(8, "b")])
            calls.clear()
        assert calls["write_fragments"] == 0
        assert state(table)[1, "a"] == 1
        assert ids(table) == [1, 2, 3, 4, 7, 8, 9]

    def test_the_counts_are_of_what_was_committed(self, table, other):
        other.append([row(7)])
        counts = table.merge([row(7, n=1), row(8)], ["id"])
        assert (counts.inserted, counts.updated) == (1, 1)


class TestOverwrite:
    def test_it_replaces_what_has_come(self, table, other):
        with table.transaction() as tx:
            tx.overwrite([row(5)])
            other.append([row(7), row(8, "new")])
        assert ids(table) == [5]

    def test_of_partitions(self, table, other):
        with table.transaction() as tx:
            tx.overwrite([row(5)], "partitions")
            other.append([row(7), row(8, "new")])
        assert ids(table) == [5, 8, 9]

    def test_of_matching_rows(self, table, other):
        with table.transaction() as tx:
            tx.overwrite([row(1, n=5)], where="id IN (1, 7)")
            other.append([row(7), row(8)])
        assert ids(table) == [1, 2, 3, 4, 8, 9]
        assert state(table)[1, "a"] == 5


class TestRollback:
    def test_it_takes_back_what_has_come(self, table, other):
        with table.transaction() as tx:
            tx.rollback(2)
            other.append([row(7), row(8, "new")])
        assert ids(table) == [1, 2]
        assert sorted(phalanx.open(table.uri, version=4).scan().to_arrow()["id"].to_pylist()) == [
            1, 2, 3, 4, 7, 8, 9,
        ]  # fmt: skip


class TestReads:
    """Two accounts in two partitions, which together must never go below zero."""

    @pytest.fixture
    def table(self, root):
        table = phalanx.create(root, SCHEMA, ["part"])
        table.append([row(1, "a", 60), row(2, "b", 60)])
        return table

    def withdraw(self, tx, id, amount):
        total = sum(tx.scan(["n"]).to_arrow()["n"].to_pylist())
        if total >= amount:
            tx.update({"n": f"n - {amount}"}, f"id = {id}")

    def test_write_skew_is_caught(self, table, other):
        with pytest.raises(ConflictError) as caught, table.transaction() as tx:  # noqa: PT012
            self.withdraw(tx, 1, 100)
            with other.transaction(transaction_id="the other") as first:
                self.withdraw(first, 2, 100)
        assert "changed by version 3 (update, id 'the other')" in str(caught.value)
        assert table.uri in str(caught.value)
        assert state(table) == {(1, "a"): 60, (2, "b"): -40}

    def test_those_that_came_first_are_told_by_their_versions(self, table, other):
        with pytest.raises(ConflictError) as caught, table.transaction() as tx:  # noqa: PT012
            self.withdraw(tx, 1, 100)
            self.withdraw(other, 2, 10)
            other.delete("id = 2")
        assert "changed by version 3 (update) and version 4 (delete): nothing" in str(caught.value)

    def test_of_many_that_came_first_some_are_told(self, table, other):
        with pytest.raises(ConflictError) as caught, table.transaction() as tx:  # noqa: PT012
            self.withdraw(tx, 1, 100)
            for _ in range(6):
                self.withdraw(other, 2, 1)
        told = "version 3 (update), version 4 (update), version 5 (update) and 3 more: nothing"
        assert told in str(caught.value)

    def test_snapshot_isolation_allows_write_skew(self, table, other):
        with table.transaction(isolation="snapshot") as tx:
            self.withdraw(tx, 1, 100)
            with other.transaction(isolation="snapshot") as first:
                self.withdraw(first, 2, 100)
        assert state(table) == {(1, "a"): -40, (2, "b"): -40}

    def test_a_lost_update_is_caught(self, table, other):
        with pytest.raises(ConflictError), table.transaction() as tx:  # noqa: PT012
            (had,) = tx.scan(["n"], "id = 1").to_arrow()["n"].to_pylist()
            other.update({"n": "n + 5"}, "id = 1")
            tx.update({"n": str(had + 1)}, "id = 1")
        assert state(table)[1, "a"] == 65

    def test_reads_of_other_partitions_are_no_conflict(self, table, other):
        with table.transaction() as tx:
            assert tx.count("part = 'a'") == 1
            other.update({"n": "0"}, "part = 'b'")
            tx.update({"n": "5"}, "part = 'a'")
        assert state(table) == {(1, "a"): 5, (2, "b"): 0}

    def test_a_partition_that_came_is_a_conflict_for_who_has_looked_for_it(self, table, other):
        with pytest.raises(ConflictError), table.transaction() as tx:  # noqa: PT012
            if tx.count("part = 'c'") == 0:
                tx.append([row(3, "c")])
            other.append([row(3, "c")])
        assert ids(table) == [1, 2, 3]

    def test_a_count_that_was_acted_on_is_a_read(self, table, other):
        """Update, or insert where there was nothing to update: two at once make one row."""
        with pytest.raises(ConflictError, match="counts"), table.transaction() as tx:  # noqa: PT012
            updated = tx.update({"n": "n + 1"}, "id = 3")
            other.append([row(3, "c", 10)])
            if not updated:
                tx.append([row(3, "c", 1)])
        assert state(table)[3, "c"] == 10

    def test_a_transfer_to_an_account_that_is_gone(self, table, other):
        with pytest.raises(ConflictError, match="counts"), table.transaction() as tx:  # noqa: PT012
            assert tx.update({"n": "n - 10"}, "id = 1") == 1
            assert tx.update({"n": "n + 10"}, "id = 2") == 1
            other.delete("id = 2")
        assert state(table) == {(1, "a"): 60}

    def test_nothing_of_the_transaction_is_left(self, table, other):
        with pytest.raises(ConflictError), table.transaction() as tx:  # noqa: PT012
            tx.append([row(5, "new")])
            tx.count()
            other.append([row(6)])
        assert ids(table) == [1, 2, 6]
        assert table.version == 3  # for another try
        table.append([row(7)])
        assert ids(table) == [1, 2, 6, 7]


class TestEnds:
    def test_a_writer_who_never_wins_gives_up(self, table, monkeypatch):
        def lose(*_):
            raise SwapLost("Too many concurrent writers")

        monkeypatch.setattr(ManifestVersion, "swap", lose)
        monkeypatch.setattr("phalanx.transaction.swap.PATIENCE_SECONDS", 0.05)
        with pytest.raises(ConflictError, match="lost to others") as caught:
            table.append([row(5)])
        assert table.uri in str(caught.value)

    def test_files_that_are_gone_are_not_taken_for_others(self):
        """Python may put a new object where an old one was."""

        class CountingLeaf:
            uri, schema, stored, rewrote_rows = "leaf", None, None, False
            made = 0

            def commit(self, *_):
                self.made += 1
                return self.made

        commits, leaf = Commits(), CountingLeaf()
        versions = [
            commits.commit(leaf, None, LeafDelta(added=(Written(()),)))[0] for _ in range(100)
        ]
        assert versions == list(range(1, 101))

    def test_an_unknown_isolation(self, table):
        with pytest.raises(phalanx.InvalidInput, match="'serializable' or 'snapshot'"):
            table.delete("id = 1", isolation="read committed")
