import pytest

import phalanx
from phalanx import InvalidInput
from tests.table.rows import ROWS, parts, row, rows


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
            ({"n": [1]}, "cannot be used as a constant"),
            ({"n": phalanx.lit("x")}, "column 'n' is int64"),
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
