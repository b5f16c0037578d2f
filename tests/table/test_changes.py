"""Delete, update, merge, overwrite, several of them at once, and the ways through time."""

import datetime as dt
import json
import os

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.storage.manifest_update import TAG, ManifestUpdate
from phalanx import ConflictError, InvalidInput, PhalanxError, TableNotFound
from phalanx.storage import fsync
from phalanx.storage.leaf import Leaf
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion
from phalanx.storage.names import tag_row
from phalanx.transaction import commit

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])


def row(id, part="a", n=0):
    return {"id": id, "part": part, "n": n}


ROWS = [row(1), row(2), row(3, "b"), row(4, None)]


@pytest.fixture(params=["strong", "weak"])
def table(request, root):
    table = phalanx.create(root, SCHEMA, ["part"], transactions=request.param)
    return table.append(ROWS)


@pytest.fixture
def strong(root):
    return phalanx.create(root, SCHEMA, ["part"]).append(ROWS)


@pytest.fixture
def weak(root):
    return phalanx.create(root, SCHEMA, ["part"], transactions="weak").append(ROWS)


def rows(table):
    """The rows as anybody sees them; the handle that made a change must see the same."""
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda found: found["id"])
    again = phalanx.open(table.uri)
    assert found == sorted(again.scan().to_arrow().to_pylist(), key=lambda found: found["id"])
    assert table.count() == again.count() == len(found)
    assert sum(table.partitions()["rows"].to_pylist()) == len(found)
    return found


def ids(table):
    return [found["id"] for found in rows(table)]


def parts(table):
    """The partitions that have rows: in a weak table a leaf stays when they are gone."""
    found = zip(*(table.partitions()[c].to_pylist() for c in ("part", "rows")), strict=True)
    return [part for part, count in found if count]


def last(table):
    return table.snapshots().to_pylist()[-1]


class TestDelete:
    def test_rows(self, table):
        assert table.delete("id IN (1, 3, 77)") == 2
        assert ids(table) == [2, 4]
        assert table.version == 3

    def test_all_rows(self, table):
        assert table.delete("TRUE") == 4
        assert ids(table) == []
        assert table.append([row(5)]).count() == 1

    def test_nothing(self, table):
        assert table.delete("id = 77") == 0
        assert ids(table) == [1, 2, 3, 4]

    def test_null_is_neither_true_nor_false(self, table):
        assert table.delete("part <> 'a'") == 1
        assert table.delete("part IS NULL") == 1
        assert ids(table) == [1, 2]

    def test_twice_from_the_same_files(self, table):
        assert table.delete("id = 1") == 1
        assert table.delete("id <= 2") == 1
        assert ids(table) == [3, 4]

    def test_the_last_row_takes_its_partition_along(self, strong):
        strong.delete("id = 1")
        strong.delete("id = 2")
        assert strong.partitions()["part"].to_pylist() == [None, "b"]
        manifest = ManifestVersion(Location(strong.uri))
        left = manifest.read(["object_id"], "object_type <> 'transaction'")["object_id"].to_pylist()
        assert len(left) == 2 + 2 * 3  # the head, the spec; namespace, leaf and version of each

    def test_whole_partitions_are_not_opened(self, strong, monkeypatch):
        def refuse(leaf, *_):
            raise AssertionError(f"{leaf.uri} was opened")

        with monkeypatch.context() as patch:
            for name in ("open", "create", "delete", "scan", "count"):
                patch.setattr(Leaf, name, refuse)
            assert strong.delete("part IN ('a', 'b')") == 3
            assert strong.delete("part IS NULL") == 1
        assert ids(strong) == []

    def test_only_the_partitions_in_question_are_opened(self, strong, monkeypatch):
        opened = set()
        real = Leaf.delete

        def watch(leaf, *args):
            opened.add(leaf.uri)
            return real(leaf, *args)

        monkeypatch.setattr(Leaf, "delete", watch)
        strong.delete("part = 'a' AND id = 1 OR part = 'b'")
        assert len(opened) == 1

    @pytest.mark.parametrize(
        ("where", "message"),
        [
            (None, "delete takes a filter; to delete every row, write 'TRUE'"),
            ("nope = 1", "unknown column"),
            ("id = ", "filter"),
            ("id = 'x'", "cannot compare"),
        ],
    )
    def test_a_filter_that_makes_no_sense(self, table, where, message):
        with pytest.raises(InvalidInput, match=message):
            table.delete(where)
        assert (table.version, ids(table)) == (2, [1, 2, 3, 4])


class TestUpdate:
    def test_rows(self, table):
        assert table.update({"n": "n + id"}, "id <= 2") == 2
        assert rows(table) == [row(1, n=1), row(2, n=2), row(3, "b"), row(4, None)]

    def test_all_rows(self, table):
        assert table.update({"n": "7"}) == 4
        assert {found["n"] for found in rows(table)} == {7}

    def test_several_columns_from_what_was_there_before(self, table):
        table.update({"n": "id", "id": "n + 100"}, "id = 1")
        assert rows(table)[-1] == row(100, n=1)

    def test_a_row_moves_to_another_partition(self, table):
        assert table.update({"part": "'b'"}, "id = 1") == 1
        assert rows(table)[0] == row(1, "b")
        assert parts(table) == [None, "a", "b"]

    def test_to_one_that_is_new_and_from_one_that_is_empty_then(self, table):
        assert table.update({"part": "'new'"}, "part = 'b' OR part IS NULL") == 2
        assert parts(table) == ["a", "new"]

    def test_partitions_swap_their_rows(self, table):
        """Every row leaves and others come, in the same leaves."""
        swap = "chr(97 + 98 - ascii(part))"
        assert table.update({"part": swap, "n": "n + 1"}, "part IN ('a', 'b')") == 3
        assert rows(table) == [row(1, "b", 1), row(2, "b", 1), row(3, "a", 1), row(4, None)]

    def test_to_null_and_back(self, table):
        table.update({"part": "NULL"}, "id = 1")
        assert rows(table)[0] == row(1, None)
        table.update({"part": "'a'"}, "part IS NULL")
        assert parts(table) == ["a", "b"]

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({}, "update takes what to set"),
            ({"nope": "1"}, "unknown column 'nope': the table has id, part, n"),
            ({"n": 1}, "'n' is set to SQL text"),
            ({"n": "'x'"}, "column 'n' is int64"),
            ({"n": "nope + 1"}, "nope"),
            ({"n": "random()"}, "random"),
        ],
    )
    def test_values_that_make_no_sense(self, table, values, message):
        with pytest.raises(InvalidInput, match=message):
            table.update(values, "id = 1")
        assert (table.version, rows(table)) == (2, ROWS)

    @pytest.mark.parametrize("sql", ["n + 1", "n * 2", "-(-n - 2)"])
    def test_a_number_that_does_not_fit_is_refused(self, strong, sql):
        strong.update({"n": str(2**63 - 1)}, "id = 2")
        with pytest.raises(InvalidInput, match="out of range"):
            strong.update({"n": sql})
        assert [found["n"] for found in rows(strong)] == [0, 2**63 - 1, 0, 0]
        assert strong.update({"n": sql}, "id <> 2") == 3


class TestMerge:
    def test_upsert(self, table):
        counts = table.merge([row(1, n=9), row(5, "c", 9)], ["id"])
        assert (counts.inserted, counts.updated, counts.deleted) == (1, 1, 0)
        assert counts["inserted"] == 1
        assert rows(table) == [row(1, n=9), *ROWS[1:], row(5, "c", 9)]

    def test_a_row_moves_to_the_partition_of_its_source(self, table):
        assert table.merge([row(1, "b", 9)], ["id"]).updated == 1
        assert rows(table)[0] == row(1, "b", 9)

    def test_delete_when_matched(self, table):
        counts = table.merge(
            [row(1), row(3), row(77)], ["id"], when_matched="delete", when_not_matched="ignore"
        )
        assert (counts.inserted, counts.updated, counts.deleted) == (0, 0, 2)
        assert ids(table) == [2, 4]

    def test_insert_only(self, table):
        counts = table.merge([row(1, n=9), row(5)], ["id"], when_matched="ignore")
        assert (counts.inserted, counts.updated, counts.deleted) == (1, 0, 0)
        assert rows(table) == [*ROWS, row(5)]

    def test_update_only(self, table):
        counts = table.merge([row(1, n=9), row(5)], ["id"], when_not_matched="ignore")
        assert (counts.inserted, counts.updated, counts.deleted) == (0, 1, 0)
        assert rows(table) == [row(1, n=9), *ROWS[1:]]

    def test_several_keys(self, table):
        counts = table.merge([row(1, "a", 9), row(1, "b", 9)], ["id", "part"])
        assert (counts.inserted, counts.updated) == (1, 1)
        assert [found["n"] for found in rows(table) if found["id"] == 1] == [9, 9]

    def test_null_keys_match_nothing(self, table):
        table.append([row(None, n=1)])
        counts = table.merge([row(None, n=2), row(None, n=3)], ["id"])
        assert (counts.inserted, counts.updated) == (2, 0)
        assert table.count("id IS NULL") == 3
        # Neither does a NULL partition value.
        assert table.merge([row(4, None, 9)], ["id", "part"]).inserted == 1

    def test_a_source_key_may_match_several_rows(self, table):
        table.append([row(1, "c")])
        counts = table.merge([row(1, n=9)], ["id"])
        assert (counts.inserted, counts.updated) == (0, 2)
        assert [found for found in rows(table) if found["id"] == 1] == [row(1, n=9)]

    def test_keys_of_all_rows(self, table):
        counts = table.merge([row(id, n=9) for id in (1, 2, 3, 4)], ["id"])
        assert counts.updated == 4
        assert rows(table) == [row(id, n=9) for id in (1, 2, 3, 4)]

    def test_nothing(self, table):
        assert table.merge(SCHEMA.empty_table(), ["id"]).inserted == 0
        assert rows(table) == ROWS

    def test_duplicate_source_keys_are_refused(self, table):
        with pytest.raises(InvalidInput, match="several source rows have the same id"):
            table.merge([row(7), row(7)], ["id"])
        assert (table.version, rows(table)) == (2, ROWS)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"on": "id"}, "as a list"),
            ({"on": []}, "as a list"),
            ({"on": ["nope"]}, "unknown column 'nope'"),
            ({"on": ["id"], "when_matched": "x"}, "when_matched is"),
            ({"on": ["id"], "when_not_matched": "x"}, "when_not_matched is"),
        ],
    )
    def test_options_that_make_no_sense(self, table, options, message):
        with pytest.raises(InvalidInput, match=message):
            table.merge([row(1)], **options)
        assert table.version == 2


class TestOverwrite:
    def test_the_table(self, table):
        table.overwrite([row(7, "b"), row(8, "c")])
        assert rows(table) == [row(7, "b"), row(8, "c")]
        assert parts(table) == ["b", "c"]

    def test_the_table_with_nothing(self, table):
        table.overwrite(SCHEMA.empty_table())
        assert rows(table) == []

    def test_the_partitions_in_the_data(self, table):
        table.overwrite([row(7, "a"), row(8, "c"), row(9, None)], mode="partitions")
        assert rows(table) == [row(3, "b"), row(7), row(8, "c"), row(9, None)]

    def test_matching_rows(self, table):
        table.overwrite([row(1, "a", 9), row(1, "c", 9)], where="id = 1")
        assert rows(table)[:2] == [row(1, "a", 9), row(1, "c", 9)]
        assert len(rows(table)) == 5

    def test_rows_that_do_not_match_are_refused(self, table):
        with pytest.raises(InvalidInput, match="1 row does not match"):
            table.overwrite([row(1), row(2)], where="id = 1")
        assert (table.version, rows(table)) == (2, ROWS)

    def test_an_unknown_mode(self, table):
        with pytest.raises(InvalidInput, match="mode is 'table' or 'partitions', not 'rows'"):
            table.overwrite([row(1)], mode="rows")

    def test_a_filter_or_partitions(self, table):
        with pytest.raises(InvalidInput, match="a filter or the mode 'partitions', not both"):
            table.overwrite([row(9)], "partitions", where="TRUE")
        assert ids(table) == [1, 2, 3, 4]


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


#: The ids at each version of the table of the next tests.
IDS_AT = {1: [], 2: [1, 2, 3, 4], 3: [1, 2, 3, 4, 5], 4: [3, 4, 5], 5: [3, 4, 5]}


class TestTime:
    @pytest.fixture
    def table(self, strong):
        strong.append([row(5, "new")])
        strong.delete("part = 'a'")
        strong.update({"n": "n + 1", "part": "'z'"}, "id = 3")
        return strong

    def test_every_version_can_be_opened(self, table):
        for version, expected in IDS_AT.items():
            found = phalanx.open(table.uri, version=version)
            assert found.version == version
            assert sorted(found.scan(["id"]).to_arrow()["id"].to_pylist()) == expected
            assert found.count() == len(expected)

    def test_by_time(self, table):
        for snapshot in table.snapshots().to_pylist():
            found = phalanx.open(table.uri, version=snapshot["committed_at"])
            assert found.version == snapshot["version"]
            just_before = snapshot["committed_at"] - dt.timedelta(microseconds=1)
            if snapshot["version"] > 1:
                found = phalanx.open(table.uri, version=just_before.replace(tzinfo=None))
                assert found.version == snapshot["version"] - 1
        with pytest.raises(TableNotFound, match="did not exist yet"):
            phalanx.open(table.uri, version=dt.datetime(2020, 1, 1))

    @pytest.mark.parametrize("version", [1, 2, 3, 4])
    def test_rollback(self, table, version):
        then = phalanx.open(table.uri, version=version)
        before = then.scan().to_arrow(), then.partitions().drop(["version"])
        table.rollback(version)
        assert table.version == 6
        assert ids(table) == IDS_AT[version]
        assert (table.scan().to_arrow(), table.partitions().drop(["version"])) == before
        # Nothing in between is lost, and the table goes on from there.
        assert ids(phalanx.open(table.uri).rollback(5)) == [3, 4, 5]
        table.append([row(9), row(9, "new")])
        assert table.version == 8
        assert ids(table) == [3, 4, 5, 9, 9]

    def test_rollback_of_a_rollback(self, table):
        table.rollback(2)
        table.rollback(5)
        table.rollback(6)
        assert ids(table) == [1, 2, 3, 4]

    def test_rollback_and_more_in_one(self, table):
        with table.transaction() as tx:
            tx.append([row(8, "y")])
            tx.rollback(2)
            assert tx.count() == 4
            tx.append([row(9)])
            tx.delete("id = 1")
        assert ids(table) == [2, 3, 4, 9]

    def test_counts_and_statistics_go_back_too(self, table):
        table.rollback(2)
        assert table.count("part = 'a'") == 2
        assert table.count("id >= 2") == 3

    @pytest.mark.parametrize("version", [0, -1, 6, 99])
    def test_a_version_that_never_was(self, table, version):
        for use in (lambda v: phalanx.open(table.uri, version=v), table.rollback):
            with pytest.raises(TableNotFound, match=f"no version {version}: its newest is 5"):
                use(version)
        assert table.version == 5

    @pytest.mark.parametrize("version", [True, 1.5, [1]])
    def test_a_version_of_another_kind(self, table, version):
        with pytest.raises(InvalidInput, match="whole number, a tag or a datetime"):
            phalanx.open(table.uri, version=version)

    def test_tags(self, table):
        table.tag("now").tag("early", version=2)
        assert table.tags() == {"now": 5, "early": 2}
        assert ids_at(table, "early") == [1, 2, 3, 4]
        assert phalanx.open(table.uri, version="now").version == 5
        with pytest.raises(InvalidInput, match="'early' is already at version 2: drop it first"):
            table.tag("early", version=3)
        table.tag("early", version=2)
        table.rollback(1)
        assert ids_at(table, "early") == [1, 2, 3, 4]
        table.rollback("early")
        assert table.scan().to_arrow().num_rows == 4
        table.drop_tag("early")
        assert table.tags() == {"now": 5}
        with pytest.raises(TableNotFound, match="no tag 'early': it has now"):
            phalanx.open(table.uri, version="early")
        with pytest.raises(TableNotFound, match="has no tag 'early'"):
            table.drop_tag("early")

    def test_tags_add_up_in_a_transaction(self, table):
        table.tag("old", version=2)
        with table.transaction() as tx:
            tx.tag("x", 1)
            with pytest.raises(InvalidInput, match="'x' is already at version 1"):
                tx.tag("x", 2)
            tx.tag("y", 1)
            tx.drop_tag("y")
            with pytest.raises(TableNotFound, match="no tag 'y'"):
                tx.drop_tag("y")
            tx.drop_tag("old")
            tx.tag("old", 3)
        assert phalanx.open(table.uri).tags() == {"x": 1, "old": 3}
        assert ids_at(table, "old") == IDS_AT[3]

    @pytest.mark.parametrize("name", ["", "x" * 257, 7])
    def test_a_tag_needs_a_name(self, table, name):
        with pytest.raises(InvalidInput, match="a string of 1 to 256 characters"):
            table.tag(name)

    def test_snapshots(self, table):
        table.tag("x")
        found = table.snapshots().to_pylist()
        assert [f["version"] for f in found] == [1, 2, 3, 4, 5, 6]
        columns = ("operation", "rows_added", "rows_removed", "leaves")
        assert [tuple(f[c] for c in columns) for f in found] == [
            ("create", 0, 0, 0),
            ("append", 4, 0, 3),
            ("append", 1, 0, 1),
            ("delete", 0, 2, 1),
            ("update", 1, 1, 2),
            ("tag", 0, 0, 0),
        ]  # fmt: skip
        times = [f["committed_at"] for f in found]
        assert times == sorted(times)
        assert times[-1].tzinfo is not None
        assert len({f["transaction_id"] for f in found}) == 6

    def test_the_history_of_a_rollback_is_kept(self, table):
        table.rollback(2)
        assert table.snapshots()["operation"].to_pylist()[-2:] == ["update", "rollback"]

    def test_a_handle_at_an_older_version_changes_the_newest(self, table):
        old = phalanx.open(table.uri, version=2)
        assert old.delete("id IN (1, 3)") == 1
        assert old.version == 6
        assert ids(old) == [4, 5]

    def test_a_stale_handle_sees_what_it_was_opened_at(self, table):
        stale = phalanx.open(table.uri)
        table.overwrite([row(9)])
        assert sorted(stale.scan(["id"]).to_arrow()["id"].to_pylist()) == [3, 4, 5]
        assert stale.count() == 3
        assert ids(stale.refresh()) == [9]


def ids_at(table, version):
    found = phalanx.open(table.uri, version=version)
    return sorted(found.scan(["id"]).to_arrow()["id"].to_pylist())


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
        heads = ManifestVersion(Location(root)).read(["sequence"], "object_id = '__head'")
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


class TestDurable:
    @pytest.fixture
    def synced(self, monkeypatch):
        paths = []
        real = fsync._fsync
        monkeypatch.setattr(fsync, "_fsync", lambda path: (paths.append(path), real(path)))
        return paths

    @pytest.mark.parametrize("how", ["option", "variable"])
    def test_all_that_was_written_is_synced(self, table, root, synced, monkeypatch, how):
        before = set(_files(root))
        if how == "variable":
            monkeypatch.setenv("PHALANX_DURABLE", "1")
        table.append([row(5), row(6, "new")], durable=True if how == "option" else None)
        new = {path for path in set(_files(root)) - before if not path.endswith(".lock")}
        assert len(new) > 6
        assert new <= set(synced)
        assert {os.path.dirname(path) for path in new} <= set(synced)

    def test_before_the_swap(self, strong, root, synced, monkeypatch):
        """What a manifest names is on disk before it is."""
        swap, at_the_swap = ManifestVersion.swap, set()

        def recording(self, *arguments):
            at_the_swap.update(synced)
            return swap(self, *arguments)

        monkeypatch.setattr(ManifestVersion, "swap", recording)
        before = set(_files(root))
        strong.append([row(5)], durable=True)
        new = {path for path in set(_files(root)) - before if not path.endswith(".lock")}
        assert {path for path in new if "__manifest" not in path} <= at_the_swap
        assert {path for path in new if "__manifest" in path} <= set(synced) - at_the_swap

    @pytest.mark.parametrize("anchor", ["never", "commit"])
    def test_what_follows_the_swap(self, strong, root, synced, anchor):
        """The schema for other clients, compaction, anchors: the newest files are theirs."""
        strong.set_properties({"anchor": anchor})
        for n in range(commit._COMPACT_EVERY):
            before = set(_files(root))
            with strong.transaction(durable=True) as tx:
                tx.add_column(f"more{n}", pa.int64())
                tx.append([row(5)])
            new = {path for path in set(_files(root)) - before if not path.endswith(".lock")}
            assert new <= set(synced)

    @pytest.mark.parametrize("transactions", ["strong", "weak"])
    def test_a_new_table(self, tmp_path, synced, monkeypatch, transactions):
        """With the folders that were made for it."""
        monkeypatch.setenv("PHALANX_DURABLE", "1")
        root = tmp_path / "db" / "t"
        phalanx.create(root, SCHEMA, ["part"], transactions=transactions)
        made = _files(root)
        assert made
        assert {*made} <= {*synced}
        folders = {folder for folder, _, _ in os.walk(tmp_path)}
        assert {str(tmp_path), str(root), str(root / "__manifest")} <= folders
        assert folders <= {*synced}

    def test_not_unless_it_is_asked_for(self, strong, synced):
        strong.append([row(5)])
        strong.append([row(6)], durable=False)
        assert synced == []


def _files(folder):
    return [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]


class TestAnchor:
    def on_main(self, table):
        """The rows that a plain Lance reader sees."""
        found = []
        for uri in table.partitions()["uri"].to_pylist():
            found += lance.dataset(uri).to_table(columns=["id"])["id"].to_pylist()
        return sorted(found)

    def test_by_default_commits_do_not_show_on_main(self, strong):
        assert self.on_main(strong) == []

    def test_at_every_commit(self, strong):
        strong.set_properties({"anchor": "commit"})
        strong.append([row(5), row(6, "new")])
        assert self.on_main(strong) == [1, 2, 5, 6]
        strong.delete("id = 1")
        assert self.on_main(strong) == [2, 5, 6]
        strong.update({"n": "n + 1"})
        assert self.on_main(strong) == [2, 3, 4, 5, 6]
        assert ids(strong) == [2, 3, 4, 5, 6]
        # Stock cleanup is harmless then.
        for uri in strong.partitions()["uri"].to_pylist():
            lance.dataset(uri).cleanup_old_versions(
                older_than=dt.timedelta(0), delete_unverified=True
            )
        assert ids(strong) == [2, 3, 4, 5, 6]
        strong.append([row(7, "b"), row(8, "other")])
        assert ids(strong) == [2, 3, 4, 5, 6, 7, 8]
        # Also for a leaf that went and comes back, though its first version is gone.
        strong.delete("part = 'b'")
        strong.append([row(9, "b")])
        assert ids(strong) == [2, 4, 5, 6, 8, 9]
        assert self.on_main(strong) == [2, 4, 5, 6, 8, 9]

    def test_properties(self, root):
        table = phalanx.create(root, SCHEMA, ["part"], properties={"anchor": "never", "x": "y"})
        assert table.properties == {"anchor": "never", "x": "y"}
        table.set_properties({"x": None, "z": "1"})
        assert phalanx.open(root).properties == {"anchor": "never", "z": "1"}
        with pytest.raises(InvalidInput, match="anchor is one of maintenance, commit, never"):
            table.set_properties({"anchor": "always"})
        with pytest.raises(InvalidInput, match="properties are strings"):
            table.set_properties({"x": 1})
        assert table.version == 2
        with table.transaction() as tx:
            tx.set_properties({"owner": "a", "z": None})
            tx.set_properties({"team": "b", "x": "1"})
            tx.set_properties({"x": None})
        assert phalanx.open(root).properties == {"anchor": "never", "owner": "a", "team": "b"}


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
        with pytest.raises(ConflictError, match="by somebody else"), weak.transaction() as tx:  # noqa: PT012
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
        tagged = Rows(base.head().specs)
        described = {"name": "t", "version": str(last), "manifest_version": str(base.version - 2)}
        tagged.add(tag_row("t"), TAG, described, sequence=last)
        base.swap(tagged.to_table())
        weak.refresh()
        for version in (last, when, "t"):
            uses = (lambda v: phalanx.open(weak.uri, version=v), weak.rollback)
            for use in (*uses, lambda v: weak.tag("u", v)):
                with pytest.raises(InvalidInput, match=f"version {last} .* from when it was weak"):
                    use(version)
        assert phalanx.open(weak.uri, version=last + 1).count() == 4
        assert ids(weak) == [1, 2, 3, 4, 5]


def _head(table):
    found = ManifestVersion(Location(table.uri)).read(["metadata"], "object_id = '__head'")
    return found["metadata"].to_pylist()[0]


class TestFoundInReview:
    """Ways to lose or double rows that were once open."""

    def test_a_merge_that_is_refused_takes_nothing_out(self, root):
        schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        by = phalanx.expr("cast(col0 as int)", ["name"], name="n")
        table = phalanx.create(root, schema, [by])
        table.append([{"id": i, "name": str(i)} for i in range(4)])
        with table.transaction() as tx, pytest.raises(InvalidInput, match="Cannot cast"):
            tx.merge([{"id": 1, "name": "bad"}, {"id": 2, "name": "0"}], on=["id"])
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]

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

    def test_compaction_that_fails_does_not_fail_the_commit(self, root, monkeypatch):
        table = phalanx.create(root, pa.schema([("id", pa.int64())]))

        def fails(self, reindex):
            raise OSError("connection reset")

        monkeypatch.setattr("phalanx.storage.manifest.ManifestVersion.compact", fails)
        for number in range(20):
            table.append([{"id": number}])
        assert table.count() == 20

    def test_a_key_may_be_called_number(self, root):
        table = phalanx.create(root, pa.schema([("number", pa.int64()), ("x", pa.int64())]))
        table.append([{"number": 1, "x": 1}])
        assert table.merge([{"number": 1, "x": 2}], on=["number"]).updated == 1

    @pytest.mark.parametrize("key", ['a"b', "a'b", "a b", "select", "ü"])
    def test_or_almost_anything_else(self, root, key):
        table = phalanx.create(root, pa.schema([(key, pa.int64()), ("x", pa.int64())]))
        table.append([{key: 1, "x": 1}, {key: 2, "x": 1}])
        counts = table.merge([{key: 2, "x": 2}, {key: 3, "x": 2}], on=[key])
        assert (counts.updated, counts.inserted) == (1, 1)
        found = table.scan().to_arrow()
        assert sorted(zip(*(column.to_pylist() for column in found.columns), strict=True)) == [
            (1, 1), (2, 2), (3, 2),
        ]  # fmt: skip

    def test_floats_are_no_keys(self, root):
        table = phalanx.create(root, pa.schema([("x", pa.float64())]))
        with pytest.raises(InvalidInput, match="'x' of type double cannot be a key"):
            table.merge([{"x": -0.0}], on=["x"])
