"""Weak tables, and how they become strong."""

import json
import shutil

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError, InvalidInput
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.manifest_update import ManifestUpdate
from phalanx.storage.records import TagRecord
from tests.table.rows import ROWS, SCHEMA, ids, row, rows


class TestWeak:
    def test_rows_are_on_main(self, weak):
        found = sorted(
            id
            for uri in weak.partitions()["uri"].to_pylist()
            for id in lance.dataset(uri).to_table(columns=["id"])["id"].to_pylist()
        )
        assert found == [1, 2, 3, 4]

    def test_the_newest_rows_are_read_by_any_handle(self, weak):
        stale = phalanx.open(weak.uri)
        weak.append([row(5)])
        assert stale.count() == 5
        (uri,) = (u for u in weak.partitions()["uri"].to_pylist() if _ids_of(u) == [3])
        lance.write_dataset(pa.Table.from_pylist([row(6, "b")], schema=SCHEMA), uri, mode="append")
        assert stale.count() == 6
        assert stale.count("part = 'b'") == 2
        assert sum(stale.partitions()["rows"].to_pylist()) == 6

    def test_a_change_that_came_first_is_a_conflict(self, weak):
        with pytest.raises(ConflictError, match="by another writer"), weak.transaction() as tx:  # noqa: PT012
            tx.update({"n": "1"}, "id = 1")
            phalanx.open(weak.uri).update({"n": "2"}, "id = 1")
        assert [found["n"] for found in rows(weak) if found["id"] == 1] == [2]

    @pytest.mark.parametrize(
        "use",
        [
            lambda table: phalanx.open(table.uri, version=1),
            lambda table: table.rollback(1),
            lambda table: table.tag("x"),
        ],
    )
    def test_there_is_no_way_back(self, weak, use):
        with pytest.raises(InvalidInput, match="is weak and cannot be"):
            use(weak)

    def test_snapshots_are_the_history_all_the_same(self, weak):
        weak.delete("id = 1")
        found = weak.snapshots().to_pylist()
        assert [f["operation"] for f in found] == ["create", "append", "delete"]
        assert [f["rows_removed"] for f in found] == [0, 0, 1]

    def test_an_unknown_mode(self, root):
        with pytest.raises(InvalidInput, match="transactions are 'strong' or 'weak'"):
            phalanx.create(root, SCHEMA, transactions="medium")


def _ids_of(uri):
    return lance.dataset(uri).to_table(columns=["id"])["id"].to_pylist()


class TestMakeStrong:
    def test_the_rows_stay_and_time_begins(self, weak):
        weak.make_strong()
        assert rows(weak) == ROWS
        weak.delete("id = 1")
        assert ids(weak) == [2, 3, 4]
        assert weak.rollback(3).count() == 4
        assert weak.make_strong().version == 5

    def test_a_writer_who_still_takes_it_for_weak(self, weak):
        stale = phalanx.open(weak.uri)
        weak.make_strong()
        stale.append([row(5), row(6, "new")])
        stale.delete("id = 1")
        assert ids(stale) == [2, 3, 4, 5, 6]
        assert ids(weak.refresh()) == [2, 3, 4, 5, 6]

    def test_rows_that_were_on_main_already_are_not_added_again(self, weak):
        with weak.transaction() as tx:
            tx.append([row(5), row(6, "new")])
            assert tx.count() == 6  # they are on main now
            strong = phalanx.open(weak.uri).make_strong()
            strong.append([row(7)])
            tx.append([row(8)])
        assert ids(weak) == [1, 2, 3, 4, 5, 6, 7, 8]

    def test_a_change_that_cannot_be_told_apart_is_a_conflict(self, weak):
        with pytest.raises(ConflictError, match="became strong"), weak.transaction() as tx:  # noqa: PT012
            tx.delete("id = 1")
            tx.count()
            phalanx.open(weak.uri).make_strong()

    def test_a_change_that_has_done_nothing_yet_is_done_strongly(self, weak):
        with weak.transaction(transaction_id="id") as tx:
            tx.delete("id = 1")
            phalanx.open(weak.uri).make_strong()
        assert ids(weak) == [2, 3, 4]
        assert json.loads(_head(weak))["transactions"] == "strong"

    def test_what_it_was_before_is_not_known(self, weak):
        """A weak snapshot names leaves and no versions of them: it would show the rows of now."""
        last = weak.version
        weak.make_strong()
        weak.append([row(5)])
        when = weak.snapshots()["committed_at"].to_pylist()[last - 1]
        # As somebody may have tagged it who did not know better.
        base = ManifestVersion(Location(weak.uri))
        tagged = ManifestUpdate(base.head().specs)
        tagged.put_tag(TagRecord("t", last, base.version - 2))
        base.swap(tagged)
        weak.refresh()
        for version in (last, when, "t"):
            uses = (lambda v: phalanx.open(weak.uri, version=v), weak.rollback)
            for use in (*uses, lambda v: weak.tag("u", v)):
                with pytest.raises(InvalidInput, match=f"version {last} .* from when it was weak"):
                    use(version)
        assert phalanx.open(weak.uri, version=last + 1).count() == 4
        assert ids(weak) == [1, 2, 3, 4, 5]


def _head(table):
    found = ManifestVersion(Location(table.uri))._read(["metadata"], "object_id = '__head'")
    return found["metadata"].to_pylist()[0]


def test_a_leaf_whose_rows_have_stable_ids(root):
    """Another client may have made it: a row that moves keeps its id."""
    table = phalanx.create(root, SCHEMA, ["part"], transactions="weak").append(ROWS)
    (folder,) = {row["uri"] for row in table.partitions().to_pylist() if row["part"] == "a"}
    shutil.rmtree(folder)
    for numbers in ((1, 2), (5, 6, 7)):
        part = pa.Table.from_pylist([row(number) for number in numbers], schema=SCHEMA)
        leaf = lance.write_dataset(part, folder, mode="append", enable_stable_row_ids=True)
    leaf.delete("id = 2")
    leaf.optimize.compact_files(materialize_deletions_threshold=0)
    counts = table.merge([row(5, n=50), {"id": 6, "n": 60}, row(8)], on=["id"])
    assert (counts.inserted, counts.updated) == (1, 2)
    assert table.delete("id = 7") == 1
    report = table.optimize()
    assert "files of 1 leaf stay as they are, because another client has given" in str(report)
    found = {found["id"]: found["n"] for found in rows(table)}
    assert found == {1: 0, 3: 0, 4: 0, 5: 50, 6: 60, 8: 0}
    table.make_strong().merge([row(1, n=10)], on=["id"])
    table.update({"n": "n + 1"}, "id = 5")
    table.optimize()
    found = {found["id"]: found["n"] for found in rows(table)}
    assert found == {1: 10, 3: 0, 4: 0, 5: 51, 6: 60, 8: 0}
    assert table.check().ok
