"""Commits of plain Lance clients on the main branches of a strong table's leaves."""

import datetime as dt
import logging

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput
from phalanx.storage.location import Location
from phalanx.storage.main_branch import MainBranch
from tests.table.aging import age
from tests.table.damage import SCHEMA, check, copy_of, id_of, kinds, leaf_of, repair, row, rows
from tests.transaction import sabotage


@pytest.fixture(params=["published", "never published"])
def table(request, tables_to_damage, root):
    """Four leaves with the ids 1 to 4, 6 and 7."""
    table = copy_of(tables_to_damage, "plain", root)
    if request.param == "published":
        table.set_properties({"anchor": "commit"})
        table.set_properties({"anchor": "maintenance"})
    return table


def ids(table):
    return [line["id"] for line in rows(table)]


def on_main(table, part="a"):
    return sorted(lance.dataset(leaf_of(table, part)["uri"]).to_table()["id"].to_pylist())


def write(table, *lines, part="a"):
    """Append rows to a leaf as a plain Lance client does."""
    uri = leaf_of(table, part)["uri"]
    lance.write_dataset(pa.Table.from_pylist(list(lines), SCHEMA), uri, mode="append")


def foreign(report):
    return [problem for problem in report.damage if problem.kind == "foreign-commits"]


def test_they_are_found_and_left_alone(table):
    before = ids(table)
    write(table, row(20), row(21))
    write(table, row(22))
    (problem,) = foreign(check(table))
    assert problem.where.endswith(id_of(leaf_of(table)))
    assert problem.what.startswith("2 commits of another client on main, 3 rows added")
    report = repair(table)
    assert [(p.kind, p.where) for p in report.unmended] == [(problem.kind, problem.where)]
    assert ids(table) == before
    assert {20, 21, 22} <= set(on_main(table))


class TestTake:
    def test_rows_become_part_of_the_table(self, table):
        write(table, row(20), row(21))
        write(table, row(22, "b"), part="b")
        version = table.refresh().version
        report = repair(table, stray="take")
        assert report.ok
        assert [problem.kind for problem in report.mended] == ["foreign-commits"] * 2
        assert "does not have: its rows were added to the table" in str(report)
        assert "stray=" not in str(report)
        assert ids(table) == [1, 2, 3, 4, 6, 7, 20, 21, 22]
        assert phalanx.open(table.uri).version == version + 1
        assert check(table).ok
        assert on_main(table) == [1, 7, 20, 21]
        assert on_main(table, "b") == [2, 6, 22]

    def test_rows_go_where_they_belong(self, table):
        write(table, row(20), row(21, "b"), row(22, "new"), row(23, None))
        repair(table, stray="take")
        table.refresh()
        assert table.count("part = 'b'") == 3
        assert table.count("part = 'new'") == 1
        assert table.count("part IS NULL") == 2
        assert on_main(table) == [1, 7, 20]

    def test_a_dry_run(self, table):
        write(table, row(20))
        report = repair(table, dry_run=True, stray="take")
        assert [problem.kind for problem in report.mended] == ["foreign-commits"]
        assert 20 not in ids(table)

    def test_after_a_crash_nothing_is_taken_twice(self, table):
        write(table, row(20))
        step = "repair.strays-settled"
        with sabotage.failing(step, "raise"), pytest.raises(OSError, match=step):
            repair(table, stray="take")
        assert ids(table).count(20) == 1
        assert check(table).ok
        write(table, row(21))
        assert repair(table, stray="take").ok
        assert ids(table) == [1, 2, 3, 4, 6, 7, 20, 21]
        assert on_main(table) == [1, 7, 20, 21]
        assert check(table).ok

    def test_rows_of_an_insert_by_merge(self, table):
        new = pa.Table.from_pylist([row(20)], SCHEMA)
        dataset = lance.dataset(leaf_of(table)["uri"])
        dataset.merge_insert("id").when_not_matched_insert_all().execute(new)
        assert repair(table, stray="take").ok
        assert 20 in ids(table)

    def test_rows_that_were_compacted_since(self, table):
        write(table, row(20))
        write(table, row(21))
        lance.dataset(leaf_of(table)["uri"]).optimize.compact_files()
        assert repair(table, stray="take").ok
        assert ids(table) == [1, 2, 3, 4, 6, 7, 20, 21]
        assert check(table).ok

    def test_not_what_deletes(self, table):
        write(table, row(20), row(21))
        lance.dataset(leaf_of(table)["uri"]).delete("id = 20")
        report = repair(table, stray="take")
        (problem,) = report.unmended
        assert "2 rows added and 1 row removed" in problem.what
        assert "make these changes through the table" in problem.what
        assert 21 not in ids(table)

    def test_not_what_does_not_fit(self, root):
        """A row whose partition nobody can work out."""
        field = phalanx.expr("100 / col0", ["id"], name="part")
        table = phalanx.create(root, pa.schema([("id", pa.int64())]), [field]).append([{"id": 1}])
        uri = table.partitions()["uri"][0].as_py()
        lance.write_dataset(pa.table({"id": [0]}), uri, mode="append")
        report = repair(table, stray="take")
        assert not report.mended
        assert "ivide by zero" in report.unmended[0].what
        assert phalanx.open(root).count() == 1


class TestDrop:
    def test_main_shows_the_table_again(self, table):
        before = ids(table)
        write(table, row(20), row(21))
        assert repair(table, stray="drop").ok
        assert ids(table) == before
        assert on_main(table) == [1, 7]
        assert check(table).ok

    def test_also_what_deletes_or_changes_columns(self, table):
        dataset = lance.dataset(leaf_of(table)["uri"])
        dataset.add_columns({"more": "id + 1"})
        dataset.delete("TRUE")
        assert len(foreign(check(table))) == 1
        assert repair(table, stray="drop").ok
        assert on_main(table) == [1, 7]
        assert check(table).ok


def test_another_choice_is_refused(table):
    with pytest.raises(InvalidInput, match="'keep', 'take' or 'drop', not 'all'"):
        repair(table, stray="all")


class TestNothingIsPublishedOverThem:
    def test_by_commits(self, table, caplog):
        table.set_properties({"anchor": "commit"})
        write(table, row(20))
        with caplog.at_level(logging.WARNING, "phalanx"):
            table.append([row(30), row(31, "b")])
        assert "another client has written to its main branch" in caplog.text
        assert 20 in on_main(table)
        assert 30 not in on_main(table)
        assert 31 in on_main(table, "b")
        assert repair(table, stray="take").ok
        assert on_main(table) == [1, 7, 20, 30]
        table.append([row(40)])
        assert 40 in on_main(table)

    def test_by_upkeep(self, table):
        write(table, row(20))
        for report in (table.optimize(), table.vacuum()):
            assert any("another client has written" in note for note in report.notes)
        assert 20 in on_main(table)
        assert on_main(table, "b") == [2, 6]

    def test_their_files_are_kept(self, table, root):
        write(table, row(20))
        age(root, 30)
        table.vacuum(dt.timedelta(days=1))
        age(root, 30)
        table.vacuum(dt.timedelta(days=1))
        assert len(foreign(check(table))) == 1
        assert repair(table, stray="take").ok
        assert 20 in ids(table)

    def test_that_come_at_the_same_moment(self, table, monkeypatch):
        """Lance publishes over a commit that nobody has seen yet: it is brought back."""
        table.append([row(8)])
        leaf = leaf_of(table)
        folder = leaf["uri"].rsplit("/", 1)[1]
        main = MainBranch(Location(table.uri), folder)
        look = main._unsettled

        def look_then_write(handle, settled):
            monkeypatch.setattr(main, "_unsettled", look)
            found = look(handle, settled)
            write(table, row(20))
            return found

        monkeypatch.setattr(main, "_unsettled", look_then_write)
        assert [commit.rows_added for commit in main.publish(leaf["version"])] == [1]
        assert 20 in on_main(table)
        assert repair(table, stray="take").ok
        assert ids(table) == [1, 2, 3, 4, 6, 7, 8, 20]
        assert on_main(table) == [1, 7, 8, 20]


class TestWhatIsNoDamage:
    def test_an_index_or_a_compaction(self, table):
        dataset = lance.dataset(leaf_of(table)["uri"])
        dataset.create_scalar_index("id", "BTREE") if dataset.count_rows() else None
        dataset.optimize.compact_files()
        assert not foreign(check(table))

    def test_a_restore_to_what_was_published(self, table):
        published = lance.dataset(leaf_of(table)["uri"]).version
        write(table, row(20))
        lance.dataset(leaf_of(table)["uri"], version=published).restore()
        assert check(table).ok

    def test_rows_of_a_table_that_was_weak(self, tables_to_damage, root):
        """Other clients may write to a weak table, and what they wrote stays in it."""
        table = copy_of(tables_to_damage, "weak", root)
        write(table, row(20))
        assert check(table).ok
        table.make_strong()
        assert check(table).ok
        assert 20 in ids(table)
        table.append([row(21)])
        assert check(table).ok
        table.set_properties({"anchor": "commit"})
        assert on_main(table) == [1, 7, 20, 21]
        write(table, row(22))
        assert kinds(check(table)) == {"foreign-commits"}
