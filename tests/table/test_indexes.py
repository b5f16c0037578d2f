"""Indexes: what they cover, and what becomes of them."""

import datetime as dt
import decimal
import json
import os

import lance
import numpy as np
import pyarrow as pa
import pytest

import phalanx
from phalanx.errors import InvalidInput
from phalanx.storage.leaf import Leaf
from phalanx.table import indexes as module

DIMENSION = 8
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("word", pa.string()),
        ("vec", pa.list_(pa.float32(), DIMENSION)),
    ]
)


def some_rows(ids, part="a", seed=0):
    ids = list(ids)
    numbers = np.random.default_rng([seed, *map(ord, part), len(ids)])
    vectors = numbers.normal(size=(len(ids), DIMENSION)).astype("f4")
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "part": pa.array([part] * len(ids)),
            "word": pa.array([f"common w{id % 7} n{id}" for id in ids]),
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION),
        }
    )


@pytest.fixture
def table(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    for number, part in enumerate("abc"):
        table.append(some_rows(range(number * 400, number * 400 + 400), part))
    return table


def index(table, name=None):
    rows = table.indexes().to_pylist()
    return rows[0] if name is None else next(row for row in rows if row["name"] == name)


def physical(table):
    """The names of the indexes in each leaf, with the fragments that each segment covers."""
    return {
        leaf.values["part"]: sorted(
            (entry.name, tuple(segment.fragment_ids))
            for entry in leaf.open().describe_indices()
            for segment in entry.segments
        )
        for leaf in table.scan().plan().leaves
    }


KINDS = {
    "BTREE": "id",
    "BITMAP": "part",
    "ZONEMAP": "id",
    "BLOOMFILTER": "id",
    "NGRAM": "word",
    "INVERTED": "word",
    "IVF_FLAT": "vec",
    "IVF_SQ": "vec",
    "IVF_PQ": "vec",
    "IVF_RQ": "vec",
    "IVF_HNSW_FLAT": "vec",
    "IVF_HNSW_SQ": "vec",
    "IVF_HNSW_PQ": "vec",
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_of_any_kind_covers_every_leaf(table, kind):
    column = KINDS[kind]
    report = table.create_index(column, kind, min_rows=1)
    assert (report.leaves, report.version) == (3, table.version)
    row = index(table)
    assert (row["name"], row["column"], row["kind"]) == (f"{column}_idx", column, kind)
    assert (row["leaves"], row["leaves_indexed"], row["leaves_behind"]) == (3, 3, 0)
    assert (row["rows_indexed"], row["rows_unindexed"]) == (1200, 0)
    assert table.count() == 1200
    assert table.check().ok
    assert phalanx.open(table.uri).indexes().to_pylist() == [row]


def test_an_index_is_one_snapshot(table):
    before = table.version
    table.create_index("id", "BTREE", min_rows=1)
    assert table.version == before + 1
    last = table.snapshots().to_pylist()[-1]
    assert (last["operation"], last["leaves"]) == ("create index", 3)
    assert phalanx.open(table.uri, before).indexes().num_rows == 0


def test_small_leaves_are_left_out(table):
    table.append(some_rows(range(5000, 5010), "tiny"))
    report = table.create_index("id", "BTREE", min_rows=100)
    assert report.notes == [
        "1 leaf has fewer than 100 rows, so a query reads all of them: min_rows sets that bound"
    ]
    row = index(table)
    assert (row["leaves"], row["leaves_indexed"], row["leaves_behind"]) == (4, 3, 0)
    assert (row["rows_indexed"], row["rows_unindexed"]) == (1200, 10)


def test_an_index_of_some_partitions(table):
    table.create_index("id", "BTREE", where="part IN ('a', 'd')", min_rows=1)
    table.append(some_rows(range(2000, 2100), "d"))
    table.append(some_rows(range(3000, 3100), "e"))
    table.refresh_indexes()
    assert {part for part, entries in physical(table).items() if entries} == {"a", "d"}


def test_appended_rows_and_new_leaves_wait_for_a_refresh(table):
    table.create_index("id", "BTREE", min_rows=1)
    table.append(some_rows(range(2000, 2100), "a"))
    table.append(some_rows(range(3000, 3100), "new"))
    row = index(table)
    assert (row["rows_indexed"], row["rows_unindexed"], row["leaves_behind"]) == (1200, 200, 2)
    assert table.count("id = 2005") == 1
    assert table.refresh_indexes().leaves == 2
    row = index(table)
    assert (row["rows_indexed"], row["rows_unindexed"], row["leaves_behind"]) == (1400, 0, 0)
    version = table.version
    assert table.refresh_indexes().version is None
    assert table.version == version


def test_many_segments_become_one(table):
    table.create_index("id", "BTREE", min_rows=1)
    for step in range(5):
        table.append(some_rows(range(2000 + 10 * step, 2010 + 10 * step), "a"))
        table.refresh_indexes()
    assert len(physical(table)["a"]) <= 4
    covered = sorted(id for _, fragments in physical(table)["a"] for id in fragments)
    assert covered == list(range(6))
    for id in (5, 2003, 2049):
        assert table.count(f"id = {id}") == 1


def test_deleted_and_updated_rows(table):
    table.create_index("id", "BTREE", min_rows=1)
    table.delete("id < 10")
    table.update({"word": "'other'"}, "id BETWEEN 20 AND 29")
    assert table.count("id = 5") == 0
    assert table.count("id = 25") == 1
    assert table.scan(["word"], "id = 25").to_arrow()["word"].to_pylist() == ["other"]
    table.refresh_indexes()
    assert index(table)["rows_unindexed"] == 0
    assert table.count("id = 25") == 1


def test_a_dropped_index_is_gone_from_the_leaves(table):
    table.create_index("id", "BTREE", min_rows=1)
    before = table.version
    table.drop_index("id_idx")
    assert physical(table) == {"a": [], "b": [], "c": []}
    assert table.indexes().num_rows == 0
    assert index(phalanx.open(table.uri, before))["rows_indexed"] == 1200
    with pytest.raises(InvalidInput, match="has no index 'id_idx'"):
        table.drop_index("id_idx")


def test_a_rollback_brings_indexes_back(table):
    table.create_index("id", "BTREE", min_rows=1)
    version = table.version
    table.drop_index("id_idx")
    table.append(some_rows(range(2000, 2100), "a"))
    table.rollback(version)
    assert index(table)["rows_indexed"] == 1200
    assert index(table)["rows_unindexed"] == 0
    table.rollback(version - 1)
    assert table.indexes().num_rows == 0
    assert table.check().ok


def test_a_renamed_column_keeps_its_index(table):
    table.create_index("id", "BTREE", min_rows=1)
    table.rename_column("id", "key")
    assert index(table)["column"] == "key"
    assert index(table)["rows_indexed"] == 1200
    # The next append brings the leaf up to the new schema.
    rows = some_rows(range(2000, 2100), "a").rename_columns(["key", "part", "word", "vec"])
    table.append(rows)
    table.refresh_indexes()
    assert index(table)["rows_unindexed"] == 0
    assert table.count("key = 2005") == 1


def test_the_filter_of_an_index_follows_a_renamed_column(table):
    table.create_index("id", "BTREE", where="part IN ('a', 'd')", min_rows=1)
    version = table.version
    table.rename_column("part", "the part")
    assert index(table)["where"] == """("the part" IN ('a', 'd'))"""
    for start, part in ((2000, "d"), (3000, "e")):
        rows = some_rows(range(start, start + 100), part)
        table.append(rows.rename_columns(["id", "the part", "word", "vec"]))
    table.refresh_indexes()
    assert index(table)["leaves"] == index(table)["leaves_indexed"] == 2
    table.rollback(version)
    assert index(table)["where"] == "part IN ('a', 'd')"
    table.refresh_indexes()


def test_a_column_that_the_filter_of_an_index_names_is_not_dropped(table):
    table.create_index("id", "BTREE", where="word <> 'x'", min_rows=1)
    with pytest.raises(InvalidInput, match=r"the index 'id_idx' is for .*: drop it before"):
        table.drop_column("word")
    table.drop_index("id_idx")
    table.drop_column("word")


def test_an_index_goes_with_its_column(table):
    table.create_index("id", "BTREE", min_rows=1)
    table.create_index("word", "INVERTED")
    version = table.version
    table.drop_column("id")
    assert table.indexes()["name"].to_pylist() == ["word_idx"]
    table.rollback(version)
    assert table.indexes()["name"].to_pylist() == ["id_idx", "word_idx"]


def test_a_widened_column_is_indexed_again_once_it_is_rewritten(root):
    schema = pa.schema([("n", pa.int32()), ("part", pa.string())])
    table = phalanx.create(root, schema, ["part"])
    table.append([{"n": n, "part": "a"} for n in range(100)])
    table.create_index("n", "BTREE", min_rows=1)
    table.change_type("n", pa.int64())
    assert table.count("n = 5") == 1
    table.append([{"n": 2**40, "part": "a"}])
    table.refresh_indexes()
    assert index(table)["rows_unindexed"] == 0
    assert table.count(f"n = {2**40}") == 1
    assert table.count("n = 5") == 1


def test_a_model_is_trained_when_there_are_rows_enough(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    table.append(some_rows(range(50)))
    table.create_index("vec", "IVF_PQ", min_rows=10, num_partitions=2, num_sub_vectors=4)
    assert index(table)["rows_indexed"] == 0
    table.append(some_rows(range(100, 700)))
    table.refresh_indexes()
    assert index(table)["rows_unindexed"] == 0


def test_leaves_share_the_model(table):
    table.create_index("vec", "IVF_FLAT", min_rows=1, num_partitions=4)
    centroids = [
        leaf.open().stats.index_stats("vec_idx")["indices"][0]["centroids"]
        for leaf in table.scan().plan().leaves
    ]
    assert centroids[0] == centroids[1] == centroids[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("id", "TREE"), "no index of kind 'TREE'"),
        (("ids", "BTREE"), "no column 'ids'"),
        (("id", "INVERTED"), "needs a string"),
        (("word", "IVF_FLAT"), "needs a list of fixed size"),
        (("vec", "BTREE"), "not nested"),
    ],
)
def test_what_cannot_be_indexed_is_refused(table, arguments, message):
    version = table.version
    with pytest.raises(InvalidInput, match=message):
        table.create_index(*arguments)
    assert phalanx.open(table.uri).version == version


def test_parameters_are_checked(table):
    for parameters, message in [
        ({"metric": "manhattan"}, "metric is one of"),
        ({"num_partitions": 0}, "at least 1"),
        ({"num_partitions": "4"}, "of type int"),
        ({"num_sub_vectors": 3}, "must divide 8"),
        ({"speed": 1}, "no parameter 'speed'"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            table.create_index("vec", "IVF_PQ", **parameters)
    with pytest.raises(InvalidInput, match="min_rows"):
        table.create_index("id", "BTREE", min_rows=0)
    table.create_index("id", "BTREE")
    with pytest.raises(InvalidInput, match="has an index 'id_idx' already"):
        table.create_index("id", "BITMAP")


def test_a_weak_table_has_no_indexes(root):
    table = phalanx.create(root, SCHEMA, ["part"], transactions="weak")
    with pytest.raises(InvalidInput, match="is weak"):
        table.create_index("id", "BTREE")


def test_an_empty_table_can_have_an_index(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    table.create_index("id", "BTREE", min_rows=1)
    table.create_index("vec", "IVF_PQ", min_rows=1)
    table.append(some_rows(range(600)))
    table.refresh_indexes()
    assert table.indexes()["rows_unindexed"].to_pylist() == [0, 0]


def test_vectors_that_are_null(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    table.append(some_rows(range(500)))
    table.append([{"id": id, "part": "nulls"} for id in range(600, 700)])
    table.create_index("vec", "IVF_FLAT", min_rows=1, num_partitions=2)
    assert index(table)["rows_unindexed"] == 0
    assert table.count() == 600


def fragmented(table):
    for step in range(3):
        table.append(some_rows(range(5000 + 100 * step, 5100 + 100 * step), "a"))
    return table


def test_optimize_compacts_indexed_files_and_indexes_them_again(table):
    table.create_index("id", "BTREE", min_rows=1)
    table.create_index("word", "INVERTED")
    fragmented(table).delete("id = 7")
    report = table.optimize()
    assert report.rewritten == 1
    for row in table.indexes().to_pylist():
        assert (row["rows_indexed"], row["rows_unindexed"]) == (1499, 0)
    assert len(physical(table)["a"]) == 2
    assert table.count("id = 5150") == 1
    assert table.check().ok


def test_rewritten_rows_are_indexed_in_their_new_leaves(table):
    table.create_index("id", "BTREE", min_rows=1)
    table.evolve_partitioning(["bucket(2, id)"])
    table.rewrite()
    row = index(table)
    assert (row["leaves"], row["rows_indexed"], row["rows_unindexed"]) == (2, 1200, 0)


def test_rows_that_are_written_meanwhile_do_not_interfere(table, monkeypatch):
    other, commit, calls = phalanx.open(table.uri), module._committed, []

    def late(*arguments):
        if not calls:
            calls.append(other.append(some_rows(range(9000, 9100), "a")))
            other.delete("id < 10")
        return commit(*arguments)

    monkeypatch.setattr(module, "_committed", late)
    table.create_index("id", "BTREE", min_rows=1)
    row = index(table)
    assert (row["rows_indexed"], row["rows_unindexed"]) == (1190, 100)
    assert table.count("id = 9005") == 1
    assert table.count("id = 5") == 0
    assert table.count("id = 15") == 1


def test_a_compaction_meanwhile_is_built_again(table, monkeypatch):
    fragmented(table)
    other, commit, calls = phalanx.open(table.uri), module._committed, []

    def late(*arguments):
        if not calls:
            calls.append(other.optimize(where="part = 'a'"))
        return commit(*arguments)

    monkeypatch.setattr(module, "_committed", late)
    table.create_index("id", "BTREE", min_rows=1)
    assert calls[0].rewritten == 1
    row = index(table)
    assert (row["rows_indexed"], row["rows_unindexed"]) == (1500, 0)
    assert table.count("id = 5150") == 1


def test_two_refreshes_at_once_cover_no_row_twice(table, monkeypatch):
    table.create_index("id", "BTREE", min_rows=1)
    table.append(some_rows(range(9000, 9100), "a"))
    other, commit, calls = phalanx.open(table.uri), module._committed, []

    def late(*arguments):
        if not calls:
            calls.append(True)
            other.refresh_indexes()
        return commit(*arguments)

    monkeypatch.setattr(module, "_committed", late)
    table.refresh_indexes()
    covered = [id for _, fragments in physical(table)["a"] for id in fragments]
    assert sorted(covered) == [0, 1]
    assert table.count("id = 9005") == 1


def test_vacuum_keeps_a_model_as_long_as_a_snapshot_needs_it(table):
    def models():
        return [name for name in os.listdir(table.uri) if name.startswith("__model_")]

    table.create_index("vec", "IVF_FLAT", min_rows=1, num_partitions=2)
    table.tag("indexed")
    table.drop_index("vec_idx")
    table.vacuum(dt.timedelta(0), force=True)
    assert len(models()) == 1
    old = phalanx.open(table.uri, "indexed")
    assert index(old)["rows_indexed"] == 1200
    table.drop_tag("indexed")
    assert len(table.vacuum(dt.timedelta(0), dry_run=True, force=True).folders) == 1
    table.vacuum(dt.timedelta(0), force=True)
    assert models() == []
    assert table.count() == 1200


def test_vacuum_keeps_the_files_of_indexes(table):
    table.create_index("id", "BTREE", min_rows=1)
    table.create_index("vec", "IVF_FLAT", min_rows=1, num_partitions=2)
    table.vacuum(dt.timedelta(0), force=True)
    again = phalanx.open(table.uri)
    assert again.indexes()["rows_unindexed"].to_pylist() == [0, 0]
    assert again.count("id = 5") == 1
    assert again.check().ok


def test_writers_must_know_indexes_as_long_as_there_are_some(table):
    """Others would write a head without their definitions."""

    def features():
        manifest = lance.dataset(f"{table.uri}/__manifest").to_table(filter="object_id = '__head'")
        return json.loads(json.loads(manifest["metadata"][0].as_py())["writer_features"])

    assert features() == []
    table.create_index("id", "BTREE", min_rows=1)
    assert features() == ["indexes"]
    table.append(some_rows(range(3)))
    assert features() == ["indexes"]
    table.drop_index("id_idx")
    assert features() == []


TYPES = pa.schema(
    [
        ("part", pa.string()),
        ("number", pa.int64()),
        ("small", pa.int32()),
        ("word", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 2)),
        ("yes", pa.bool_()),
    ]
)
FILTERS = {
    "number": ["number = 77", "number IN (1, 2, 3000)", "number > 2990", "number BETWEEN 5 AND 9"],
    "small": ["small = 7", "small < 3"],
    "word": ["word = 'w12'", "word IN ('w1', 'w2')", "word >= 'w99'"],
    "at": ["at = '2024-01-01T00:00:07Z'", "at < '2024-01-01T00:00:07Z'"],
    "day": ["day = '2024-01-09'", "day > '2024-03-30'"],
    "price": ["price = 7.00", "price > 2990"],
}


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """A table with an index on every column, and one without."""
    numbers = range(3000)
    rows = pa.table(
        {
            "part": ["ab"[n % 2] for n in numbers],
            "number": list(numbers),
            "small": [n % 100 for n in numbers],
            "word": [f"w{n % 100}" for n in numbers],
            "at": [
                dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=n) for n in numbers
            ],
            "day": [dt.date(2024, 1, 1) + dt.timedelta(days=n % 100) for n in numbers],
            "price": [decimal.Decimal(n) for n in numbers],
            "yes": [n % 3 == 0 for n in numbers],
        }
    ).cast(TYPES)
    folder = tmp_path_factory.mktemp("typed")
    tables = [phalanx.create(folder / name, TYPES, ["part"]) for name in ("indexed", "plain")]
    for table in tables:
        table.append(rows)
    for column in FILTERS:
        tables[0].create_index(column, "BTREE")
    return tables


@pytest.mark.parametrize(("column", "where"), [(c, w) for c, ws in FILTERS.items() for w in ws])
def test_a_filter_uses_the_index_and_changes_nothing(typed, column, where):
    indexed, plain = typed
    expected = plain.scan(where=where).to_arrow().sort_by("number")
    assert 0 < expected.num_rows < 1500
    assert indexed.scan(where=where).to_arrow().sort_by("number") == expected
    assert indexed.count(where) == expected.num_rows
    for leaf in indexed.scan(where=where).plan().leaves:
        handle = leaf.open()
        filter = Leaf(leaf.location, leaf.row.location, indexed._snapshot.head.schema)
        text = filter._mapping(handle).filter(leaf.where)
        assert "ScalarIndexQuery" in handle.scanner(filter=text).explain_plan(), text


@pytest.mark.parametrize(
    ("kind", "column", "filters"),
    [
        (
            "LABEL_LIST",
            "tags",
            [
                "array_has(tags, 't3')",
                "array_has_any(tags, make_array('t3', 't4'))",
                "array_has_all(tags, make_array('t3', 't4'))",
                "array_has(tags, 'none')",
                "tags IS NULL",
            ],
        ),
        (
            "NGRAM",
            "text",
            [
                "text LIKE '%brown fox 7%'",
                "text LIKE '%fox 12'",
                "text LIKE 'the%99%'",
                "text LIKE '%x%'",
                "text LIKE '%50\\%%'",
                "text NOT LIKE '%brown%'",
                "contains(text, 'fox 3')",
            ],
        ),
    ],
)
def test_lists_and_parts_of_texts_are_found_as_without_an_index(root, kind, column, filters):
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("part", pa.string()),
            ("tags", pa.list_(pa.string())),
            ("text", pa.string()),
        ]
    )
    table = phalanx.create(root, schema, ["part"])

    def rows(numbers):
        return [
            {
                "id": n,
                "part": "ab"[n % 2],
                "tags": None if n % 11 == 0 else [f"t{n % 5}", f"t{n % 7}"][: n % 3],
                "text": None if n % 13 == 0 else f"the brown fox {n}" if n % 3 else f"{n}50%",
            }
            for n in numbers
        ]

    def answers():
        return {w: sorted(table.scan("id", w).to_arrow()["id"].to_pylist()) for w in filters}

    table.append(rows(range(600)))
    before = answers()
    assert sum(map(bool, before.values())) >= len(filters) - 1
    table.create_index(column, kind, min_rows=1)
    assert answers() == before
    assert {w: table.count(w) for w in filters} == {w: len(ids) for w, ids in before.items()}
    table.append(rows(range(600, 700)))
    table.delete("id < 50")
    with_tail = answers()
    table.drop_index(f"{column}_idx")
    assert answers() == with_tail


def test_leaves_with_an_index_for_the_filter_are_read_by_themselves(typed):
    """Many leaves that are read as one have no index."""
    for table, alone in zip(typed, (True, False), strict=True):
        scan = table.scan(where="number = 77")
        units = list(scan._units(scan.plan().indices))
        assert [unit.small for unit in units] == ([False, False] if alone else [True])
    scan = typed[0].scan(where="yes")
    assert [unit.small for unit in scan._units(scan.plan().indices)] == [True]


def test_an_index_of_another_client_is_found_and_taken_over(table):
    table.set_properties({"anchor": "commit"})
    leaf = table.scan(where="part = 'b'").plan().leaves[0]
    lance.dataset(leaf.uri).create_scalar_index("id", "BTREE", name="theirs")
    (problem,) = [p for p in table.check().problems if p.kind == "foreign-index"]
    assert problem.harmless
    assert "theirs" in problem.what
    with pytest.raises(InvalidInput, match="no leaf"):
        table.take_over_index("others")
    table.take_over_index("theirs")
    row = index(table)
    assert (row["name"], row["column"], row["kind"]) == ("theirs", "id", "BTREE")
    assert [p for p in table.check().problems if p.kind == "foreign-index"] == []


def test_an_index_of_ours_that_was_dropped_is_not_another_clients(table):
    table.set_properties({"anchor": "commit"})
    table.create_index("id", "BTREE", min_rows=1)
    table.set_properties({"anchor": "never"})
    table.drop_index("id_idx")
    assert [p for p in table.check().problems if p.kind == "foreign-index"] == []


def test_progress(table, capsys):
    seen = []
    table.create_index("id", "BTREE", min_rows=1, progress=lambda *counts: seen.append(counts))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    table.append(some_rows(range(5000, 5100), "a"))
    table.refresh_indexes(progress=True)
    assert capsys.readouterr().err.endswith("1/1 leaves\n")
