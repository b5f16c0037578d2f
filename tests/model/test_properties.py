"""Which properties there are, what they take, and what the docs say about them."""

import datetime as dt
import re
from pathlib import Path

import pytest

from phalanx import InvalidInput
from phalanx.model import properties
from phalanx.model.properties import (
    ANCHOR,
    FILE_BYTES,
    ISOLATION,
    KEEP_AT_LEAST,
    KEEP_SNAPSHOTS,
    PROPERTIES,
    VECTOR_DIMENSION,
    check_changes,
    check_new,
)
from tests.markdown import code, table_under

DOCS = Path(__file__).parents[2] / "docs"
BAD = [
    ("isolation", "nonsense", "the property isolation is 'serializable' or 'snapshot', not 'nons"),
    ("anchor", "x", "the property anchor is one of maintenance, commit, never, not 'x'"),
    ("write.distribution", "", "the property write.distribution is 'hash' or 'none', not ''"),
    (
        "write.target_file_bytes",
        "1e6",
        "the property write.target_file_bytes is a whole number from 1, not '1e6'",
    ),
    (
        "write.target_file_bytes",
        "0",
        "the property write.target_file_bytes is a whole number from 1, not '0'",
    ),
    ("retention.min_snapshots", "²", "is a whole number from 1, not '²'"),
    ("retention.snapshots", "7", "the property retention.snapshots: '7' is not a span of time"),
    ("vector.v.dimension", "-1", "the property vector.v.dimension is a whole number from 1"),
    ("write.target_bytes", "1", "there is no property write.target_bytes: there is write.distr"),
    ("transaction_id", "x", "transaction_id is not a property of a table"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD)
def test_what_is_refused(name, value, message):
    with pytest.raises(InvalidInput, match=re.escape(message)):
        check_new({"x": "y", name: value}, ["c"])
    if name != "vector.v.dimension":
        with pytest.raises(InvalidInput, match=re.escape(message)):
            check_changes({name: value}, ["c"])


@pytest.mark.parametrize(("name", "value"), [("transactions", "weak"), ("vector.v.dimension", "8")])
def test_what_cannot_be_changed(name, value):
    for changed in (value, None):
        with pytest.raises(InvalidInput, match=f"the property '{name}' cannot be changed"):
            check_changes({name: changed}, ["c"])


def test_transactions_are_an_argument():
    with pytest.raises(InvalidInput, match="transactions is not one of the properties here"):
        check_new({"transactions": "weak"}, [])


@pytest.mark.parametrize("name", ["team", "vector.v", "writes", "owner", "Transaction", ""])
def test_other_names_are_the_users_own(name):
    check_new({name: "anything"}, [])
    check_changes({name: "anything"}, [])


@pytest.mark.parametrize("name", ["retention.snapshot", "write.x", "transaction_id", "isolation"])
def test_whatever_a_table_has_can_be_removed(name):
    check_changes({name: None}, [])


@pytest.mark.parametrize("values", [{"x": 1}, {1: "x"}])
def test_they_are_strings(values):
    for check in (check_new, check_changes):
        with pytest.raises(InvalidInput, match="properties are strings"):
            check(values, [])


def test_typed_values():
    assert ISOLATION.of({}) == "serializable"
    assert ISOLATION.of({"isolation": "snapshot"}) == "snapshot"
    assert KEEP_SNAPSHOTS.of({"retention.snapshots": "12 Hours"}) == dt.timedelta(hours=12)
    assert KEEP_AT_LEAST.of({"retention.min_snapshots": "5"}) == 5
    assert FILE_BYTES.of({}) == 128 * 1024 * 1024
    found = VECTOR_DIMENSION.by_column({"vector.a.dimension": "3", "vector.b.c.dimension": "4"})
    assert found == {"a": 3, "b.c": 4}


def test_a_bad_value_of_an_old_table():
    """It must not keep a commit from landing; elsewhere whoever uses it is told."""
    assert ANCHOR.of({"anchor": "sometimes"}) == "maintenance"
    with pytest.raises(InvalidInput, match="the property isolation is"):
        ISOLATION.of({"isolation": "nonsense"})


def test_no_name_is_declared_twice():
    names = [one.name for one in PROPERTIES]
    assert len(set(names)) == len(names)
    assert not set(names) & set(properties.DERIVED)


def test_the_docs_say_the_same():
    assert table_under(DOCS / "upkeep.md", "## Properties") == [
        {
            "property": f"`{one.name}`",
            "default": code(one.default, one.kind),
            "meaning": one.meaning + ("" if one.changeable else "; only at CREATE"),
        }
        for one in PROPERTIES
    ]
