"""Optimize beside other writers."""

import threading

import pytest

import phalanx
from phalanx import ConflictError
from tests.table.optimize.files import (
    SCHEMA,
    deleted_in_files,
    fragments,
    last_operation,
    row,
    rows_of,
    statistics_of,
)


class TestBesideOthers:
    def test_an_append_lands_beside_it(self, table, meanwhile):
        before = rows_of(table, "part = 'a'")
        meanwhile(lambda: phalanx.open(table.uri).append([row(500), row(501, "new")]))
        report = table.optimize()
        assert rows_of(table, "part = 'a'") == [row(500), *before]
        assert fragments(table) == {"a": 2, "b": 1, "new": 1, None: 1}
        assert (report.rewritten, report.versions) == (2, (table.version,))
        assert statistics_of(table, "a")[0].high >= 500
        assert table.check().ok

    def test_a_delete_in_the_same_files_has_the_leaf_done_again(self, table, meanwhile):
        meanwhile(lambda: phalanx.open(table.uri).delete("id = 10"))
        before = [r for r in rows_of(table) if r["id"] != 10]
        report = table.optimize()
        assert rows_of(table) == before
        assert fragments(table) == {"a": 1, "b": 1, None: 1}
        assert deleted_in_files(table) == 0
        # The other leaf was not in the way: two transactions.
        assert len(report.versions) == 2
        assert (report.rewritten, report.files_after) == (2, 3)
        assert report.deleted_rows == 4

    def test_a_leaf_that_goes_stays_gone(self, table, meanwhile):
        meanwhile(lambda: phalanx.open(table.uri).delete("part = 'a'"))
        report = table.optimize()
        assert set(fragments(table)) == {"b", None}
        assert "1 leaf left the table meanwhile" in report.notes

    def test_a_leaf_that_is_overwritten_is_looked_at_again(self, table, meanwhile):
        meanwhile(lambda: phalanx.open(table.uri).overwrite([row(7)], "partitions"))
        table.optimize()
        assert rows_of(table, "part = 'a'") == [row(7)]

    def test_nothing_is_committed_where_nothing_is_left(self, table, meanwhile):
        meanwhile(lambda: phalanx.open(table.uri).overwrite([row(1)]))
        table.optimize()
        assert last_operation(table)[0] == "overwrite"
        assert rows_of(table) == [row(1)]

    def test_what_never_comes_to_rest_is_left_alone_and_told(self, table, meanwhile):
        def disturb(number):
            def change():
                other = phalanx.open(table.uri)
                other.append([row(1000 + number)])
                other.delete(f"id = {(2, 10, 12, 14, 20, 22)[number]}")

            return change

        meanwhile(*(disturb(number) for number in range(6)))
        report = table.optimize("part = 'a'")
        assert report.rewritten == 0
        assert "1 leaf stayed as before" in str(report)
        assert table.check().ok

    def test_a_rollback_in_between(self, table, meanwhile):
        early = rows_of(phalanx.open(table.uri, version=3))
        meanwhile(lambda: phalanx.open(table.uri).rollback(3))
        table.optimize()
        assert rows_of(table) == early
        assert fragments(table) == {"a": 1, "b": 1}

    def test_a_change_that_runs_beside_it_is_redone_where_files_went(self, table):
        """A delete that was worked out before still deletes what it should, once."""
        other = phalanx.open(table.uri)
        with other.transaction() as tx:
            assert tx.delete("id = 11") == 1
            table.optimize()
        assert rows_of(other.refresh(), "id = 11") == []
        assert other.count() == 27
        assert other.check().ok

    def test_what_a_transaction_has_read_is_not_changed_by_it(self, table):
        other = phalanx.open(table.uri)
        with other.transaction() as tx:
            count = tx.count("part = 'a'")
            table.optimize()
            tx.append([row(count, "count")])
        assert rows_of(other, "part = 'count'") == [row(14, "count")]

    def test_but_by_a_delete_that_came_with_it(self, table):
        other = phalanx.open(table.uri)
        with pytest.raises(ConflictError), other.transaction() as tx:  # noqa: PT012
            tx.count("part = 'a'")
            table.optimize()
            phalanx.open(table.uri).delete("id = 10")
            tx.append([row(1, "count")])

    def test_a_whole_leaf_is_deleted_under_snapshot_isolation(self, table):
        other = phalanx.open(table.uri)
        with other.transaction(isolation="snapshot") as tx:
            assert tx.delete("part = 'a'") == 14
            table.optimize()
        assert set(fragments(other)) == {"b", None}

    def test_rows_added_and_deleted_all_the_while(self, root):
        table = phalanx.create(root, SCHEMA, ["part"])
        for k in range(6):
            table.append([row(10 * k + i, "ab"[i % 2]) for i in range(4)])
        errors, stop = [], threading.Event()

        def write(number):
            mine = phalanx.open(root)
            try:
                for k in range(8):
                    mine.append([row(1000 * number + k, "ab"[k % 2])])
                    if k % 2:
                        mine.delete(f"id = {1000 * number + k}")
            except Exception as error:
                errors.append(error)

        def tidy():
            mine = phalanx.open(root)
            try:
                while not stop.is_set():
                    mine.optimize()
            except Exception as error:
                errors.append(error)

        writers = [threading.Thread(target=write, args=(n,)) for n in (1, 2)]
        keeper = threading.Thread(target=tidy)
        for thread in (*writers, keeper):
            thread.start()
        for thread in writers:
            thread.join()
        stop.set()
        keeper.join()
        assert errors == []
        expected = [10 * k + i for k in range(6) for i in range(4)]
        expected += [1000 * n + k for n in (1, 2) for k in (0, 2, 4, 6)]
        assert sorted(r["id"] for r in rows_of(table.refresh())) == sorted(expected)
        assert table.check().ok
