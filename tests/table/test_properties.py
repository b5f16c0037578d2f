"""Properties of a table in Python: checked when they are set, and read as they were stored."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput
from phalanx.table.create import replaced_head
from phalanx.transaction.commit import Transaction

SCHEMA = pa.schema([("id", pa.int64())])
BAD = [
    ({"isolation": "nonsense"}, "the property isolation is 'serializable' or 'snapshot'"),
    ({"write.distribution": "some"}, "the property write.distribution is 'hash' or 'none'"),
    ({"write.target_file_bytes": "many"}, "the property write.target_file_bytes is a whole"),
    ({"write.files": "1"}, "there is no property write.files"),
    ({"transaction_id": "x"}, "transaction_id is not a property of a table"),
]


@dataclass
class Unchecked:
    """Sets properties as an earlier version of Phalanx has set them."""

    properties: dict[str, str]
    name = "properties"

    def run(self, view):
        view.change_head(properties={**view.head.properties, **self.properties})


def set_unchecked(table, **properties):
    with ThreadPoolExecutor(1) as pool:
        transaction = Transaction(table._snapshot, pool, started=time.time())
        transaction.run(Unchecked(properties))
        transaction.commit()
    return phalanx.open(table.uri)


@pytest.mark.parametrize(("values", "message"), BAD)
class TestRefused:
    def test_at_create(self, root, values, message):
        with pytest.raises(InvalidInput, match=message):
            phalanx.create(root, SCHEMA, properties=values)
        assert not root.exists()

    def test_at_replace(self, root, values, message):
        head = phalanx.create(root, SCHEMA)._snapshot.head
        with pytest.raises(InvalidInput, match=message):
            replaced_head(head, SCHEMA, [], values)

    def test_later(self, root, values, message):
        table = phalanx.create(root, SCHEMA)
        with pytest.raises(InvalidInput, match=message):
            table.set_properties(values)
        assert phalanx.open(root).version == 1


@pytest.mark.parametrize("value", ["weak", None])
def test_transactions_cannot_be_changed(root, value):
    table = phalanx.create(root, SCHEMA)
    with pytest.raises(InvalidInput, match="the property 'transactions' cannot be changed"):
        table.set_properties({"transactions": value})
    with pytest.raises(InvalidInput, match="give it by itself"):
        phalanx.create(root / "other", SCHEMA, properties={"transactions": "weak"})


def test_a_table_with_bad_values_is_read_and_written(root):
    table = phalanx.create(root, SCHEMA)
    table = set_unchecked(
        table, anchor="often", isolation="none", transaction_id="x", **{"write.x": "y"}
    )
    table.append([{"id": 1}]).append([{"id": 2}])
    table.optimize()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    table.set_properties({"isolation": None, "transaction_id": None, "write.x": None})
    assert phalanx.open(root).properties == {"anchor": "often"}
