import pyarrow as pa
import pytest

import phalanx

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.int64())])


@pytest.fixture
def table(root):
    table = phalanx.create(root, SCHEMA, ["p"])
    return table.append([{"id": id, "p": id % 3} for id in range(6)])


def leaf(table, p):
    (planned,) = table.scan(where=f"p = {p}").plan().leaves
    return planned.row.object_id


def test_with_all_of_its_rows(table, root):
    other = phalanx.open(root)
    with table.transaction() as tx:
        tx.drop_partitions([leaf(table, 1)])
        other.append([{"id": 7, "p": 1}, {"id": 8, "p": 2}])
    assert phalanx.open(root).scan().to_arrow()["id"].sort().to_pylist() == [0, 2, 3, 5, 8]
    assert phalanx.check(root).ok


def test_rows_that_were_moved_meanwhile(table, root):
    other = phalanx.open(root)
    tx = table.transaction()
    tx.drop_partitions([leaf(table, 1)])
    other.evolve_partitioning(["bucket(2, id)"])
    other.rewrite()
    with pytest.raises(phalanx.ConflictError, match="moved or dropped"):
        tx.commit()
    assert phalanx.open(root).count() == 6
