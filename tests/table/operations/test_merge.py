import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput
from tests.table.rows import ROWS, SCHEMA, ids, row, rows


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


class TestKeys:
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


class TestRefused:
    def test_a_merge_that_is_refused_takes_nothing_out(self, root):
        schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        by = phalanx.expr("cast(col0 as int)", ["name"], name="n")
        table = phalanx.create(root, schema, [by])
        table.append([{"id": i, "name": str(i)} for i in range(4)])
        with table.transaction() as tx, pytest.raises(InvalidInput, match="Cannot cast"):
            tx.merge([{"id": 1, "name": "bad"}, {"id": 2, "name": "0"}], on=["id"])
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]
