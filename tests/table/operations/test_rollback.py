import pytest

import phalanx
from phalanx import TableNotFound
from tests.table.rows import IDS_AT, ids, row, with_history


@pytest.fixture
def table(strong):
    return with_history(strong)


class TestRollback:
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

    def test_the_history_of_a_rollback_is_kept(self, table):
        table.rollback(2)
        assert table.snapshots()["operation"].to_pylist()[-2:] == ["update", "rollback"]
