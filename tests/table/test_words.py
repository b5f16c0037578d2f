"""Words of neighbors lead to ours."""

import inspect
import re

import pyarrow.compute as pc
import pytest

import phalanx
from phalanx import InvalidInput
from phalanx.table import words


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    data = {"id": [1, 2, 3], "p": ["a", "b", "c"], "x": [1, 2, 3]}
    return phalanx.create(tmp_path_factory.mktemp("t") / "t", data, partition_by=["p"])


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("restore", "rollback"),
        ("checkout", "phalanx.open"),
        ("merge_insert", "merge"),
        ("add_columns", "add_column"),
        ("compact_files", "optimize"),
        ("versions", "snapshots"),
    ],
)
def test_attributes(table, name, ours):
    with pytest.raises(AttributeError, match=f"a table has no {name}: use .*{ours}"):
        getattr(table, name)
    assert not hasattr(table, name)


def test_an_attribute_that_nobody_has(table):
    with pytest.raises(AttributeError, match="'Table' object has no attribute 'nothing'"):
        _ = table.nothing


def test_functions():
    with pytest.raises(AttributeError, match=r"phalanx has no load_table: use phalanx\.open"):
        _ = phalanx.load_table
    with pytest.raises(AttributeError, match="module 'phalanx' has no attribute 'nothing'"):
        _ = phalanx.nothing


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.scan(filter="x = 1"), r"scan\(\) has no argument 'filter': use where=…"),
        (lambda t: t.delete(predicate="x = 1"), "where=…"),
        (lambda t: t.append([], mode="overwrite"), "overwrite"),
        (lambda t: t.search(query="x"), "text=…"),
        (lambda t: phalanx.create("nowhere", {"a": [1]}, mode="overwrite"), "overwrite"),
        (lambda t: phalanx.open(t.uri, snapshot_id=1), "version=…"),
    ],
)
def test_arguments(table, call, message):
    with pytest.raises(TypeError, match=message):
        call(table)


@pytest.mark.parametrize("name", words.REFUSED)
def test_what_only_datasets_of_pyarrow_do(table, name):
    with pytest.raises(InvalidInput, match=f"no {name} of its own: use "):
        getattr(table, name)([0])


def test_every_word_of_ours_is_there(table):
    """And no word of others is, else the error would never be seen."""
    texts = [*words._ATTRIBUTES.values(), *words.REFUSED.values()]
    for text in texts:
        for name in re.findall(r"(?<![.\w])([a-z_]{4,})\(", text):
            assert hasattr(phalanx.Table, name), text
    for text in words._FUNCTIONS.values():
        assert hasattr(phalanx, text.split("(")[0]), text
    for name in words._ATTRIBUTES:
        assert not hasattr(phalanx.Table, name)
    assert not any(hasattr(phalanx, name) for name in words._FUNCTIONS)
    for call, names in words._ARGUMENTS.items():
        ours = getattr(phalanx, call, None) or getattr(phalanx.Table, call)
        known = inspect.signature(ours).parameters
        assert not known.keys() & names.keys(), call
        for text in names.values():
            if "(" not in text:
                assert known.keys() >= set(re.findall(r"(\w+)=…", text)), (call, text)


class TestArgumentsInTheWrongPlace:
    def test_a_filter_for_columns(self, table):
        for given in ("x > 3", "x IN (1, 2)", pc.field("x") > 3, [pc.field("x") > 3]):
            with pytest.raises(InvalidInput, match="where="):
                table.scan(given)
        with pytest.raises(InvalidInput, match=r"unknown column 'y': the table has id, p, x$"):
            table.scan("y")

    def test_words_for_a_vector(self, table):
        for given in ("hello", phalanx.Match("hello")):
            with pytest.raises(InvalidInput, match="text="):
                table.search(given)

    def test_text_for_sql(self, table):
        for given in ("XX", "hello world"):
            with pytest.raises(InvalidInput, match=rf"phalanx\.lit\('{given}'\)"):
                table.update({"p": given})
        with pytest.raises(InvalidInput, match=r"unknown column 'q': the table has id, p, x$"):
            table.update({"q": "'a'"})

    def test_a_path_for_a_snapshot(self):
        with pytest.raises(InvalidInput, match=r"phalanx\.open\('lake/x'\)"):
            phalanx.Table("lake/x")
