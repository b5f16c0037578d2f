"""The specification's own examples, as data, against the model."""

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa
import pytest

from phalanx.model import hashing
from phalanx.model.dialect import to_sql
from phalanx.model.expressions import evaluate
from phalanx.model.filters import bind
from phalanx.model.jsonarrow import type_from_json
from phalanx.model.parser import parse
from phalanx.model.predicates import Column
from phalanx.model.pruning import column_of, prune
from phalanx.model.schema import TableSchema
from phalanx.model.specs import PartitionSpec
from phalanx.model.transforms import Bucket, Expression, from_json

DATA = Path(__file__).parent / "data"
INT_MIN = -(2**31)


def load(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


# Appendix A: metadata ----------------------------------------------------------------------------

APPENDIX_A = load("appendix_a")
SPECS = {name: value for name, value in APPENDIX_A.items() if name.startswith("partition_spec_v")}


@pytest.mark.parametrize("name", SPECS)
def test_specs_round_trip(name):
    spec = PartitionSpec.loads(json.dumps(SPECS[name]))
    assert json.loads(spec.dumps()) == SPECS[name]
    assert f"partition_spec_{spec.namespace}" == name


def test_schema_round_trips():
    schema = TableSchema.from_json(APPENDIX_A["schema"])
    assert schema.to_json() == APPENDIX_A["schema"]
    assert schema.arrow == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("event_date", pa.date32()),
            ("country", pa.string()),
        ]
    )
    assert schema.field_ids == [0, 1, 2]


def test_manifest_columns():
    fields = {
        field.column_name: field.result_type
        for value in SPECS.values()
        for field in PartitionSpec.from_json(value).fields
    }
    assert fields == {
        "partition_field_event_date": pa.date32(),
        "partition_field_event_year": pa.int32(),
        "partition_field_country": pa.string(),
    }


def test_appendix_e_is_the_spec_as_one_line():
    text = load("appendix_e")["properties"]["partition_spec"]
    assert PartitionSpec.from_json(SPECS["partition_spec_v1"]).dumps() == text


# Appendix D: pruning -----------------------------------------------------------------------------

APPENDIX_D = load("appendix_d")


@pytest.mark.parametrize("table", APPENDIX_D["tables"], ids=str)
def test_pruning(table):
    schema = TableSchema.from_json(APPENDIX_A["schema"])
    spec = PartitionSpec.from_json(SPECS[f"partition_spec_v{table['spec']}"])
    columns = {
        field.field_id: column_of(pa.array([value]).cast(field.result_type))
        for field, value in zip(spec.fields, table["values"], strict=True)
    }
    predicate = bind(parse(APPENDIX_D["query"]), schema.column)
    verdict = prune(predicate, spec, schema, columns, 1)
    assert verdict.maybe.tolist() == [table["read"]]
    if table["read"]:
        assert to_sql(verdict.residuals[verdict.residual[0]]) == table["left"]


# The table of transforms --------------------------------------------------------------------------

MOMENTS = [
    dt.datetime(2025, 12, 31, 23, 59),
    dt.datetime(1969, 12, 31, 1),
    dt.datetime(2024, 2, 29),
]
SAMPLES = {
    "int32": pa.array([0, 5, -5, 19, -19, 123, None, -(2**31), 2**31 - 1], pa.int32()),
    "int64": pa.array([0, 5, -5, 19, -19, 123, None, -(2**40), 2**40], pa.int64()),
    "utf8": pa.array(["", "a", "abcdef", "äöüß", "日本語日本", None, "it's", "😀😀😀😀", "a\0b"]),
    "date32": pa.array([*(m.date() for m in MOMENTS), None] * 2, pa.date32()),
    "timestamp": pa.array([*MOMENTS, None] * 2, pa.timestamp("us")),
    "float64": pa.array([1.5, None, -2.25, 0.0]),
    "bool": pa.array([True, None, False]),
    "decimal": pa.array([199, -199, 0, None, 1])
    .cast(pa.decimal128(19, 0))
    .cast(pa.decimal128(21, 2)),
}
ROWS = [
    pytest.param(row, source, id=f"{row['transform']['type']}-{source}")
    for row in load("transforms")
    if "several" not in row
    for source in row["sources"]
]


def murmur3_functions() -> datafusion.SessionContext:
    """DataFusion with the two functions that the specification adds to it."""
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    kinds = [array.type for array in SAMPLES.values()]
    for type in kinds:
        name = f"murmur3_{hash_name(type)}"
        context.register_udf(
            datafusion.udf(hashing.murmur3, [type], pa.int32(), "immutable", name=name)
        )
    context.register_udf(
        datafusion.udf(
            lambda a, b: hashing.murmur3_multi([a, b]),
            [pa.int32(), pa.string()],
            pa.int32(),
            "immutable",
            name="murmur3_multi",
        )
    )
    return context


def hash_name(type: pa.DataType) -> str:
    return re.sub(r"\W", "_", str(type))


def derived(expression: str, arrays: list[pa.Array]) -> pa.Array:
    """What DataFusion makes of a derived expression. A function has one type of argument there."""
    expression = expression.replace("murmur3(", f"murmur3_{hash_name(arrays[0].type)}(")
    # The hash is widened, because int32 has no absolute value of its minimum.
    expression = re.sub(r"abs\((murmur3\w*\([^)]*\))\)", r"abs(cast(\1 as bigint))", expression)
    batch = pa.RecordBatch.from_arrays(arrays, [f"col{i}" for i in range(len(arrays))])
    frame = murmur3_functions().create_dataframe([[batch]])
    (result,) = frame.select(frame.parse_sql_expr(expression).alias("r")).collect()
    return result.column(0)


@pytest.mark.parametrize(("row", "source"), ROWS)
def test_transforms(row, source):
    transform, array = from_json(row["transform"]), SAMPLES[source]
    assert transform.to_json() == row["transform"]
    result = array.type if row["result"] == "source" else type_from_json({"type": row["result"]})
    assert transform.result_type([array.type]) == result
    applied = transform.apply([array])
    assert applied.type == result
    assert applied.to_pylist() == derived(row["expression"], [array]).cast(result).to_pylist()


@pytest.mark.parametrize(("row", "source"), ROWS)
def test_terms_are_the_derived_expressions(row, source):
    """A filter on the derived expression is recognized, and means what the transform does."""
    transform, array = from_json(row["transform"]), SAMPLES[source]
    term = transform.term([Column(("c",), 0, array.type)])
    if "murmur3" in row["expression"]:
        assert term is None
        return
    written = Expression(row["expression"]).term([Column(("c",), 0, array.type)])
    assert term == written
    values = evaluate(term, {0: array}, len(array))
    assert values.to_pylist() == transform.apply([array]).to_pylist()


def test_multi_bucket():
    (row,) = (row for row in load("transforms") if "several" in row)
    transform = from_json(row["transform"])
    arrays = [SAMPLES[source] for source in row["sources"]]
    assert transform.result_type([array.type for array in arrays]) == pa.int32()
    applied = transform.apply(arrays)
    assert applied.to_pylist() == derived(row["expression"], arrays).to_pylist()
    both_null = [None in pair for pair in zip(*(a.to_pylist() for a in arrays), strict=True)]
    assert sum(both_null) == 2
    assert applied.null_count == 0  # NULL only where every source is.


# Hashes -------------------------------------------------------------------------------------------


def test_hashes_are_known():
    for case in load("hashes"):
        type = type_from_json(case["type"])
        if "hex" in case:
            array = pa.array([bytes.fromhex(case["hex"])], type)
        elif pa.types.is_time(type):
            array = pa.array([dt.time.fromisoformat(case["value"])], type)
        else:
            array = pa.array([case["value"]]).cast(type)
        assert hashing.murmur3(array).to_pylist() == [case["hash"]], case


def test_absolute_value_of_the_smallest_hash():
    hashes = pa.array([INT_MIN, -1, 0, 2**31 - 1, None], pa.int32())
    assert hashing.bucket(hashes, 16).to_pylist() == [0, 1, 0, 15, None]
    assert hashing.bucket(hashes, 10).to_pylist() == [8, 1, 0, 7, None]


def test_a_value_whose_hash_is_the_smallest():
    """Found by trying: its bucket must not fail, nor be negative."""
    value = smallest_hash()
    array = pa.array([value], pa.int64())
    assert hashing.murmur3(array).to_pylist() == [INT_MIN]
    assert Bucket(7).apply([array]).to_pylist() == [2**31 % 7]


def smallest_hash() -> int:
    """The long whose 8 bytes murmur3 turns into -2147483648, by running it backward."""
    mask = 0xFFFFFFFF

    def rotate(x: int, by: int) -> int:
        return ((x << by) | (x >> (32 - by))) & mask

    def unshift(x: int, by: int) -> int:
        value = x
        for _ in range(32 // by + 1):
            value = x ^ (value >> by)
        return value & mask

    state = 0x80000000
    state = unshift(state, 16) * pow(0xC2B2AE35, -1, 2**32) & mask
    state = unshift(state, 13) * pow(0x85EBCA6B, -1, 2**32) & mask
    state = unshift(state, 16) ^ 8  # The length is mixed in first.
    # The first word may be anything: take 0, whose step is known, and solve for the second.
    first = (rotate(0, 13) * 5 + 0xE6546B64) & mask
    before = rotate(((state - 0xE6546B64) * pow(5, -1, 2**32)) & mask, 19)
    scrambled = before ^ first
    second = rotate(scrambled * pow(0x1B873593, -1, 2**32) & mask, 17)
    words = [0, second * pow(0xCC9E2D51, -1, 2**32) & mask]
    return int(np.array(words, np.uint32).view(np.int64)[0])


# Appendix F: compatible buckets ------------------------------------------------------------------


def test_buckets_divide():
    example = load("appendix_f")
    numbers = pa.array(range(1_000))
    finer = Bucket(example["finer"]).apply([numbers]).to_pylist()
    coarser = Bucket(example["coarser"]).apply([numbers]).to_pylist()
    matches = {
        str(i): sorted({f for f, c in zip(finer, coarser, strict=True) if c == i}) for i in range(8)
    }
    assert matches == example["matches"]
