import pytest

from phalanx import InvalidInput
from tests.table.rows import ROWS, SCHEMA, ids, parts, row, rows


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
