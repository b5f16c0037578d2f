"""Every version of a table can be opened, by its number and by its time."""

import datetime as dt

import pytest

import phalanx
from phalanx import InvalidInput, TableNotFound
from tests.table.rows import IDS_AT, ids, row, with_history


@pytest.fixture
def table(strong):
    return with_history(strong)


class TestTime:
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

    def test_by_time_as_text(self, table):
        for snapshot in table.snapshots().to_pylist():
            text = snapshot["committed_at"].isoformat()
            for spelled in (text, text.replace("T", " "), text.replace("+00:00", "")):
                assert phalanx.open(table.uri, version=spelled).version == snapshot["version"]
        with pytest.raises(TableNotFound, match="did not exist yet"):
            phalanx.open(table.uri, version="2020-01-01")
        with pytest.raises(TableNotFound, match="has no tag '2020-13-01'"):
            phalanx.open(table.uri, version="2020-13-01")

    def test_by_date(self, table):
        tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
        assert phalanx.open(table.uri, version=tomorrow).version == table.version
        assert phalanx.open(table.uri, version=str(tomorrow)).version == table.version
        with pytest.raises(TableNotFound, match="did not exist yet"):
            phalanx.open(table.uri, version=dt.date(2020, 1, 1))

    def test_a_tag_comes_before_a_time(self, table):
        table.tag("2020-01-01", version=2)
        assert phalanx.open(table.uri, version="2020-01-01").version == 2

    @pytest.mark.parametrize("version", [True, 1.5, [1]])
    def test_a_version_of_another_kind(self, table, version):
        with pytest.raises(InvalidInput, match="whole number, a tag or a datetime"):
            phalanx.open(table.uri, version=version)

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
