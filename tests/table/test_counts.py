import datetime as dt
from collections import Counter

import pyarrow as pa
import pytest

import phalanx
from phalanx import InvalidInput
from phalanx.storage import small_leaves

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("country", pa.string()),
        ("score", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
NAN = float("nan")


def moment(*parts):
    return dt.datetime(*parts, tzinfo=dt.UTC)


ROWS = [
    {"id": id, "ts": ts, "country": country, "score": score}
    for id, (ts, country, score) in enumerate(
        [
            (moment(2024, 12, 31, 23), "US", 1.0),
            (moment(2025, 1, 1), "US", -0.0),
            (moment(2025, 1, 1, 5), "CA", 0.0),
            (moment(2025, 6, 1), None, NAN),
            (None, "US", NAN),
            (None, None, None),
            (moment(2025, 6, 2), "US", 2.0),
        ]
    )
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    table = phalanx.create(tmp_path_factory.mktemp("counts"), SCHEMA, ["months(ts)", "country"])
    table.append(ROWS)
    return table


@pytest.fixture
def closed(monkeypatch):
    """No leaf may be opened."""

    def refuse(*_):
        raise AssertionError("a leaf was opened")

    monkeypatch.setattr("phalanx.storage.leaf.open_leaf", refuse)
    monkeypatch.setattr("phalanx.storage.small_leaves.open_leaf", refuse)
    monkeypatch.setattr(small_leaves, "count", refuse)


def counted(found, *names):
    return {tuple(row[name] for name in names): row["count"] for row in found.to_pylist()}


class TestFromMetadata:
    """Where partition values decide, no leaf is opened."""

    @pytest.mark.parametrize(
        ("where", "count"),
        [
            (None, 7),
            ("TRUE", 7),
            ("FALSE", 0),
            ("country = 'US'", 4),
            ("country IS NULL", 2),
            ("country IS NOT NULL", 5),
            ("country <> 'US'", 1),
            ("country IN ('US', 'CA') AND ts IS NOT NULL", 4),
            ("ts >= '2025-01-01T00:00:00Z'", 4),
            ("ts < '2025-01-01T00:00:00Z'", 1),
            ("ts >= '2025-06-01T00:00:00Z' AND ts < '2025-07-01T00:00:00Z'", 2),
            ("year(ts) = 2025 OR country = 'US'", 6),
            ("NOT (year(ts) = 2025)", 1),
            ("country LIKE 'U%'", 4),
        ],
    )
    def test_count(self, table, closed, where, count):
        assert table.count(where) == count

    def test_count_of_a_limited_scan(self, table, closed):
        assert table.scan(limit=3).count() == 3
        assert table.scan(limit=100).count() == 7

    def test_count_by_a_column(self, table, closed):
        found = table.count_by(["country"])
        assert found.schema == pa.schema([("country", pa.string()), ("count", pa.int64())])
        assert counted(found, "country") == {("US",): 4, ("CA",): 1, (None,): 2}

    def test_count_by_fields(self, table, closed):
        found = table.count_by(["ts_year", "ts_month"])
        assert counted(found, "ts_year", "ts_month") == {
            (2024, 12): 1,
            (2025, 1): 2,
            (2025, 6): 2,
            (None, None): 2,
        }

    def test_count_by_with_a_filter(self, table, closed):
        found = table.count_by(["ts_year"], where="country = 'US'")
        assert counted(found, "ts_year") == {(2024,): 1, (2025,): 2, (None,): 1}


class TestFromRows:
    @pytest.mark.parametrize(
        ("where", "count"),
        [
            ("id >= 4", 3),
            ("score = 0", 2),
            ("score > 1", 3),
            ("ts >= '2025-01-01T01:00:00Z'", 3),
            ("id % 2 = 0 AND country = 'US'", 3),
        ],
    )
    def test_count(self, table, where, count):
        assert table.count(where) == count

    def test_only_leaves_in_doubt_are_opened(self, table, monkeypatch):
        opened = []
        count = small_leaves.count

        def counting(location, schema, members, where):
            opened.extend(members)
            return count(location, schema, members, where)

        monkeypatch.setattr(small_leaves, "count", counting)
        assert table.count("ts >= '2025-01-01T01:00:00Z'") == 3
        assert len(opened) == 1, "the leaf of January 2025 that may have such rows"

    def test_count_by_other_columns(self, table):
        found = table.count_by(["country", "score"], where="ts IS NOT NULL")
        assert sum(found["count"].to_pylist()) == 5

    def test_count_by_a_field_of_some_rows(self, table):
        found = table.count_by(["ts_year"], where="id <> 1")
        assert counted(found, "ts_year") == {(2024,): 1, (2025,): 3, (None,): 2}

    def test_every_nan_and_both_zeros_are_one_value(self, table):
        found = table.count_by(["score"])
        keys = ["nan" if score != score else score for score in found["score"].to_pylist()]
        assert Counter(dict(zip(keys, found["count"].to_pylist(), strict=True))) == {
            1.0: 1,
            0.0: 2,
            "nan": 2,
            None: 1,
            2.0: 1,
        }

    def test_nothing_matches(self, table):
        found = table.count_by(["country", "ts_year"], where="id < 0")
        assert found.num_rows == 0
        assert found.schema.names == ["country", "ts_year", "count"]
        assert table.count_by(["country"], where="country = 'nowhere'").num_rows == 0


class TestOrder:
    def test_the_same_from_metadata_and_from_rows(self, table):
        from_metadata = table.count_by(["country", "ts_year"])
        from_rows = table.count_by(["country", "ts_year"], where="id >= 0")
        assert from_metadata.equals(from_rows)
        assert from_rows["country"].to_pylist() == [None, None, "CA", "US", "US", "US"]


class TestFloatPartitions:
    def test_counted_from_metadata(self, root, monkeypatch):
        table = phalanx.create(root, pa.schema([("score", pa.float64())]), ["score"])
        table.append([{"score": score} for score in (0.0, -0.0, NAN, NAN, 1.5, None)])
        monkeypatch.setattr("phalanx.storage.leaf.open_leaf", None)
        monkeypatch.setattr(small_leaves, "count", None)
        assert table.count("score = 0") == 2
        assert table.count("score > 1") == 3
        found = table.count_by(["score"])
        assert found["count"].to_pylist() == [1, 2, 1, 2]
        assert str(found["score"].to_pylist()) == "[None, 0.0, 1.5, nan]"


class TestNames:
    def test_a_column_called_count(self, root):
        table = phalanx.create(root, pa.schema([("count", pa.int64())]), ["count"])
        table.append([{"count": 7}, {"count": 7}])
        assert table.count_by(["count"]).to_pylist() == [{"count": 7, "count_": 2}]

    def test_a_column_goes_before_a_field(self, root):
        """The field `ts_year` is not what the column `ts_year` says."""
        schema = pa.schema([("ts", pa.date32()), ("ts_year", pa.int32())])
        table = phalanx.create(root, schema, ["year(ts)"])
        table.append([{"ts": dt.date(2025, 1, 1), "ts_year": 1999}])
        assert table.count_by(["ts_year"]).to_pylist() == [{"ts_year": 1999, "count": 1}]


class TestRefused:
    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            (["nope"], "unknown column 'nope'"),
            (["COUNTRY"], "unknown column 'COUNTRY'"),
            ([], "at least one column"),
            (5, "a list of at least one column"),
            (["country", "country"], "twice"),
            (["tags"], "cannot count by 'tags': it has the type list"),
        ],
    )
    def test_columns(self, table, columns, message):
        with pytest.raises(InvalidInput, match=message):
            table.count_by(columns)

    def test_filters(self, table):
        with pytest.raises(InvalidInput, match="unknown column 'nope'"):
            table.count_by(["country"], where="nope = 1")
        with pytest.raises(InvalidInput, match="unknown column 'nope'"):
            table.count("nope = 1")


def test_a_dictionary_differs_from_leaf_to_leaf(root):
    schema = pa.schema([("p", pa.int64()), ("c", pa.dictionary(pa.int32(), pa.string()))])
    table = phalanx.create(root, schema, ["p"])
    table.append([{"p": 1, "c": "a"}, {"p": 1, "c": "b"}, {"p": 2, "c": "b"}, {"p": 2, "c": None}])
    table.append([{"p": 3, "c": "c"}, {"p": 3, "c": "b"}])
    found = table.count_by(["c"])
    assert found.to_pydict() == {"c": [None, "a", "b", "c"], "count": [1, 1, 3, 1]}
    assert found.schema.field("c").type == pa.string()
    assert table.count_by(["c", "p"], "p > 2").to_pydict() == {
        "c": ["b", "c"],
        "p": [3, 3],
        "count": [1, 1],
    }
