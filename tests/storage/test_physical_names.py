"""Names of columns in files."""

import pyarrow as pa
import pytest

from phalanx.storage.physical_names import physical_names, physical_schema


@pytest.mark.parametrize(
    ("names", "stored"),
    [
        (["a", "b c", "é"], ["a", "b c", "é"]),
        (["a.b", "x`y", "."], ["a_b", "x_y", "_"]),
        (["a.b", "a_b"], ["a_b_2", "a_b"]),
        (["a.b", "a`b", "a_b_2", "a..b"], ["a_b", "a_b_3", "a_b_2", "a__b"]),
        (["`rowid", "_rowid_2"], ["_rowid_3", "_rowid_2"]),
    ],
)
def test_names(names, stored):
    assert list(physical_names(tuple(names)).values()) == stored


def test_a_schema():
    fields = [pa.field("a.b", pa.int64(), False, {"k": "v"}), pa.field("c", pa.int64())]
    schema = pa.schema(fields, metadata={"m": "n"})
    physical = physical_schema(schema, ["a.b", "a_b", "c"])
    wanted = pa.schema([fields[0].with_name("a_b_2"), fields[1]], metadata={"m": "n"})
    assert physical.equals(wanted, check_metadata=True)
    plain = schema.remove(0)
    assert physical_schema(plain, ["a.b", "c"]) is plain
