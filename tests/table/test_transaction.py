"""Several changes at once, changes that are repeated, and the swap that commits them."""

import datetime as dt
import os
from concurrent.futures import ThreadPoolExecutor

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError, InvalidInput, PhalanxError, TableNotFound
from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from tests.table.rows import ROWS, SCHEMA, ids, last, row, rows


class TestTransaction:
    def test_several_changes_are_one_version(self, strong):
        with strong.transaction() as tx:
            tx.append([row(5)])
            tx.delete("id = 1")
            tx.update({"n": "n + 1"}, "part = 'a'")
            tx.merge([row(3, "b", 7), row(6, "c")], ["id"])
            assert strong.count() == 4  # nobody sees it yet
        assert strong.version == 3
        assert rows(strong) == [
            row(2, n=1), row(3, "b", 7), row(4, None), row(5, n=1), row(6, "c"),
        ]  # fmt: skip
        assert last(strong)["operation"] == "transaction"

    def test_it_reads_its_own_changes(self, table):
        with table.transaction() as tx:
            tx.append([row(5), row(6, "new")])
            assert tx.count() == 6
            assert tx.delete("id IN (5, 6)") == 2
            assert tx.count("part = 'new'") == 0
            tx.append([row(7, "new")])
            assert sorted(tx.scan(["id"]).to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 7]
        assert ids(table) == [1, 2, 3, 4, 7]

    def test_a_partition_that_comes_and_goes(self, strong):
        with strong.transaction() as tx:
            tx.append([row(5, "new")])
            tx.delete("part = 'new'")
        assert strong.partitions()["part"].to_pylist() == [None, "a", "b"]
        with strong.transaction() as tx:
            tx.delete("part = 'a'")
            tx.append([row(5, "a")])
            tx.delete("part = 'a'")
            tx.append([row(6, "a")])
        assert ids(strong) == [3, 4, 6]

    @pytest.mark.parametrize("fields", [["part"], ["part", "truncate(3, id)"]], ids=str)
    def test_a_merge_after_a_partition_was_removed(self, tmp_path, fields):
        """The leaves that are left have other places than before the removal."""
        table = phalanx.create(tmp_path / "t", SCHEMA, fields)
        table.append([row(6, None), row(6, "b"), row(0, "c"), row(1, None), row(3, "a")])
        with table.transaction() as tx:
            tx.delete("part = 'a'")
            tx.merge([row(1, "b", 5), row(6, "a", 5)], ["id"])
            expected = [row(0, "c"), row(1, "b", 5), row(6, "a", 5)]
            assert tx.scan().to_arrow().sort_by("id").to_pylist() == expected
            tx.update({"n": "9"}, "part = 'b'")
        assert rows(table) == [row(0, "c"), row(1, "b", 9), row(6, "a", 5)]
        assert table.check().ok

    @pytest.mark.parametrize("mode", ["table", "partitions"])
    def test_overwriting_what_it_has_just_written(self, table, mode):
        with table.transaction() as tx:
            tx.append([row(5, "new"), row(6, "a")])
            tx.overwrite([row(7, "new"), row(8, "a")], mode)
        assert ids(table) == ([7, 8] if mode == "table" else [3, 4, 7, 8])

    def test_a_leaf_is_emptied_twice(self, table):
        """The two changes look the same and are not: rows came in between."""
        with table.transaction() as tx:
            tx.overwrite([row(5, "c")])
            tx.overwrite([row(6, "a"), row(7, "a")])
            assert tx.delete("part = 'a'") == 2
            assert tx.count() == 0
        assert rows(table) == []

    def test_an_update_over_rows_it_has_just_written(self, strong):
        with strong.transaction() as tx:
            tx.append([row(5)])
            assert tx.update({"n": "n + 1"}, "part = 'a'") == 3
            assert tx.update({"part": "'b'"}, "part = 'a' AND n = 1") == 3
            assert tx.update({"n": "n + 1"}, "part = 'b'") == 4
        assert rows(strong) == [
            row(1, "b", 2), row(2, "b", 2), row(3, "b", 1), row(4, None), row(5, "b", 2),
        ]  # fmt: skip

    def test_an_exception_leaves_the_table_as_it_was(self, strong):
        with pytest.raises(ZeroDivisionError), strong.transaction() as tx:  # noqa: PT012
            tx.append([row(5)])
            tx.delete("id = 1")
            1 / 0  # noqa: B018
        assert (strong.version, rows(strong)) == (2, ROWS)

    def test_it_can_be_committed_before_its_end(self, strong):
        with strong.transaction() as tx:
            tx.append([row(5)])
            tx.commit()
            assert strong.count() == 5
            with pytest.raises(PhalanxError, match="this transaction is over"):
                tx.append([row(6)])
        assert (strong.version, strong.count()) == (3, 5)

    def test_when_it_is_over_it_is_over(self, strong):
        with strong.transaction() as tx:
            pass
        for use in (tx.count, tx.commit, lambda: tx.delete("TRUE")):
            with pytest.raises(PhalanxError, match="this transaction is over: start another one"):
                use()

    def test_a_refusal_that_was_caught_changes_nothing(self, strong):
        with strong.transaction() as tx:
            tx.append([row(5)])
            with pytest.raises(TableNotFound):
                tx.drop_tag("nope")
            with pytest.raises(InvalidInput):
                tx.delete("nope = 1")
        assert ids(strong) == [1, 2, 3, 4, 5]

    def test_a_failure_that_was_caught_loses_nothing(self, strong, monkeypatch):
        """The leaf could not be committed when it was to be read, but could in the end."""
        with strong.transaction() as tx:
            tx.append([row(5), row(6, "b")])
            with monkeypatch.context() as patch:
                patch.setattr(Leaf, "commit", _broken)
                with pytest.raises(OSError, match="it broke"):
                    tx.count()
        assert ids(strong) == [1, 2, 3, 4, 5, 6]

    def test_half_a_change_cannot_be_committed(self, strong, monkeypatch):
        with pytest.raises(PhalanxError, match="a change in this transaction"):  # noqa: PT012, SIM117
            with strong.transaction() as tx:
                tx.append([row(5)])
                with monkeypatch.context() as patch:
                    patch.setattr(Leaf, "delete", _broken)
                    with pytest.raises(OSError, match="it broke"):
                        tx.delete("id = 1")
                with pytest.raises(TableNotFound):  # which does not make up for it
                    tx.drop_tag("nope")
        assert (strong.refresh().version, ids(strong)) == (2, [1, 2, 3, 4])

    def test_nothing_at_all_is_a_version_too(self, strong):
        with strong.transaction():
            pass
        assert (strong.version, rows(strong)) == (3, ROWS)


def _broken(*_):
    raise OSError("it broke")


class TestTransactionId:
    CHANGES = (
        lambda table, **options: table.append([row(5)], **options),
        lambda table, **options: table.overwrite([row(5)], **options),
        lambda table, **options: table.overwrite([row(5)], "partitions", **options),
        lambda table, **options: table.delete("id = 1", **options),
        lambda table, **options: table.update({"n": "n + 1"}, **options),
        lambda table, **options: table.merge([row(1, n=5), row(7)], ["id"], **options),
    )
    STRONG_CHANGES = (
        lambda table, **options: table.rollback(1, **options),
        lambda table, **options: table.tag("x", **options),
        lambda table, **options: table.set_properties({"a": "b"}, **options),
    )

    @pytest.mark.parametrize("change", CHANGES)
    def test_the_second_time_does_nothing(self, table, change):
        stale = phalanx.open(table.uri)
        change(table, transaction_id="id")
        version, found = table.version, rows(table)
        change(table, transaction_id="id")
        change(stale, transaction_id="id")
        assert (table.version, stale.version, rows(table)) == (version, version, found)

    @pytest.mark.parametrize("change", STRONG_CHANGES)
    def test_nor_do_changes_of_other_kinds(self, strong, change):
        change(strong, transaction_id="id")
        change(strong, transaction_id="id")
        assert strong.version == 3

    def test_the_transaction_says_so(self, table):
        with table.transaction(transaction_id="id") as first:
            first.append([row(5)])
        with table.transaction(transaction_id="id") as second:
            second.append([row(5)])
            assert second.delete("id = 5") == 0
            assert second.merge([row(1)], ["id"]).updated == 0
        assert (first.repeated, second.repeated) == (False, True)
        assert ids(table) == [1, 2, 3, 4, 5]

    def test_also_when_the_first_lands_in_the_middle_of_it(self, table):
        with table.transaction(transaction_id="id") as late:
            late.append([row(5)])
            phalanx.open(table.uri).append([row(5)], transaction_id="id")
        assert late.repeated
        assert ids(table) == [1, 2, 3, 4, 5]

    def test_it_outlives_a_rollback(self, strong):
        strong.append([row(5)], transaction_id="id")
        strong.rollback(2)
        strong.append([row(5)], transaction_id="id")
        assert (strong.version, ids(strong)) == (4, [1, 2, 3, 4])

    @pytest.mark.parametrize("id", ["it's", "ü$x/..", "a b\n", "x" * 512])
    def test_any_text_will_do(self, strong, id):
        strong.append([row(5)], transaction_id=id)
        strong.append([row(5)], transaction_id=id)
        assert last(strong)["transaction_id"] == id
        assert strong.version == 3

    @pytest.mark.parametrize("id", ["", "x" * 513, 7])
    def test_but_not_everything(self, strong, id):
        with pytest.raises(InvalidInput, match="a string of 1 to 512 characters"):
            strong.append([row(5)], transaction_id=id)

    def test_the_counts_of_a_repetition_are_zero(self, table):
        assert table.delete("id = 1", transaction_id="id") == 1
        assert table.delete("id = 1", transaction_id="id") == 0


class TestIsolation:
    @pytest.mark.parametrize(("change", "left"), [("delete", [1]), ("update", [1, 100])])
    def test_snapshot_isolation_leaves_rows_added_meanwhile_alone(self, root, change, left):
        schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        table = phalanx.create(root, schema, ["name"])
        table.append([{"id": 0, "name": "a"}])
        tx = table.transaction(isolation="snapshot")
        if change == "delete":
            tx.delete("name = 'a'")
        else:
            tx.update({"id": "id + 100"}, "name = 'a'")
        phalanx.open(root).append([{"id": 1, "name": "a"}])
        tx.commit()
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == left


class TestNothingIsUsedTwice:
    def test_through_removal_and_rollback(self, strong):
        """Leaves come, go and come back: one version of one leaf always means the same rows."""
        meant = {}

        def look():
            for leaf in strong.partitions().to_pylist():
                found = lance.dataset(leaf["uri"], version=leaf["version"]).to_table().to_pylist()
                assert meant.setdefault((leaf["uri"], leaf["version"]), found) == found

        for n in range(3):
            strong.delete("part = 'a'")
            look()
            strong.append([row(1, n=n)])
            look()
            strong.rollback(2)
            look()
            strong.append([row(2, n=n)])
            look()
        history = strong.snapshots()
        assert history["version"].to_pylist() == list(range(1, strong.version + 1))
        assert len(set(history["transaction_id"].to_pylist())) == strong.version
        assert len(meant) == 3 + 2 * 3

    def test_a_table_that_is_dropped_and_made_again_is_another(self, strong, root, tmp_path):
        head = ManifestVersion(Location(root)).head()
        os.rename(root, tmp_path / "dropped")
        again = phalanx.create(root, SCHEMA, ["part"]).append(ROWS)
        new = ManifestVersion(Location(root)).head()
        assert new.table_id != head.table_id
        assert new.salt != head.salt
        # The old handle is of the old table, though both are at version 2 with the same rows.
        with pytest.raises(ConflictError, match="dropped and made again"):
            strong.append([row(5, "new")])
        with pytest.raises(ConflictError, match="dropped and made again"):
            strong.delete("id = 1")
        assert rows(again) == ROWS

    def test_so_is_a_weak_one(self, weak, root, tmp_path):
        os.rename(root, tmp_path / "dropped")
        again = phalanx.create(root, SCHEMA, ["part"], transactions="weak").append(ROWS)
        with pytest.raises(ConflictError, match="dropped and made again"):
            weak.append([row(5, "new")])
        assert rows(again) == ROWS

    def test_field_and_spec_ids_stay_through_rollback(self, strong):
        before = ManifestVersion(Location(strong.uri)).head()
        strong.rollback(1)
        after = ManifestVersion(Location(strong.uri)).head()
        assert (after.max_field_id, after.specs) == (before.max_field_id, before.specs)


class TestTheSwap:
    """Lance accepts a stale commit once the versions since are gone: none is ever tried."""

    def test_a_stale_handle_does_not_swap_on_what_it_was_opened_at(self, strong, root):
        stale = phalanx.open(root)
        for id in range(5, 9):
            strong.append([row(id)])
        # What only an intruder does: every version of the manifest but the newest is removed.
        lance.dataset(str(root / "__manifest")).cleanup_old_versions(
            older_than=dt.timedelta(0), delete_unverified=True
        )
        assert len(lance.dataset(str(root / "__manifest")).versions()) == 1
        stale.append([row(9)])
        stale.delete("id = 1")
        assert ids(phalanx.open(root)) == [2, 3, 4, 5, 6, 7, 8, 9]
        heads = ManifestVersion(Location(root))._read(["sequence"], "object_id = '__head'")
        assert heads["sequence"].to_pylist() == [8]

    def test_every_try_opens_the_newest(self, strong, root, monkeypatch):
        """Also after a swap was lost: in between, versions may have come and gone."""
        used = []
        real = ManifestVersion.swap

        def swap(manifest, *args):
            newest = lance.dataset(str(root / "__manifest")).version
            used.append((manifest.version, newest))
            if len(used) == 1:
                monkeypatch.setattr(ManifestVersion, "swap", real)
                phalanx.open(root).append([row(7)])
                monkeypatch.setattr(ManifestVersion, "swap", swap)
            return real(manifest, *args)

        monkeypatch.setattr(ManifestVersion, "swap", swap)
        monkeypatch.setattr("phalanx.transaction.lock.fcntl", None)
        strong.append([row(5)])
        assert len(used) == 2
        assert all(version == newest for version, newest in used)
        assert ids(strong) == [1, 2, 3, 4, 5, 7]


class TestCompaction:
    def test_compaction_that_fails_does_not_fail_the_commit(self, root, monkeypatch):
        table = phalanx.create(root, pa.schema([("id", pa.int64())]))

        def fails(self, reindex):
            raise OSError("connection reset")

        monkeypatch.setattr("phalanx.storage.manifest.ManifestVersion.compact", fails)
        for number in range(20):
            table.append([{"id": number}])
        assert table.count() == 20


class TestThreads:
    """Threads may share a transaction: what one adds, another does not lose."""

    def test_appends(self, root):
        table = phalanx.create(root, SCHEMA, ["part"])
        with table.transaction() as tx, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: tx.append([row(n, "abc"[n % 3])]), range(24)))
        assert ids(phalanx.open(root)) == list(range(24))
        assert table.count() == 24
        assert table.check().ok

    def test_all_kinds_of_changes(self, root):
        table = phalanx.create(root, SCHEMA, ["part"]).append([row(n) for n in range(100)])
        with table.transaction() as tx, ThreadPoolExecutor(8) as pool:
            changes = [
                *(lambda n=n: tx.delete(f"id = {n}") for n in range(5)),
                *(lambda n=n: tx.update({"n": "-1"}, f"id = {n}") for n in range(10, 15)),
                *(lambda n=n: tx.merge([row(n, "m")], on=["id"]) for n in range(98, 103)),
                *(lambda n=n: tx.append([row(n)]) for n in range(200, 205)),
                *(lambda: tx.count() for _ in range(5)),
            ]
            list(pool.map(lambda change: change(), changes))
        assert ids(phalanx.open(root)) == [*range(5, 103), *range(200, 205)]
        assert table.count("n = -1") == 5
        assert table.count("part = 'm'") == 5


class TestAfterAConflict:
    def test_the_same_handle_can_try_again(self, strong):
        other = phalanx.open(strong.uri)

        def move(tx):
            rows = tx.scan(where="part = 'a'").to_arrow()
            tx.append(rows)

        with pytest.raises(ConflictError, match="try again"), strong.transaction() as tx:  # noqa: PT012
            other.append(ROWS)
            move(tx)
        assert strong.version == other.version
        before = strong.count()
        with strong.transaction() as tx:
            move(tx)
        assert strong.count() > before
