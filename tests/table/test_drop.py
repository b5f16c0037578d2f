"""Dropping a table."""

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.errors import InvalidInput, TableNotFound


@pytest.fixture
def table(tmp_path):
    return phalanx.create(
        tmp_path / "t", [{"id": n, "kind": "ab"[n % 2]} for n in range(4)], ["kind"]
    )


def test_everything_goes(table, tmp_path):
    table.append([{"id": 9, "kind": "c"}])
    table.delete("kind = 'a'")
    table.drop()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TableNotFound):
        phalanx.open(tmp_path / "t")
    with pytest.raises(TableNotFound):
        table.refresh()
    with pytest.raises(TableNotFound, match="any more"):
        table.drop()


def test_a_new_table_in_its_place(table, tmp_path):
    table.drop()
    assert len(phalanx.create(tmp_path / "t", [{"x": 1}])) == 1


def test_something_else_in_the_folder(table, tmp_path):
    (tmp_path / "t" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInput, match=r"holds more than the table: notes\.txt"):
        table.drop()
    assert len(phalanx.open(tmp_path / "t")) == 4
    assert (tmp_path / "t" / "notes.txt").read_text() == "mine"


class TestTrees:
    @pytest.fixture
    def table(self, tmp_path):
        rows = [{"id": n, "kind": "ab"[n % 2]} for n in range(4)]
        return phalanx.create(tmp_path / "t", rows, ["kind"], layout="hive")

    def test_everything_goes(self, table, tmp_path):
        table.delete("kind = 'a'")
        table.drop()
        assert list(tmp_path.iterdir()) == []

    def test_a_dataset_of_somebody_else(self, table, tmp_path):
        lance.write_dataset(pa.table({"id": [7]}), tmp_path / "t" / "kind=z.lance")
        with pytest.raises(InvalidInput, match=r"holds more than the table: kind=z\.lance"):
            table.drop()
        assert len(phalanx.open(tmp_path / "t")) == 4
