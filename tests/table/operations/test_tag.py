import pytest

import phalanx
from phalanx import InvalidInput, TableNotFound
from tests.table.rows import IDS_AT, with_history


@pytest.fixture
def table(strong):
    return with_history(strong)


def ids_at(table, version):
    found = phalanx.open(table.uri, version=version)
    return sorted(found.scan(["id"]).to_arrow()["id"].to_pylist())


class TestTag:
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
