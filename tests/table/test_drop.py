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


READS = {
    "scan": lambda table: table.scan().to_arrow(),
    "count": lambda table: table.count("id > 1"),
    "sample": lambda table: table.scan().sample(3),
    "lookup": lambda table: table.scan(where="id = 7").to_arrow(),
    "indexes": lambda table: table.indexes(),
    "vector": lambda table: table.search([0.0, 0.0], k=3),
    "one leaf": lambda table: table.search([0.0, 0.0], k=3, where="kind = 'a'"),
    "text": lambda table: table.search(text="fox", k=3),
    "refresh_indexes": lambda table: table.refresh_indexes(),
}


def test_a_handle_of_a_table_that_somebody_has_dropped(tmp_path):
    vectors = pa.list_(pa.float32(), 2)
    columns = {"id": pa.int64(), "kind": pa.string(), "body": pa.string(), "v": vectors}
    schema = pa.schema(list(columns.items()))
    table = phalanx.create(tmp_path / "t", schema, ["kind"])
    table.append([{"id": n, "kind": "ab"[n % 2], "body": "fox", "v": [n, 0]} for n in range(20)])
    table.create_index("id", "BTREE", min_rows=1)
    table.create_index("body", "INVERTED")
    handles = {name: phalanx.open(tmp_path / "t") for name in READS}
    phalanx.open(tmp_path / "t").drop()
    for name, read in READS.items():
        with pytest.raises(TableNotFound, match=r"was dropped since|there is no table at"):
            read(handles[name])


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
