"""Columns with dots and backticks in their names."""

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import phalanx
from phalanx import InvalidInput

INNER = pa.struct([("x.y", pa.int64()), ("z`", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("a.b", pa.string()),
        ("x`y", pa.int64()),
        ("a_b", pa.int64()),
        ("a", pa.struct([("b", pa.int64())])),
        ("s", INNER),
        ("v.1", pa.list_(pa.float32(), 2)),
    ]
)


def row(id, word, number):
    return {
        "id": id,
        "a.b": word,
        "x`y": number,
        "a_b": -id,
        "a": {"b": 10 * id},
        "s": {"x.y": id, "z`": word},
        "v.1": [float(id), 1.0],
    }


ROWS = [row(1, "one", 5), row(2, "two", None), row(3, None, 7)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A table to read, partitioned by such a column."""
    uri = tmp_path_factory.mktemp("names") / "t"
    return phalanx.create(uri, SCHEMA, ["`a.b`", "bucket(4, `x``y`)"]).append(ROWS)


@pytest.fixture
def table(root):
    return phalanx.create(root, SCHEMA, ["`a.b`"]).append(ROWS)


def ids(table, where):
    return sorted(table.scan(["id"], where).to_arrow()["id"].to_pylist())


def rows(table):
    return sorted(phalanx.open(table.uri).to_arrow().to_pylist(), key=lambda row: row["id"])


class TestReading:
    def test_rows(self, shared):
        assert shared.schema == SCHEMA
        assert rows(shared) == ROWS
        assert shared.scan("a.b", limit=5).to_arrow().schema.names == ["a.b"]
        assert shared.scan(["x`y", "a.b"]).to_arrow()["x`y"].null_count == 1

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            ("`a.b` = 'two'", [2]),
            ('"a.b" IS NULL', [3]),
            ("`x``y` > 4", [1, 3]),
            ("`x``y` + 1 = 6", [1]),
            ("a.b = 10", [1]),
            ("s.`x.y` = 2 OR s.`z``` = 'one'", [1, 2]),
            ([("a.b", "=", "one")], [1]),
            ([("a", "=", None)], []),
            ([("s.`x.y`", ">", 1)], [2, 3]),
            (pc.field("a.b") == "one", [1]),
            (pc.field("a", "b") == 20, [2]),
        ],
        ids=str,
    )
    def test_filters(self, shared, where, expected):
        assert ids(shared, where) == expected
        assert shared.count(where) == len(expected)

    def test_partitions(self, shared):
        assert shared.spec.spell(shared._snapshot.head.schema) == ["`a.b`", "bucket(4, `x``y`)"]
        assert [field.field_id for field in shared.spec.fields] == ["a_b", "x_y_bucket"]
        plan = shared.scan(where="`a.b` = 'one'").plan()
        assert (plan.selected, plan.total) == (1, 3)
        counts = shared.count_by(["a.b"]).to_pylist()
        assert {row["a.b"]: row["count"] for row in counts} == {"one": 1, "two": 1, None: 1}
        assert """where       "a.b" = 'one'""" in shared.scan(where="`a.b` = 'one'").explain()

    def test_leaves(self, shared):
        """Any Lance client opens a leaf; there the columns have names that Lance can read."""
        stored = ["id", "a_b_2", "x_y", "a_b", "a", "s", "v_1"]
        for leaf in shared.partitions().to_pylist():
            dataset = lance.dataset(leaf["uri"], version=leaf["version"])
            assert dataset.schema.names == stored
            assert dataset.to_table().num_rows == 1


class TestChanging:
    def test_rows(self, table):
        table.update({"x`y": "`x``y` + a.b", "a.b": "upper(`a.b`)"}, "`a.b` = 'one'")
        table.merge([{"id": 2, "a.b": "two", "x`y": 9}, {"id": 4, "a.b": "four"}], "id")
        table.delete("`a.b` IS NULL")
        known = {row["id"]: (row["a.b"], row["x`y"], row["a_b"]) for row in rows(table)}
        assert known == {1: ("ONE", 15, -1), 2: ("two", 9, -2), 4: ("four", None, None)}
        table.merge([{"a.b": "two", "id": 22}], on=["a.b"])
        assert ids(table, "`a.b` = 'two'") == [22]
        table.overwrite([row(9, "two", 1)], "partitions")
        assert ids(table, None) == [1, 4, 9]
        assert table.check().ok

    def test_columns(self, table):
        table.rename_column("id", "i.d")
        table.rename_column("x`y", "xy")
        table.rename_column("a.b", "w")
        table.add_column("`new.one`", pa.int64(), default=1)
        table.add_column(("n`",), pa.int64())
        table.add_column("s.`p.q`", pa.int64())
        table.change_type("`i.d`", pa.int64())
        table.drop_column("a_b")
        assert table.schema.names == ["i.d", "w", "xy", "a", "s", "v.1", "new.one", "n`"]
        more = {"i.d": 4, "w": "one", "xy": 1, "s": {"x.y": 4, "p.q": 4}, "new.one": 2}
        table.append([more])
        (one,) = table.scan(where="`i.d` = 4").to_arrow().to_pylist()
        assert one == dict.fromkeys(table.schema.names) | more | {
            "s": {"x.y": 4, "z`": None, "p.q": 4}
        }
        (one,) = table.scan(where="`i.d` = 1 AND w = 'one'").to_arrow().to_pylist()
        assert (one["xy"], one["new.one"], one["n`"]) == (5, 1, None)
        table.rename_column("`i.d`", "id")
        table.rename_column("w", "a.b")
        for upkeep in (lambda: None, table.optimize, table.rewrite):
            upkeep()
            assert ids(table, "`a.b` = 'one'") == [1, 4]
        assert table.check().ok

    def test_a_physical_name_that_becomes_free(self, table):
        """`a.b` is stored as a_b_2 while there is a column a_b, and as a_b in later files."""
        table.drop_column("a_b")
        table.append([{"id": 4, "a.b": "one"}])
        assert ids(table, "`a.b` = 'one'") == [1, 4]
        table.add_column("a_b", pa.int64(), default=8)
        table.append([{"id": 5, "a.b": "one"}])
        table.optimize()
        where = "`a.b` = 'one' AND a_b = 8"
        assert ids(table, where) == [1, 4, 5]
        assert table.check().ok

    def test_indexes(self, table):
        table.create_index("x`y", "btree", min_rows=1)
        table.create_index("v.1", "ivf_flat", min_rows=1, num_partitions=1)
        assert ids(table, "`x``y` = 7") == [3]
        nearest = table.search([3.0, 1.0], column="v.1", k=1)
        assert nearest["id"].to_pylist() == [3]

    def test_evolve_partitioning(self, table):
        table.evolve_partitioning(["truncate(2, `x``y`)"])
        table.append([row(4, "one", 5)])
        plan = table.scan(where="`x``y` = 5").plan()
        assert {leaf.rows for leaf in plan.leaves} == {1}
        assert ids(table, "`x``y` = 5") == [1, 4]

    def test_weak_and_hive(self, tmp_path):
        weak = phalanx.create(tmp_path / "w", SCHEMA, ["`a.b`"], transactions="weak").append(ROWS)
        assert rows(weak) == ROWS
        tree = phalanx.create(tmp_path / "h", SCHEMA, ["`a.b`"], layout="hive").append(ROWS)
        assert rows(tree) == ROWS
        assert ids(tree, "`a.b` = 'one'") == [1]


def test_refused(tmp_path):
    for name in ("", "_rowid", "*"):
        with pytest.raises(InvalidInput, match="cannot be called"):
            phalanx.create(tmp_path / "t", pa.schema([(name, pa.int64())]))
    table = phalanx.create(tmp_path / "t", SCHEMA)
    with pytest.raises(InvalidInput, match=r"unknown column 'a\.c'"):
        table.scan(where="a.c = 1")
    with pytest.raises(InvalidInput, match=r"unknown column '`a\.c`'"):
        table.scan(where="`a.c` = 1")
    with pytest.raises(InvalidInput, match="already"):
        table.add_column("`a.b`", pa.int64())
    with pytest.raises(InvalidInput, match="'a' has a field 'b' already"):
        table.add_column("a.b", pa.int64())
