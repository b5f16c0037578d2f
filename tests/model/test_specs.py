"""Specs: what a user writes, the specification's JSON, and ids that keep their meaning."""

import json
from typing import Any

import pyarrow as pa
import pytest

from phalanx.errors import InvalidInput
from phalanx.model.schema import TableSchema
from phalanx.model.specs import (
    CustomField,
    PartitionField,
    PartitionSpec,
    build_spec,
    entries_of,
    expr,
    field_names,
    lone_units,
)
from phalanx.model.transforms import (
    Bucket,
    Day,
    Expression,
    Hour,
    Identity,
    Month,
    MultiBucket,
    Truncate,
    Year,
)

SCHEMA = TableSchema.assign(
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("ts", pa.timestamp("us", "UTC")),
            pa.field("country", pa.string()),
            pa.field("date", pa.date32()),
            pa.field("payload", pa.struct([("kind", pa.string()), ("size", pa.int32())])),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("raw", pa.binary()),
            pa.field("odd name", pa.string()),
            pa.field("ts_year", pa.int32()),
        ]
    )
)


def ids(spec: PartitionSpec) -> list[str]:
    return [field.field_id for field in spec.fields]


@pytest.mark.parametrize(
    ("entry", "fields"),
    [
        ("country", [("country", "country", Identity())]),
        ("identity(country)", [("country", "country", Identity())]),
        ("COUNTRY", [("country", "country", Identity())]),
        ("date", [("date", "date", Identity())]),
        ("odd name", [("odd_name", "odd name", Identity())]),
        ('"odd name"', [("odd_name", "odd name", Identity())]),
        ("payload.kind", [("payload_kind", "payload.kind", Identity())]),
        ("year(ts)", [("ts_year", "ts", Year())]),
        ("Month(ts)", [("ts_month", "ts", Month())]),
        ("day(date)", [("date_day", "date", Day())]),
        ("hour(ts)", [("ts_hour", "ts", Hour())]),
        ("years(ts)", [("ts_year", "ts", Year())]),
        ("months(ts)", [("ts_year", "ts", Year()), ("ts_month", "ts", Month())]),
        (
            "days(ts)",
            [("ts_year", "ts", Year()), ("ts_month", "ts", Month()), ("ts_day", "ts", Day())],
        ),
        (
            "hours(ts)",
            [
                ("ts_year", "ts", Year()),
                ("ts_month", "ts", Month()),
                ("ts_day", "ts", Day()),
                ("ts_hour", "ts", Hour()),
            ],
        ),
        ("bucket(16, id)", [("id_bucket", "id", Bucket(16))]),
        ("bucket(16, raw)", [("raw_bucket", "raw", Bucket(16))]),
        ("truncate(3, country)", [("country_truncate", "country", Truncate(3))]),
        ("truncate(10, payload.size)", [("payload_size_truncate", "payload.size", Truncate(10))]),
    ],
)
def test_entries(entry, fields):
    spec = build_spec(1, [entry], SCHEMA)
    spelled = [
        (f.field_id, ".".join(SCHEMA.columns[f.source_ids[0]].path), f.transform)
        for f in spec.fields
    ]
    assert spelled == fields


def test_several_sources():
    spec = build_spec(
        1,
        [
            "multi_bucket(8, id, country)",
            expr("concat(col0, '-', col1)", ["country", "id"], "both"),
        ],
        SCHEMA,
    )
    bucket, both = spec.fields
    assert (bucket.field_id, bucket.source_ids, bucket.transform) == (
        "id_country_bucket",
        (0, 2),
        MultiBucket(8),
    )
    assert (both.field_id, both.source_ids, both.result_type) == ("both", (2, 0), pa.string())


def test_one_entry_may_stand_alone():
    assert build_spec(1, "country", SCHEMA) == build_spec(1, ["country"], SCHEMA)
    assert build_spec(1, [], SCHEMA).fields == ()


def test_result_types():
    spec = build_spec(1, ["ts", "year(ts)", "truncate(2, country)", "bucket(4, id)"], SCHEMA)
    assert [field.result_type for field in spec.fields] == [
        pa.timestamp("us", "UTC"),
        pa.int32(),
        pa.string(),
        pa.int32(),
    ]
    assert [field.column_name for field in spec.fields][:2] == [
        "partition_field_ts",
        "partition_field_ts_year",
    ]


def test_names_that_are_taken_get_a_number():
    spec = build_spec(1, ["ts_year", "year(ts)", "bucket(4, id)", "bucket(8, id)"], SCHEMA)
    assert ids(spec) == ["ts_year", "ts_year_2", "id_bucket", "id_bucket_2"]


FORMS = "write a column, year(c), month(c), day(c), hour(c), years(c),"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("nope", "unknown column 'nope': the table has id, ts, country,"),
        ("year(nope)", "unknown column 'nope': the table has id, ts, country,"),
        ("payload.nope", "unknown column 'payload.nope': the table has id, ts,"),
        ("tags", "cannot partition by tags: identity cannot partition by a column of type list<"),
        (
            "payload",
            "cannot partition by payload: identity cannot partition by a column of type st",
        ),
        (
            "raw",
            "cannot partition by raw: identity cannot partition by a column of type binary: bu",
        ),
        (
            "truncate(3, raw)",
            "cannot partition by truncate(3, raw): truncate needs a string or num",
        ),
        (
            "year(country)",
            "cannot partition by year(country): year needs a date or timestamp colum",
        ),
        (
            "days(country)",
            "cannot partition by days(country): day needs a date or timestamp column, not str",
        ),
        (
            "hour(date)",
            "cannot partition by hour(date): hour needs a timestamp column, not date32[",
        ),
        (
            "bucket(4, tags)",
            "cannot partition by bucket(4, tags): Values of type list<item: string>",
        ),
        ("bucket(0, id)", "num_buckets must be a whole number from 1 to 2147483647, not 0"),
        ("bucket(-4, id)", "num_buckets must be a whole number from 1 to 2147483647, not -4"),
        ("bucket(1.5, id)", "num_buckets must be a whole number from 1 to 2147483647, not 1.5"),
        ("bucket('x', id)", "num_buckets must be a whole number from 1 to 2147483647, not 'x'"),
        ("truncate(0, country)", "width must be a whole number from 1 to 2147483647, not 0"),
        ("multi_bucket(0, id, ts)", "num_buckets must be a whole number from 1 to 2147483647, not"),
        ("minute(ts)", f"cannot partition by 'minute(ts)': {FORMS}"),
        ("bucket(id)", f"cannot partition by 'bucket(id)': {FORMS}"),
        ("multi_bucket(4)", f"cannot partition by 'multi_bucket(4)': {FORMS}"),
        ("year(ts) = 2025", f"cannot partition by 'year(ts) = 2025': {FORMS}"),
        ("year(ts", f"cannot partition by 'year(ts': {FORMS}"),
        (5, "cannot partition by 5: write a string or phalanx.expr(…)"),
        (expr("now()", ["ts"], "n"), "cannot partition by now(): the expression 'now()' cannot be"),
        (expr("upper(col0)", [], "n"), "the expression 'upper(col0)' needs at least one column"),
        (expr("upper(col0)", ["nope"], "n"), "unknown column 'nope': the table has id, ts,"),
        (
            expr("upper(col0)", ["country"], "a b"),
            "a partition field cannot be called 'a b': use letters, digits, _ -",
        ),
        (
            expr("upper(col0)", ["country"], "a$b"),
            "a partition field cannot be called 'a$b': use letters, digits, _ -",
        ),
    ],
)
def test_refused_entries(entry, message):
    with pytest.raises(InvalidInput) as error:
        build_spec(1, [entry], SCHEMA)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            ["country", "identity(country)"],
            "cannot partition by country twice: the partition field 'country' is there already",
        ),
        (
            ["days(ts)", "month(ts)"],
            "cannot partition by month(ts) twice: the partition field 'ts_month' is there already",
        ),
        (
            [expr("upper(col0)", ["country"], "a"), expr("upper(col0)", ["country"], "b")],
            "cannot partition by upper(country) twice: the partition field 'a' is there already",
        ),
        (
            [expr("upper(col0)", ["country"], "a"), expr("lower(col0)", ["country"], "a")],
            "the partition field id 'a' already means upper(…): an id is never reused, choose",
        ),
        (
            ["country", expr("upper(col0)", ["country"], "country")],
            "the partition field id 'country' already means identity(…): an id is never reused",
        ),
    ],
)
def test_refused_together(entries, message):
    with pytest.raises(InvalidInput) as error:
        build_spec(1, entries, SCHEMA)
    assert str(error.value).startswith(message)


def test_expr_takes_a_list():
    assert expr("upper(col0)", ["a"], name="up") == CustomField("upper(col0)", ("a",), "up")
    with pytest.raises(InvalidInput, match=r"expr takes a list of columns, such as \['ts'\]"):
        expr("upper(col0)", "a", name="up")


# Evolution --------------------------------------------------------------------------------------


def test_the_same_field_keeps_its_id():
    week = "date_trunc('week', col0)"
    first = build_spec(1, ["days(ts)", "bucket(16, id)", expr(week, ["ts"], "week")], SCHEMA)
    second = build_spec(
        2, [expr(week, ["ts"], "another_name"), "bucket(16, id)", "year(ts)"], SCHEMA, [first]
    )
    assert ids(second) == ["week", "id_bucket", "ts_year"]
    assert second.id == 2


def test_another_field_gets_another_id():
    first = build_spec(1, ["bucket(16, id)", "country"], SCHEMA)
    second = build_spec(2, ["bucket(32, id)", "truncate(2, country)"], SCHEMA, [first])
    assert ids(second) == ["id_bucket_2", "country_truncate"]
    third = build_spec(3, ["bucket(64, id)", "bucket(16, id)"], SCHEMA, [first, second])
    assert ids(third) == ["id_bucket_3", "id_bucket"]


def test_an_id_is_never_reused():
    first = build_spec(1, [expr("upper(col0)", ["country"], "region")], SCHEMA)
    with pytest.raises(InvalidInput) as error:
        build_spec(2, [expr("lower(col0)", ["country"], "region")], SCHEMA, [first])
    assert str(error.value) == (
        "the partition field id 'region' already means upper(…): "
        "an id is never reused, choose another name"
    )


def test_ids_follow_the_column_not_its_name():
    first = build_spec(1, ["country", "year(ts)"], SCHEMA)
    fields = [f.with_name("land") if f.name == "country" else f for f in SCHEMA.tagged]
    renamed = TableSchema(pa.schema(fields))
    second = build_spec(2, ["land", "year(ts)"], renamed, [first])
    assert ids(second) == ["country", "ts_year"]
    assert second.spell(renamed) == ["land", "year(ts)"]


def test_what_people_call_fields():
    """By the column as it is named now, and without the number of an id that was taken."""
    first = build_spec(1, ["country", "bucket(16, id)", "year(ts)"], SCHEMA)
    replaced = TableSchema.assign(SCHEMA.arrow, max(SCHEMA.field_ids) + 1)
    second = build_spec(
        2, ["country", "year(ts)", expr("upper(col0)", ["country"], "region_7")], replaced, [first]
    )
    assert ids(second) == ["country_2", "ts_year_2", "region_7"]
    assert list(field_names(second.fields, replaced).values()) == ["country", "ts_year", "region_7"]
    fields = [f.with_name("land") if f.name == "country" else f for f in SCHEMA.tagged]
    renamed = TableSchema(pa.schema(fields))
    assert field_names(first.fields, renamed)["country"] == "land"
    # A dropped column has no name any more.
    assert field_names(first.fields, replaced)["country"] == "country"
    # Two buckets of one column: which is which, only the ids say.
    both = build_spec(3, ["bucket(16, id)", "bucket(32, id)", "country"], SCHEMA, [first])
    assert list(field_names(both.fields, renamed).values()) == ["id_bucket", "id_bucket_2", "land"]


def test_a_widened_source_keeps_the_id_and_widens_the_type():
    narrow = TableSchema.assign(pa.schema([("a", pa.int32())]))
    wide = TableSchema.assign(pa.schema([("a", pa.int64())]))
    first = build_spec(1, ["truncate(10, a)"], narrow)
    (field,) = build_spec(2, ["truncate(10, a)"], wide, [first]).fields
    assert (field.field_id, field.result_type) == ("a_truncate", pa.int64())


# JSON -------------------------------------------------------------------------------------------

EVERY_KIND = [
    "country",
    "hours(ts)",
    "bucket(16, id)",
    "multi_bucket(8, id, country)",
    "truncate(3, country)",
    expr("date_trunc('week', col0)", ["ts"], "week"),
]


def test_json_both_ways():
    spec = build_spec(3, EVERY_KIND, SCHEMA)
    assert PartitionSpec.loads(spec.dumps()) == spec
    assert PartitionSpec.from_json(spec.to_json()) == spec
    assert " " not in spec.dumps().replace("date_trunc('week', col0)", "")
    assert spec.namespace == "v3"


def test_json_has_what_the_specification_asks():
    spec = build_spec(1, ["bucket(16, id)", expr("upper(col0)", ["country"], "up")], SCHEMA)
    assert spec.to_json() == {
        "id": 1,
        "fields": [
            {
                "field_id": "id_bucket",
                "source_ids": [0],
                "transform": {"type": "bucket", "num_buckets": 16},
                "result_type": {"type": "int32"},
            },
            {
                "field_id": "up",
                "source_ids": [2],
                "expression": "upper(col0)",
                "result_type": {"type": "utf8"},
            },
        ],
    }


GOOD: dict[str, Any] = {
    "field_id": "a",
    "source_ids": [1],
    "transform": {"type": "year"},
    "result_type": {"type": "int32"},
}


def test_unknown_members_are_passed_over():
    assert PartitionField.from_json(GOOD | {"comment": "x", "expression": None}).field_id == "a"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"expression": "col0"},
            "partition field 'a' must have exactly one of transform and expression",
        ),
        (
            {"transform": None},
            "partition field 'a' must have exactly one of transform and expression",
        ),
        ({"transform": "year"}, "'transform' of partition field 'a' cannot be 'year'"),
        ({"transform": {"type": "era"}}, "unknown partition transform 'era'"),
        ({"transform": None, "expression": 5}, "'expression' of partition field 'a' cannot be 5"),
        ({"field_id": 5}, "'field_id' of a partition field cannot be 5"),
        ({"source_ids": 1}, "'source_ids' of partition field 'a' cannot be 1"),
        ({"source_ids": []}, "partition field 'a' must have at least one source, each a whole n"),
        ({"source_ids": ["1"]}, "partition field 'a' must have at least one source, each a whole"),
        ({"result_type": "int32"}, "'result_type' of partition field 'a' cannot be 'int32'"),
    ],
)
def test_broken_fields(change, message):
    with pytest.raises(InvalidInput) as error:
        PartitionField.from_json(GOOD | change)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("member", ["field_id", "source_ids", "result_type"])
def test_missing_members(member):
    value = {key: item for key, item in GOOD.items() if key != member}
    with pytest.raises(InvalidInput, match=f"partition field.* needs '{member}'"):
        PartitionField.from_json(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a partition spec is not JSON: "),
        ("[]", "a partition spec needs 'id': []"),
        ('{"id": 1}', "a partition spec needs 'fields': {'id': 1}"),
        ('{"id": "1", "fields": []}', "'id' of a partition spec cannot be '1'"),
        ('{"id": true, "fields": []}', "'id' of a partition spec cannot be True"),
        ('{"id": 1, "fields": {}}', "'fields' of a partition spec cannot be {}"),
        ('{"id": 1, "fields": [5]}', "a partition field needs 'field_id': 5"),
    ],
)
def test_broken_specs(text, message):
    with pytest.raises(InvalidInput) as error:
        PartitionSpec.loads(text)
    assert str(error.value).startswith(message)


def test_an_id_may_not_appear_twice():
    with pytest.raises(InvalidInput, match="the partition field id 'a' appears twice"):
        PartitionSpec.loads(json.dumps({"id": 1, "fields": [GOOD, GOOD]}))


# Applying and showing ---------------------------------------------------------------------------


def rows(**columns: pa.Array) -> pa.Table:
    return pa.table(columns)


def test_apply():
    schema = TableSchema.assign(
        pa.schema([("a", pa.int32()), ("s", pa.struct([("b", pa.string())]))])
    )
    table = pa.table(
        {
            "a": pa.chunked_array([pa.array([5, None], pa.int32()), pa.array([-15], pa.int32())]),
            "s": pa.array([{"b": "xy"}, None, {"b": None}], pa.struct([("b", pa.string())])),
        }
    )
    spec = build_spec(
        1, ["truncate(10, a)", "truncate(1, s.b)", expr("col0 % 4", ["a"], "rest")], schema
    )
    arrays = [field.apply(table, schema) for field in spec.fields]
    assert [array.to_pylist() for array in arrays] == [
        [0, None, -10],
        ["x", None, None],
        [1, None, -3],
    ]
    assert [array.type for array in arrays] == [field.result_type for field in spec.fields]


def test_apply_gives_the_declared_type():
    schema = TableSchema.assign(pa.schema([("a", pa.int32())]))
    field = PartitionField("a", (0,), Expression("col0 % 4"), pa.int16())
    assert field.apply(rows(a=pa.array([7], pa.int32())), schema).type == pa.int16()


def test_a_dropped_source_counts_as_null():
    schema = TableSchema.assign(pa.schema([("a", pa.int32()), ("b", pa.string())]))
    spec = build_spec(
        1,
        [
            "a",
            "bucket(4, a)",
            "multi_bucket(50, a, b)",
            expr("coalesce(col0, 7)", ["a"], "filled"),
        ],
        schema,
    )
    left = TableSchema(pa.schema([schema.tagged.field("b")]))
    table = rows(b=pa.array(["x", None]))
    identity, bucket, several, filled = (
        field.apply(table, left).to_pylist() for field in spec.fields
    )
    assert identity == bucket == [None, None]
    assert several == [Bucket(50).apply([pa.array(["x"])])[0].as_py(), None]
    assert filled == [7, 7]
    assert spec.spell(left)[:3] == [
        "(dropped column 0)",
        "bucket(4, (dropped column 0))",
        "multi_bucket(50, (dropped column 0), b)",
    ]


def test_spell_is_what_one_writes():
    spec = build_spec(1, EVERY_KIND, SCHEMA)
    assert spec.spell(SCHEMA) == [
        "country",
        "year(ts)",
        "month(ts)",
        "day(ts)",
        "hour(ts)",
        "bucket(16, id)",
        "multi_bucket(8, id, country)",
        "truncate(3, country)",
        "date_trunc('week', ts)",
    ]
    assert str(build_spec(2, ["country", "bucket(4, id)"], SCHEMA)) == (
        "v2(country: identity(…), id_bucket: bucket(4, …))"
    )


class TestLoneUnits:
    @pytest.mark.parametrize(
        ("entries", "expected"),
        [
            (["day(ts)"], ["day"]),
            (["month(ts)", "day(ts)"], ["month"]),
            (["year(ts)", "day(ts)"], ["day"]),
            (["hour(ts)"], ["hour"]),
            (["year(ts)"], []),
            (["year(ts)", "month(ts)"], []),
            (["days(ts)"], []),
            (["hours(ts)", "day(other)"], ["day"]),
        ],
        ids=str,
    )
    def test_which(self, entries, expected):
        columns = [("ts", pa.timestamp("us")), ("other", pa.timestamp("us"))]
        spec = build_spec(1, entries, TableSchema.assign(pa.schema(columns)))
        assert [unit.singular for _, unit in lone_units(spec)] == expected


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", []),
        ("a", ["a"]),
        ("days(ts), country", ["days(ts)", "country"]),
        (" bucket(4, id) ,multi_bucket(2, a, b), ", ["bucket(4, id)", "multi_bucket(2, a, b)"]),
        ("`a,(b`, c", ["`a,(b`", "c"]),
        ("expr('w', 'f(col0), \")\"', ts), c", ["expr('w', 'f(col0), \")\"', ts)", "c"]),
    ],
)
def test_entries_in_a_text(text, entries):
    assert entries_of(text) == entries
