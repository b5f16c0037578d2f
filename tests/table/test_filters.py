"""What may be passed as a filter, and as parameters of one."""

import datetime as dt
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import phalanx
from phalanx.errors import InvalidInput

TIMES = [dt.datetime(2025, 1, 1 + n // 4, n) for n in range(12)]
ROWS = pa.table(
    {
        "id": pa.array(range(12), pa.int64()),
        "kind": ["a", "b", None] * 4,
        "at": pa.array(
            [dt.datetime(2025, 1, 1 + n // 4, n) for n in range(12)], pa.timestamp("us")
        ),
        "f": pa.array([n / 4 for n in range(12)], pa.float32()),
    }
)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return phalanx.create(tmp_path_factory.mktemp("t") / "t", ROWS, ["kind", "days(at)"])


def ids(scan):
    return sorted(scan.to_arrow().column("id").to_pylist())


class TestExpressions:
    def test_rows_and_pruning(self, table):
        scan = table.scan(where=(pc.field("kind") == "a") & (pc.field("id") > 4))
        assert ids(scan) == [6, 9]
        assert scan.plan().selected == 3
        scan = table.scan(where=pc.field("at") < dt.datetime(2025, 1, 2))
        assert ids(scan) == [0, 1, 2, 3]
        assert scan.plan().selected == 3

    def test_null_is_a_value_of_isin(self, table):
        assert ids(table.scan(where=pc.field("kind").isin(["a", None]))) == [
            0, 2, 3, 5, 6, 8, 9, 11,
        ]  # fmt: skip

    def test_everywhere(self, tmp_path):
        table = phalanx.create(tmp_path / "t", ROWS, ["kind"])
        assert table.count(pc.field("kind") == "a") == 4
        assert table.count_by("kind", where=pc.field("id") < 3).num_rows == 3
        assert table.update({"f": 0}, where=pc.field("id") == 1) == 1
        assert table.delete(pc.field("kind") == "a") == 4
        with table.transaction() as tx:
            assert tx.count(pc.field("kind") == "b") == 4
            assert tx.delete([("kind", "=", "b")]) == 4
        assert len(table) == 4

    def test_what_cannot_be_said(self, table):
        with pytest.raises(InvalidInput, match="write it in SQL"):
            table.scan(where=pc.field("id") + 1 == 2)

    def test_an_unknown_column(self, table):
        with pytest.raises(InvalidInput, match="unknown column 'nope'"):
            table.scan(where=pc.field("nope") == 2)


class TestTuples:
    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            (("id", "=", 3), [3]),
            (("id", "==", 3), [3]),
            ([("id", ">=", 3), ("id", "<", 5)], [3, 4]),
            ([("id", "<=", 1), ("id", "!=", 0)], [1]),
            ([[("id", "=", 1)], [("id", "=", 2), ("kind", "=", None)]], [1, 2]),
            (("id", "in", [1, 2, 99]), [1, 2]),
            (("id", "in", []), []),
            ([("id", "not in", {0, 1}), ("id", "<", 4)], [2, 3]),
            ([("kind", "=", None), ("id", "<", 6)], [2, 5]),
            ([("kind", "!=", None), ("id", "<", 4)], [0, 1, 3]),
            (("kind", "=", "it's"), []),
            (("at", "<", dt.datetime(2025, 1, 1, 2)), [0, 1]),
            (("at", "<", dt.date(2025, 1, 2)), [0, 1, 2, 3]),
            (("f", "=", 0.25), [1]),
        ],
        ids=str,
    )
    def test_rows(self, table, where, expected):
        assert ids(table.scan(where=where)) == expected

    @pytest.mark.parametrize(
        ("where", "message"),
        [
            ([], "a filter of tuples is empty"),
            ([()], "tuples such as"),
            (("id", "~", 3), "unknown operator '~'"),
            (("id", 5, 3), "unknown operator 5"),
            (("id", "in", "abc"), "takes a list of values"),
            (("id", "in", 3), "takes a list of values"),
            (("id", "=", [1]), "constant"),
            (("nope", "=", 1), "unknown column 'nope'"),
            (("id",), "tuples such as"),
            ([("id", "=", 1), "x"], "tuples such as"),
        ],
        ids=str,
    )
    def test_what_is_none(self, table, where, message):
        with pytest.raises(InvalidInput, match=message):
            table.scan(where=where)


class TestParameters:
    def test_in_order(self, table):
        assert ids(table.scan(where="id >= ? AND id < ?", params=[3, 5])) == [3, 4]
        assert table.count("kind = ?", params=["it's"]) == 0
        assert table.count("kind = ?", params=("a",)) == 4

    def test_by_name(self, table):
        where = "id >= :low AND id < :high AND kind = :kind"
        params = {"low": 3, "high": 9, "kind": "a"}
        assert ids(table.scan(where=where, params=params)) == [3, 6]
        assert table.count("id >= :low AND id <= :low", params={"low": 3}) == 1

    def test_a_value_for_no_name_is_refused(self, table):
        with pytest.raises(InvalidInput, match="has no :hgih: see params"):
            table.scan(where="id >= :low", params={"low": 3, "hgih": 9})

    def test_they_prune(self, table):
        assert table.scan(where="kind = ?", params=["a"]).plan().selected == 3

    def test_null_and_times(self, table):
        assert table.count("kind <=> ?", params=[None]) == 4
        assert table.count("at < ?", params=[dt.datetime(2025, 1, 2)]) == 4
        assert table.count("at >= ?", params=[dt.date(2025, 1, 3)]) == 4

    def test_values_of_numpy(self, table):
        assert table.count("id = ?", params=[np.int32(3)]) == 1
        assert table.count("at >= ?", params=[np.datetime64("2025-01-03")]) == 4
        assert table.count("at >= ?", params=[np.datetime64("2025-01-03T10:00:00", "us")]) == 2
        assert table.count("f = ?", params=[np.float32(0.25)]) == 1

    def test_lists(self, table):
        assert ids(table.scan(where="id IN ?", params=[[3, 4]])) == [3, 4]
        assert ids(table.scan(where="id IN (?)", params=[(3, 4)])) == [3, 4]
        assert ids(table.scan(where="id IN (5, :few)", params={"few": {3, 4}})) == [3, 4, 5]
        assert table.count("id IN :all", params={"all": np.arange(2, 4)}) == 2
        assert table.count("id IN ? AND kind = ?", params=[pa.array([3, 6]), "a"]) == 2
        assert table.scan(where="kind IN ?", params=[["a"]]).plan().selected == 3
        assert table.count("kind IN ?", params=[["a' OR TRUE --"]]) == 0

    def test_an_empty_list(self, table):
        assert table.count("id IN ?", params=[[]]) == 0
        assert table.count("id NOT IN ?", params=[[]]) == table.count()
        assert table.count("kind NOT IN (:none)", params={"none": ()}) == table.count()

    def test_a_value_is_never_sql(self, table):
        assert table.count("kind = ?", params=["a' OR 'a' = 'a"]) == 0
        assert table.count("kind = :k", params={"k": "a' OR TRUE --"}) == 0

    def test_changes(self, tmp_path):
        table = phalanx.create(tmp_path / "t", ROWS, ["kind"])
        assert table.update({"kind": phalanx.lit("it's")}, "id = ?", params=[3]) == 1
        assert table.count("kind = ?", params=["it's"]) == 1
        assert table.delete("kind = ?", params=["it's"]) == 1
        with table.transaction() as tx:
            assert tx.update({"f": 1.5}, "id = ?", params=[4]) == 1
            assert tx.delete("id = ?", params=[4]) == 1

    @pytest.mark.parametrize(
        ("where", "params", "message"),
        [
            ("id = ?", None, "no value for ?"),
            ("id = ?", [], "no value for ?"),
            ("id = ? AND id = ?", [1], "no value for ?"),
            ("id = ?", [1, 2], "has 1 ? for 2 params"),
            ("id = :a", {"b": 1}, "no value for :a"),
            ("id = :a", [1], "no value for :a"),
            ("id = ?", {"a": 1}, "no value for ?"),
            ("id = 1", "1", "params is a list"),
            ("id = ?", [[1]], "list of values for ?: write IN ?"),
            ("id IN ?", [1], "one value for ?: write IN (?)"),
            ("id IN ?", [[[1]]], "constant"),
            ("id IN ?", [{"a": 1}], "constant"),
            (("id", "=", 1), [1], "params are for a filter in SQL text"),
            (None, [1], "params are for a filter in SQL text"),
        ],
        ids=str,
    )
    def test_what_does_not_fit(self, table, where, params, message):
        with pytest.raises(InvalidInput, match=re.escape(message)):
            table.scan(where=where, params=params)


class TestText:
    def test_partition_fields(self, table):
        scan = table.scan(where="at_day = 2")
        assert ids(scan) == [4, 5, 6, 7]
        assert scan.plan().selected == 3
        assert ids(table.scan(where="at_year = 2025 AND at_month = 1 AND at_day > 2")) == [
            8, 9, 10, 11,
        ]  # fmt: skip

    def test_a_column_comes_before_a_field(self, tmp_path):
        rows = pa.table({"at": ROWS.column("at"), "at_day": pa.array([7] * 12)})
        table = phalanx.create(tmp_path / "t", rows, [phalanx.expr("col0", ["at"], name="x")])
        assert table.count("at_day = 7") == 12

    def test_a_bucket_names_its_source(self, tmp_path):
        table = phalanx.create(tmp_path / "t", ROWS, ["bucket(4, id)"])
        with pytest.raises(InvalidInput, match="filter by its source, id"):
            table.count("id_bucket = 3")

    def test_comments(self, table):
        assert table.count("id = 2 -- the second\n OR id = 3 /* the\n third */") == 2
        assert table.count("-- nothing\nid = 2 --") == 1
        assert table.count("kind = '--' OR kind = '/* */'") == 0
        with pytest.raises(InvalidInput, match="expected a column"):
            table.count("-- nothing")

    def test_nested_comments(self, table):
        assert table.count("id = 2 /* the /* very */ second */ OR /**/ id = 3 /* /* */ */") == 2
        assert table.count("/* -- */ id = 2 -- /*") == 1
        assert table.count("id = /* ' */ 2") == 1
        for where in ("id = 2 /* open", "id = 2 /* /* */", "/*/ id = 2"):
            with pytest.raises(InvalidInput, match="a comment has no end"):
                table.count(where)
        with pytest.raises(InvalidInput, match="cannot parse"):
            table.count("id = 2 */")

    @pytest.mark.parametrize("type", ["VARCHAR", "VARCHAR(10)", "TEXT", "STRING", "CHAR(3)"])
    def test_casts_to_text(self, table, type):
        assert table.count(f"CAST(id AS {type}) = '2'") == 1


class TestUpdatedConstants:
    def test_numbers_take_the_type_of_the_column(self, tmp_path):
        schema = pa.schema([("f", pa.float32()), ("h", pa.float16()), ("m", pa.decimal128(6, 2))])
        table = phalanx.create(tmp_path / "t", schema)
        table.append([{"f": 0, "h": 0, "m": 0}])
        table.update({"f": "0.1", "h": "-0.5", "m": "1.25"})
        row = table.to_arrow()
        assert row.column("f") == pa.chunked_array([[0.1]], pa.float32())
        assert [row.column(name)[0].as_py() for name in ("h", "m")] == [-0.5, pytest.approx(1.25)]
        with pytest.raises(InvalidInput, match="column 'm'"):
            table.update({"m": "1.234"})

    def test_values_that_are_not_text(self, tmp_path):
        schema = pa.schema([("b", pa.bool_()), ("n", pa.int64()), ("at", pa.timestamp("us"))])
        table = phalanx.create(tmp_path / "t", schema)
        table.append([{"b": True, "n": 1}])
        at = dt.datetime(2025, 1, 1, 12)
        table.update({"b": False, "n": 7, "at": at})
        assert table.to_arrow().to_pylist() == [{"b": False, "n": 7, "at": at}]
        table.update({"n": None})
        assert table.to_arrow().column("n").to_pylist() == [None]
