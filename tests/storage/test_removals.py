"""A predicate for the rows that a swap removes: shorter than their ids, for no other row."""

import random

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.storage import removals
from phalanx.storage.removals import predicate_of

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])
#: Two outer namespaces with three leaves each; each leaf has two versions.
TREE = [
    id
    for outer in ("v1$x", "v1$y'")
    for inner in (f"{outer}$1", f"{outer}$2", f"{outer}$10")
    for id in (inner, f"{inner}$dataset", f"{inner}$dataset$1", f"{inner}$dataset$2")
] + ["v1", "v1$x", "v1$y'", "__head", "__transaction$1", "__tag$v1$x", "v1$xx$1$dataset"]


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    monkeypatch.setattr(removals, "_MANY", 1)


def inside(*outer):
    return [id for id in TREE if any(id == o or id.startswith(f"{o}$") for o in outer)]


def selected(tmp_path, ids, predicate):
    """The ids of the rows that Lance removes."""
    rows = pa.table({"object_id": ids})
    dataset = lance.write_dataset(rows, tmp_path / "d", mode="overwrite")
    merge = dataset.merge_insert("object_id").when_not_matched_by_source_delete(predicate)
    merge.execute(rows.slice(0, 0))
    return set(ids) - set(dataset.to_table().column(0).to_pylist())


def predicate(removed, ids=TREE):
    return predicate_of(removed, lambda: pa.chunked_array([pa.array(ids)]))


def test_a_namespace_stands_for_everything_inside_of_it(tmp_path):
    removed = inside("v1$x", "v1$y'$2")
    text = predicate(removed)
    assert text.count("'v1") == 2
    assert selected(tmp_path, TREE, text) == set(removed)


def test_a_leaf_stands_for_its_timeline(tmp_path):
    removed = inside("v1$x$1$dataset")
    text = predicate(removed)
    assert text.count("'v1") == 1
    assert selected(tmp_path, TREE, text) == set(removed)


def test_rows_of_others_inside_of_a_namespace_stay(tmp_path):
    removed = inside("v1$x")
    for other in ("v1$x$theirs", "v1$x$1$theirs", "v1$x$1$dataset$3"):
        ids = [*TREE, other]
        assert selected(tmp_path, ids, predicate(removed, ids)) == set(removed)


def test_ids_without_a_row_do_no_harm(tmp_path):
    removed = [*inside("v1$x"), "v1$z", "v1$z$1$dataset", "v1$y'$3$dataset$1"]
    assert selected(tmp_path, TREE, predicate(removed)) == set(inside("v1$x"))


@pytest.mark.parametrize("seed", range(30))
def test_any_rows(tmp_path, seed):
    chance = random.Random(seed)
    ids = [id for id in TREE if chance.random() < 0.8]
    whole = inside(*chance.sample(TREE, 2))
    removed = sorted({*whole, *chance.sample(TREE, chance.randrange(1, 6))})
    text = predicate(removed, ids)
    assert selected(tmp_path, ids, text) == set(removed) & set(ids)


def test_a_few_ids_are_listed_without_reading_any(monkeypatch):
    monkeypatch.setattr(removals, "_MANY", 3)

    def fail():
        raise AssertionError("the manifest was read")

    assert predicate_of(["a", "b'"], fail) == "object_id IN ('a', 'b''')"


def test_a_table_after_leaves_were_removed(root):
    table = phalanx.create(root, SCHEMA, ["a", "b"])
    for _ in range(2):
        table.append([{"a": n // 4, "b": str(n)} for n in range(20)])
    table.delete("a < 2 OR b IN ('9', '10')")
    assert table.count() == 20
    assert len(table.partitions()) == 10
    assert table.check().ok
    manifest = lance.dataset(root / "__manifest").to_table(columns=["object_id", "object_type"])
    types = manifest.column("object_type").to_pylist()
    assert [types.count(name) for name in ("table", "table_version", "namespace")] == [10, 20, 14]
    table.append([{"a": 0, "b": "0"}])
    assert phalanx.open(root).count("a = 0") == 1
    table.delete("TRUE")
    assert phalanx.open(root).count() == 0
    assert table.check().ok
