"""Constraints, without Spark."""

import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError, InvalidInput


@pytest.fixture
def table(tmp_path):
    return phalanx.create(tmp_path / "t", pa.schema([("x", pa.int64()), ("y", pa.int64())]))


def constrain(table, name, sql, validated=None):
    with table.transaction() as tx:
        tx.add_constraint(name, sql, table.version if validated is None else validated)


def test_rows_are_checked(table):
    constrain(table, "positive", "x > 0")
    table.append([{"x": 1}, {"x": None}])
    with pytest.raises(InvalidInput, match="2 rows break the constraint 'positive'"):
        table.append([{"x": 1}, {"x": 0}, {"x": -1}])
    with pytest.raises(InvalidInput, match="1 row breaks"):
        table.update({"x": "0"}, "x = 1")
    assert table.count() == 2
    assert phalanx.open(table.uri).count() == 2


def test_rows_that_move_are_not_checked(table):
    table.append([{"x": 1}])
    constrain(table, "beyond", "some_function_of_spark(x)")
    table.evolve_partitioning(["y"]).rewrite()
    table.optimize()
    table.delete("x = 1")
    assert table.count() == 0


@pytest.mark.parametrize("sql", ["x / 2 <= 1", 'x <> "y"', "x > 0) OR (TRUE"])
def test_what_spark_may_read_otherwise(table, sql):
    """Rows are not accepted by a condition that Spark would decide in another way."""
    constrain(table, "other", sql)
    with pytest.raises(InvalidInput, match="can only be checked by Spark"):
        table.append([{"x": 3}])
    assert table.count() == 0


def test_names(table):
    constrain(table, "positive", "x > 0")
    with pytest.raises(InvalidInput, match="has a constraint 'positive' already"):
        constrain(table, "positive", "x > 1")
    with table.transaction() as tx:
        tx.drop_constraint("none", if_exists=True)
    with pytest.raises(InvalidInput, match="has no constraint 'none'"), table.transaction() as tx:
        tx.drop_constraint("none")


def test_columns_that_it_needs(table):
    constrain(table, "positive", "X > 0")
    with pytest.raises(InvalidInput, match="needs the column 'x'"):
        table.drop_column("x")
    table.drop_column("y")


def test_one_that_is_added_meanwhile(table):
    """Rows that were written before it was there have not been checked."""
    other = phalanx.open(table.uri)
    tx = table.transaction()
    tx.append([{"x": -1}])
    constrain(other, "positive", "x > 0")
    with pytest.raises(ConflictError, match="constraints"):
        tx.commit()
    assert phalanx.open(table.uri).count() == 0


def test_rows_that_are_added_meanwhile(table):
    version = table.version
    phalanx.open(table.uri).append([{"x": -1}])
    with pytest.raises(ConflictError, match="while its rows were checked"):
        constrain(table, "positive", "x > 0", version)


def test_older_writers_are_kept_out(table):
    assert "constraints" not in table._snapshot.head.to_metadata()["writer_features"]
    constrain(table, "positive", "x > 0")
    assert "constraints" in table._snapshot.head.to_metadata()["writer_features"]


def test_a_weak_table(tmp_path):
    weak = phalanx.create(tmp_path / "w", pa.schema([("x", pa.int64())]), transactions="weak")
    with pytest.raises(InvalidInput, match="is weak"):
        constrain(weak, "positive", "x > 0")
