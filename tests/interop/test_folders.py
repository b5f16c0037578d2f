"""How values are spelled in paths."""

import os

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import phalanx
from phalanx.interop.folders import folder_of, inferred_type, parse_folder, spelled, value_of

TEXTS = st.none() | st.text() | st.sampled_from(["", ".", "..", "%2F", "a=b", spelled(None)])


@given(TEXTS, st.text(min_size=1, max_size=20))
def test_every_value_comes_back(text, column):
    name = f"{folder_of([column], ['x'])[:-1]}{spelled(text)}"
    assert parse_folder(name) == (column, text)


@given(TEXTS, TEXTS)
def test_no_two_values_share_a_spelling(one, other):
    assert (spelled(one) == spelled(other)) == (one == other)


@given(st.lists(st.text(max_size=20), min_size=1, max_size=3))
def test_no_value_leads_out_of_its_folder(texts):
    columns = [f"c{number}" for number in range(len(texts))]
    path = folder_of(columns, texts)
    assert path.count("/") == len(texts) - 1
    assert os.path.normpath(os.path.join("/tree", path)) == f"/tree/{path}"
    assert not any(character in path for character in '\0\n\\:*?"<>| ')


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("2024-01-01 10:30:00", "2024-01-01%2010%3A30%3A00"),
        ('/\\:*?"<>| ', "%2F%5C%3A%2A%3F%22%3C%3E%7C%20"),
        (None, "__HIVE_DEFAULT_PARTITION__"),
        ("__HIVE_DEFAULT_PARTITION__", "%5F_HIVE_DEFAULT_PARTITION__"),
        ("100%", "100%25"),
        ("a=b", "a=b"),
        ("", ""),
        ("é😀", "é😀"),
    ],
)
def test_the_table_of_the_documents(text, spelling):
    assert spelled(text) == spelling


def test_a_name_as_long_as_a_folder_can_have():
    assert folder_of(["c"], ["x" * 253])
    with pytest.raises(phalanx.InvalidInput, match="leave the column out of partition_by"):
        folder_of(["c"], ["x" * 254])


def test_bytes_that_are_no_text():
    with pytest.raises(phalanx.InvalidInput, match="is not UTF-8"):
        parse_folder("c=%FF")


@pytest.mark.parametrize("name", ["plain", "=x", ""])
def test_names_that_spell_nothing(name):
    assert parse_folder(name) is None


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1).map(str), max_size=5))
def test_integers_are_inferred_and_stay_as_they_are(texts):
    type = inferred_type(texts)
    assert type == (pa.int64() if any(text is not None for text in texts) else pa.string())
    for text in texts:
        value = value_of(text, pa.field("c", type)).as_py()
        assert (None if value is None else str(value)) == text
