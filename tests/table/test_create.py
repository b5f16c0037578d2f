import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput, TableExists

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("ts", pa.timestamp("us", "UTC")),
        ("country", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("attributes", pa.map_(pa.string(), pa.string())),
        ("raw", pa.binary()),
        ("score", pa.float64()),
    ]
)


def create(root, *partition_by, schema=SCHEMA):
    return phalanx.create(root, schema, partition_by)


class TestANewTable:
    def test_it_is_empty(self, root):
        table = create(root, "country")
        assert table.version == 1
        assert table.count() == 0
        assert table.scan().to_arrow().equals(SCHEMA.empty_table())
        assert table.partitions().num_rows == 0

    def test_the_schema_is_as_given(self, root):
        schema = pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False, metadata={"unit": "pieces"}),
                ("tags", pa.list_(pa.field("tag", pa.string(), nullable=False))),
            ],
            metadata={"owner": "ann"},
        )
        create(root, "id", schema=schema)
        assert phalanx.open(root).schema.equals(schema, check_metadata=True)

    def test_where_it_is(self, root):
        assert create(root).uri == str(root)

    def test_it_is_shown_by_place_version_and_fields(self, root):
        shown = repr(create(root, "days(ts)", "country", "bucket(16, id)"))
        assert shown == (
            f"<phalanx.Table {root}, version 1, partitioned by year(ts), month(ts), day(ts), "
            "country, bucket(16, id)>"
        )
        assert repr(create(root / "plain")).endswith("partitioned by nothing>")

    def test_beside_other_files(self, root):
        root.mkdir()
        (root / "README").write_text("notes")
        assert create(root).count() == 0
        assert (root / "README").read_text() == "notes"


class TestFields:
    @pytest.mark.parametrize(
        ("entries", "ids"),
        [
            (["country"], ["country"]),
            (["identity(country)"], ["country"]),
            (["year(ts)", "month(ts)"], ["ts_year", "ts_month"]),
            (["hours(ts)"], ["ts_year", "ts_month", "ts_day", "ts_hour"]),
            (["bucket(16, id)"], ["id_bucket"]),
            (["truncate(2, country)"], ["country_truncate"]),
            (["multi_bucket(4, id, country)"], ["id_country_bucket"]),
            (["place.city"], ["place_city"]),
            ([phalanx.expr("date_trunc('week', col0)", ["ts"], name="week")], ["week"]),
            ([], []),
        ],
    )
    def test_their_ids(self, root, entries, ids):
        table = create(root, *entries)
        assert [field.field_id for field in table.spec.fields] == ids
        assert table.specs == (table.spec,)
        assert phalanx.open(root).spec == table.spec

    def test_one_alone_needs_no_list(self, root):
        table = phalanx.create(root, SCHEMA, partition_by="country")
        assert [field.field_id for field in table.spec.fields] == ["country"]


class TestRefused:
    """One clear sentence, and nothing is made."""

    @pytest.mark.parametrize(
        ("entries", "message"),
        [
            (["nope"], "unknown column 'nope'"),
            (["tags"], "cannot partition by tags: .*list"),
            (["place"], "cannot partition by place: .*struct"),
            (["attributes"], "cannot partition by attributes: .*map"),
            (["raw"], "cannot partition by raw: .*binary"),
            (["truncate(2, tags)"], "truncate needs a string or number column, not list"),
            (["truncate(2, raw)"], "truncate needs a string or number column, not binary"),
            (["truncate(2, place)"], "truncate needs a string or number column, not struct"),
            (["truncate(2, attributes)"], "truncate needs a string or number column, not map"),
            (["bucket(0, id)"], "num_buckets"),
            (["bucket(-1, id)"], "num_buckets"),
            (["multi_bucket(0, id, country)"], "num_buckets"),
            (["truncate(0, country)"], "width"),
            (["truncate(-3, id)"], "width"),
            (["year(country)"], "year needs a date or timestamp column, not string"),
            (["hour(id)"], "hour needs a timestamp column"),
            (["country", "country"], "twice.*'country'|'country'.*twice"),
            (["years(ts)", "year(ts)"], "twice.*'ts_year'|'ts_year'.*twice"),
            (
                ["country", phalanx.expr("upper(col0)", ["country"], name="country")],
                "the partition field id 'country'",
            ),
            (["sqrt(id)"], "cannot partition by 'sqrt"),
            (["country ="], "cannot partition by 'country ='"),
            ([5], "cannot partition by 5"),
            ([phalanx.expr("random()", ["id"], name="x")], "volatile"),
            ([phalanx.expr("col0 + 1", ["nope"], name="x")], "unknown column 'nope'"),
            ([phalanx.expr("col7", ["id"], name="x")], "cannot be used"),
            ([phalanx.expr("upper(col0)", ["country"], name="a b")], "cannot be called 'a b'"),
        ],
        ids=str,
    )
    def test_fields(self, root, entries, message):
        with pytest.raises(InvalidInput, match=message):
            create(root, *entries)
        assert not root.exists()

    @pytest.mark.parametrize(
        ("schema", "message"),
        [
            (pa.schema([]), "at least one column"),
            (pa.schema([("a", pa.int64()), ("a", pa.int64())]), "'a' appears twice"),
            (pa.schema([("", pa.int64())]), "cannot be called ''"),
            (pa.schema([("_rowid", pa.int64())]), "Lance uses that name"),
            (pa.schema([("a", pa.decimal32(5, 2))]), "Lance cannot store"),
            (pa.schema([("a", pa.list_(pa.string(), 2))]), "Lance cannot store"),
            ({}, "a pyarrow.Schema or from rows"),
            (None, "cannot read rows from NoneType"),
            ([], "a pyarrow.Schema or from rows"),
            ([{"a": None}], "column 'a' is new and has no type"),
            ("nope.parquet", "there is no file nope.parquet"),
        ],
        ids=str,
    )
    def test_schemas(self, root, schema, message):
        with pytest.raises(InvalidInput, match=message):
            create(root, schema=schema)
        assert not root.exists()

    def test_a_table_that_exists(self, root):
        table = create(root, "country")
        table.append([{"id": 1, "country": "US"}])
        before = sorted(path.name for path in (root / "__manifest" / "_versions").iterdir())
        with pytest.raises(TableExists, match=r"already a table at .*: open it instead"):
            create(root)
        after = sorted(path.name for path in (root / "__manifest" / "_versions").iterdir())
        assert before == after
        assert phalanx.open(root).count() == 1

    def test_a_mode_that_nobody_knows(self, root):
        with pytest.raises(InvalidInput, match="transactions"):
            phalanx.create(root, SCHEMA, transactions="sometimes")
        assert not root.exists()


def test_a_day_of_the_month_is_warned_of(root, caplog):
    create(root, "day(ts)")
    assert "day(ts) is the day of the month alone" in caplog.text
    assert "write days(ts)" in caplog.text
    caplog.clear()
    phalanx.open(root).evolve_partitioning(["days(ts)", "country"])
    assert not caplog.text
    phalanx.open(root).evolve_partitioning(["month(ts)"])
    assert "write months(ts)" in caplog.text
