"""Constraints, without Spark."""

import pyarrow as pa
import pytest

import phalanx
from phalanx import ConflictError, InvalidInput
from phalanx.table.operations import set_properties


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


def test_rollback_restores_them(table):
    table.append([{"x": -5}])
    before = table.version
    table.delete("x = -5")
    table.set_properties({"owner": "me"})
    constrain(table, "positive", "x > 0")
    constrained = table.version
    table.rollback(before)
    assert table.properties == {"owner": "me"}
    assert "constraints" not in table._snapshot.head.to_metadata()["writer_features"]
    table.append([{"x": -6}])
    table.rollback(constrained)
    assert table.properties == {"owner": "me", "constraint.positive": "x > 0"}
    with pytest.raises(InvalidInput, match="1 row breaks"):
        phalanx.open(table.uri).append([{"x": -6}])


def test_rollback_to_fewer_columns(table):
    before = table.version
    table.add_column("z", "int64")
    constrain(table, "positive", "z > 0")
    table.rollback(before)
    table.append([{"x": 1}])
    assert table.count() == 1


def test_rows_of_the_same_transaction(table):
    table.append([{"x": 1}])
    version = table.version
    for change in (
        lambda tx: tx.append([{"x": -1}]),
        lambda tx: tx.update({"x": "-1"}),
        lambda tx: tx.rollback(1),
        lambda tx: tx.add_column("z", "int64", default=-1),
    ):
        tx = table.transaction()
        change(tx)
        with pytest.raises(InvalidInput, match="before this transaction"):
            tx.add_constraint("positive", "x > 0", version)
    tx = table.transaction()
    tx.add_constraint("positive", "x > 0", version)
    with pytest.raises(InvalidInput, match="1 row breaks"):
        tx.append([{"x": -1}])
    assert (table.version, table.count()) == (version, 1)
    with table.transaction() as tx:
        tx.add_constraint("positive", "x > 0", version)
        tx.append([{"x": 2}])
    with table.transaction() as tx:
        tx.drop_constraint("positive")
        tx.add_constraint("positive", "x > 1 OR x = 1", table.version)
    assert table.properties == {"constraint.positive": "x > 1 OR x = 1"}


def test_properties_that_are_older_than_constraints(table, monkeypatch):
    """Without the writer feature, a property with the name of a constraint is free."""
    with monkeypatch.context() as before:
        before.setattr(set_properties, "check_changes", lambda *_: None)
        table.set_properties({"constraint.x": "not SQL at all", "constraint.y": "x > 0"})
    table = phalanx.open(table.uri)
    table.append([{"x": -1}])
    assert "constraints" not in table._snapshot.head.to_metadata()["writer_features"]
    table.drop_column("y")
    with pytest.raises(InvalidInput, match="has no constraint 'x'"), table.transaction() as tx:
        tx.drop_constraint("x")
    with pytest.raises(InvalidInput, match="is a constraint"):
        table.set_properties({"constraint.x": "x > 0"})
    with pytest.raises(InvalidInput, match="older than constraints"):
        constrain(table, "small", "x < 9")
    table.set_properties({"constraint.x": None, "constraint.y": None})
    constrain(table, "small", "x < 9")
    assert table.properties == {"constraint.small": "x < 9"}
    with pytest.raises(InvalidInput, match="is a constraint"):
        table.set_properties({"constraint.small": None})


def test_a_weak_table(tmp_path):
    weak = phalanx.create(tmp_path / "w", pa.schema([("x", pa.int64())]), transactions="weak")
    with pytest.raises(InvalidInput, match="is weak"):
        constrain(weak, "positive", "x > 0")
