"""Vector search: the same neighbors as a look at every row of the snapshot gives."""

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import phalanx
from phalanx.errors import InvalidInput
from phalanx.storage import read_units, shortlist

DIMENSION = 8
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("n", pa.int32()),
        ("vec", pa.list_(pa.float32(), DIMENSION)),
    ]
)


def some_rows(ids, part, seed=0):
    ids = list(ids)
    numbers = np.random.default_rng([seed, *map(ord, part), *ids[:1]])
    vectors = numbers.normal(size=(len(ids), DIMENSION)).astype("f4")
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "part": pa.array([part] * len(ids)),
            "n": pa.array([id % 10 for id in ids], pa.int32()),
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION),
        }
    )


def some_table(root, parts="abc", rows=300):
    table = phalanx.create(root, SCHEMA, ["part"])
    for number, part in enumerate(parts):
        table.append(some_rows(range(number * rows, (number + 1) * rows), part))
    return table


@pytest.fixture
def table(root):
    return some_table(root)


QUERY = np.random.default_rng(99).normal(size=DIMENSION).astype("f4")
QUERIES = np.random.default_rng(98).normal(size=(7, DIMENSION)).astype("f4")


def distance(metric, vector, query=QUERY):
    vector, query = np.asarray(vector, "f8"), np.asarray(query, "f8")
    if metric == "dot":
        return 1 - vector @ query
    if metric == "cosine":
        return 1 - vector @ query / np.linalg.norm(vector) / np.linalg.norm(query)
    return ((vector - query) ** 2).sum()


def brute(table, k=10, where=None, metric="l2", query=QUERY, column="vec"):
    """The ids of the nearest rows, and their distances."""
    rows = table.scan(["id", column], where).to_arrow().to_pylist()
    pairs = [(distance(metric, row[column], query), row["id"]) for row in rows if row[column]]
    return [(id, value) for value, id in sorted(pairs)[:k]]


def agree(result, expected):
    assert result["id"].to_pylist() == [id for id, _ in expected]
    np.testing.assert_allclose(
        result["_distance"].to_numpy(), [value for _, value in expected], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("where", [None, "part = 'b'", "n = 3", "part <> 'a' AND n < 5"])
def test_without_an_index_the_result_is_exact(table, metric, where):
    agree(table.search(QUERY, k=12, where=where, metric=metric), brute(table, 12, where, metric))


def test_the_result_is_that_of_one_dataset(table, tmp_path):
    one = lance.write_dataset(table.scan().to_arrow(), tmp_path / "one")
    expected = one.to_table(nearest={"column": "vec", "q": QUERY, "k": 50}, columns=["id"])
    result = table.search(QUERY, k=50, columns=["id"])
    assert result["id"].to_pylist() == expected["id"].to_pylist()
    assert result["_distance"].to_pylist() == expected["_distance"].to_pylist()


EXACT = {
    "IVF_FLAT": {"nprobes": 4},
    "IVF_PQ": {"nprobes": 4, "refine_factor": 1000},
    "IVF_SQ": {"nprobes": 4, "refine_factor": 1000},
    "IVF_RQ": {"nprobes": 4, "refine_factor": 1000},
    "IVF_HNSW_FLAT": {"nprobes": 4, "ef": 1000},
    "IVF_HNSW_SQ": {"nprobes": 4, "ef": 1000, "refine_factor": 1000},
    "IVF_HNSW_PQ": {"nprobes": 4, "ef": 1000, "refine_factor": 1000},
}


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_with_an_index_that_looks_everywhere_the_result_is_exact(root, kind, metric):
    table = some_table(root)
    parameters = {"num_sub_vectors": 4} if "PQ" in kind else {}
    table.create_index("vec", kind, min_rows=1, num_partitions=4, metric=metric, **parameters)
    for where in (None, "part = 'b'", "n = 3"):
        result = table.search(QUERY, k=12, where=where, **EXACT[kind])
        agree(result, brute(table, 12, where, metric))


def test_another_metric_than_the_index_is_built_for(table):
    table.create_index("vec", "IVF_FLAT", min_rows=1, num_partitions=4)
    agree(table.search(QUERY, metric="cosine"), brute(table, metric="cosine"))


def test_several_queries(table):
    for indexed in (False, True):
        if indexed:
            table.create_index("vec", "IVF_PQ", min_rows=1, num_partitions=4, num_sub_vectors=4)
        result = table.search(QUERIES, k=5, nprobes=4, refine_factor=500)
        assert result.schema.names[0] == "query_index"
        for number, query in enumerate(QUERIES):
            mine = result.filter(pa.compute.equal(result["query_index"], number))
            agree(mine, brute(table, 5, query=query))
        assert result["query_index"].to_pylist() == sorted(result["query_index"].to_pylist())


def test_several_queries_in_one_partition(table):
    result = table.search(QUERIES.tolist(), k=3, where="part = 'a'", columns=["id"])
    assert result.schema.names == ["query_index", "id", "_distance"]
    for number, query in enumerate(QUERIES):
        mine = result.filter(pa.compute.equal(result["query_index"], number))
        agree(mine, brute(table, 3, "part = 'a'", query=query))


def test_an_index_that_covers_half_of_the_rows_loses_none(table):
    table.create_index("vec", "IVF_FLAT", min_rows=1, num_partitions=4)
    table.append(some_rows(range(2000, 2300), "a", seed=1))
    table.append(some_rows(range(3000, 3300), "new", seed=1))
    assert table.indexes()["rows_unindexed"].to_pylist() == [600]
    agree(table.search(QUERY, k=50, nprobes=4), brute(table, 50))
    agree(table.search(QUERY, k=50, nprobes=4, where="part = 'a'"), brute(table, 50, "part = 'a'"))


def test_a_search_sees_its_snapshot(table):
    table.create_index("vec", "IVF_FLAT", min_rows=1, num_partitions=4)
    versions = {table.version: brute(table)}
    nearest = [id for id, _ in brute(table, 4)]
    table.delete(f"id IN ({', '.join(map(str, nearest))})")
    versions[table.version] = brute(table)
    table.update({"part": "'moved'"}, "n = 1")
    versions[table.version] = brute(table)
    table.append(some_rows(range(5000, 5100), "a", seed=5))
    versions[table.version] = brute(table)
    table.optimize()
    versions[table.version] = brute(table)
    table.rename_column("vec", "embedding")
    table.add_column("extra", pa.int64(), 7)
    versions[table.version] = brute(table, column="embedding")
    table.rollback(min(versions))
    versions[table.version] = brute(table)
    for version, expected in versions.items():
        agree(phalanx.open(table.uri, version).search(QUERY, nprobes=4), expected)
    assert versions[min(versions)] == versions[max(versions)]


def test_columns_of_a_changed_schema(table):
    table.create_index("vec", "IVF_FLAT", min_rows=1, num_partitions=4)
    table.rename_column("vec", "embedding")
    table.rename_column("n", "number")
    table.change_type("number", pa.int64())
    table.add_column("extra", pa.int64(), 7)
    for where in ("part = 'a'", "extra = 7 AND number < 5", None):
        result = table.search(QUERY, "embedding", where=where, columns=["extra", "number", "id"])
        assert result.schema.names == ["extra", "number", "id", "_distance"]
        assert result.schema.field("number").type == pa.int64()
        assert set(result["extra"].to_pylist()) == {7}
        agree(result, brute(table, where=where, column="embedding"))


def test_a_leaf_without_the_column_has_nothing_to_find(root):
    table = phalanx.create(root, SCHEMA.remove(3), ["part"])
    table.append(some_rows(range(100), "a").drop_columns("vec"))
    table.add_column("vec", SCHEMA.field("vec").type)
    assert table.search(QUERY).num_rows == 0
    assert table.search(QUERY, where="part = 'a'").schema == table.search(QUERY).schema
    table.append(some_rows(range(100, 200), "b"))
    agree(table.search(QUERY), brute(table))


def test_null_vectors_are_not_found(root):
    table = some_table(root, "ab", 20)
    table.append([{"id": id, "part": "a", "n": 1} for id in range(100, 120)])
    agree(table.search(QUERY, k=100), brute(table, 100))
    assert table.search(QUERY, k=100).num_rows == 40
    assert table.search(QUERY, k=100, where="part = 'a'").num_rows == 20


def test_k_larger_than_the_table(table):
    assert table.search(QUERY, k=5000).num_rows == 900
    table.create_index("vec", "IVF_PQ", min_rows=1, num_partitions=2, num_sub_vectors=4)
    assert table.search(QUERY, k=5000, nprobes=2).num_rows == 900


def test_an_empty_table_and_an_empty_result(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    empty = table.search(QUERY)
    assert empty.num_rows == 0
    assert empty.schema.names == ["id", "part", "n", "vec", "_distance"]
    assert table.search(QUERIES).schema.names[0] == "query_index"
    table.append(some_rows(range(50), "a"))
    assert table.search(QUERY, where="part = 'x'").schema == empty.schema
    assert table.search(QUERY, where="n = 77").num_rows == 0


def test_columns_may_be_few_or_none(table):
    assert table.search(QUERY, columns=["n"]).schema.names == ["n", "_distance"]
    assert table.search(QUERY, columns=[]).num_rows == 10
    assert table.search(QUERY, columns=[], where="part = 'a'").schema.names == ["_distance"]


def test_many_small_leaves_are_searched_together(root, monkeypatch):
    table = phalanx.create(root, SCHEMA, ["part"])
    parts = [some_rows(range(20 * n, 20 * n + 20), f"p{n:02}") for n in range(40)]
    table.append(pa.concat_tables(parts))
    agree(table.search(QUERY, k=30), brute(table, 30))
    table.delete("id = 3")
    agree(table.search(QUERY, k=30, where="n < 5"), brute(table, 30, "n < 5"))
    monkeypatch.setattr(read_units, "_SMALL_ROWS", 0)
    agree(table.search(QUERY, k=30), brute(table, 30))


def test_rows_at_the_same_distance_have_a_fixed_order(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    for part in "cab":
        rows = [{"id": ord(part) * 10 + n, "part": part, "vec": [1.0] * 8} for n in range(3)]
        table.append(rows)
    first = table.search(QUERY, k=9)["id"].to_pylist()
    assert first == sorted(first)
    assert all(table.search(QUERY, k=9)["id"].to_pylist() == first for _ in range(5))


def test_a_weak_table_is_searched_as_it_is(root):
    table = phalanx.create(root, SCHEMA, ["part"], transactions="weak")
    for part in "ab":
        table.append(some_rows(range(ord(part) * 100, ord(part) * 100 + 50), part))
    agree(table.search(QUERY), brute(table))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0],), "has 2 dimensions, and the vectors of 'vec' have 8"),
        ((["a"] * 8,), "vector of numbers"),
        (([],), "vector of numbers"),
        (([float("nan")] * 8,), "NaN"),
        ((QUERY, "id"), "no column 'id' of vectors"),
        ((QUERY, "vec", 0), "k is"),
        ((QUERY, "vec", 10, "nothing = 1"), "nothing"),
        ((QUERY, "vec", 10, None, ["nothing"]), "unknown column"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(table, arguments, message):
    with pytest.raises(InvalidInput, match=message):
        table.search(*arguments)


def test_recall_of_a_compressed_index(root):
    table = some_table(root, "abcd", 1000)
    table.create_index("vec", "IVF_PQ", min_rows=1, num_partitions=8, num_sub_vectors=4)
    expected = {id for id, _ in brute(table, 20)}
    result = table.search(QUERY, k=20, nprobes=8, refine_factor=10)
    assert len(expected & set(result["id"].to_pylist())) >= 18


PQ = {"kind": "IVF_PQ", "min_rows": 1, "num_partitions": 4, "num_sub_vectors": 4}


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_many_leaves_are_searched_by_their_codes(root, monkeypatch, metric):
    table = some_table(root, "abcdef", 200)
    table.create_index("vec", metric=metric, **PQ)
    searched = []
    candidates = shortlist.candidates
    monkeypatch.setattr(
        shortlist,
        "candidates",
        lambda *arguments: searched.append(len(arguments[1])) or candidates(*arguments),
    )

    def check(leaves, where=None, k=15):
        searched.clear()
        result = table.search(QUERY, k=k, where=where, nprobes=4, refine_factor=200)
        agree(result, brute(table, k, where, metric))
        assert searched == ([leaves] if leaves and metric != "dot" else [])

    check(6)
    check(5, "part <> 'a'")
    check(None, "n = 3")  # a filter is left to Lance
    check(6, k=2000)
    table.delete("id = 5")
    check(5)  # and so are deleted rows
    table.append(some_rows(range(5000, 5100), "b", seed=3))
    check(4)  # and rows without an index
    table.refresh_indexes()
    check(4)
    table.optimize()
    check(6)
    table.append(some_rows(range(6000, 6100), "new", seed=4))
    check(6)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize(("k", "nprobes"), [(1, 1), (7, 3), (60, 2), (3000, 1)])
def test_codes_give_a_batch_what_they_give_its_vectors_one_by_one(coded, metric, k, nprobes):
    queries = np.random.default_rng(5).normal(size=(20, DIMENSION)).astype("f4")
    queries[3] = 0 if metric == "l2" else queries[4]
    options = {"k": k, "nprobes": nprobes, "columns": ["id"], "refine_factor": 1}
    batch = coded[metric].search(queries, **options)
    numbers = batch["query_index"].to_numpy()
    for number, query in enumerate(queries):
        single = coded[metric].search(query, **options)
        mine = batch.filter(pa.array(numbers == number))
        assert mine["id"].to_pylist() == single["id"].to_pylist()
        assert mine["_distance"].to_pylist() == single["_distance"].to_pylist()


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    """Tables whose leaves are searched by their codes, by metric."""
    tables = {}
    for metric in ("l2", "cosine"):
        tables[metric] = some_table(tmp_path_factory.mktemp("coded") / metric, "abcdef", 200)
        tables[metric].create_index("vec", metric=metric, **PQ | {"num_partitions": 16})
    return tables


def test_a_search_by_codes_finds_as_many_rows_as_there_are(root):
    table = some_table(root, "abcdef", 100)
    table.create_index("vec", **PQ | {"num_partitions": 32})
    assert table.search(QUERY, k=400, nprobes=1, refine_factor=1).num_rows == 400
    assert table.search(QUERY, k=4000, nprobes=1).num_rows == 600


def test_a_search_by_codes_finds_what_lance_finds(root, monkeypatch):
    """As many of the true neighbors, with the same probes and candidates."""
    table = some_table(root, "abcdefgh", 1000)
    table.create_index("vec", **PQ | {"num_partitions": 16, "num_sub_vectors": 2})
    options = {"k": 10, "nprobes": 4, "refine_factor": 3, "columns": ["id"]}
    queries = np.random.default_rng(7).normal(size=(40, DIMENSION)).astype("f4")
    wanted = table.search(queries, use_index=False, k=10, columns=["id"])
    by_codes = table.search(queries, **options)
    monkeypatch.setattr(shortlist, "can_search", lambda *arguments: False)
    by_lance = table.search(queries, **options)

    def hits(result):
        pairs = [
            set(zip(r["query_index"].to_pylist(), r["id"].to_pylist(), strict=True))
            for r in (result, wanted)
        ]
        return len(pairs[0] & pairs[1])

    assert hits(by_codes) >= 0.97 * hits(by_lance)
    assert hits(by_codes) > 200


STEPS = st.lists(
    st.sampled_from(["append", "new", "delete", "update", "optimize", "refresh", "rollback"]),
    min_size=1,
    max_size=6,
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS, kind=st.sampled_from(["IVF_FLAT", "IVF_PQ"]), seed=st.integers(0, 1000))
def test_whatever_happens_the_search_agrees_with_a_scan(tmp_path_factory, steps, kind, seed):
    table = some_table(tmp_path_factory.mktemp("t") / "table", "abcde", 300)
    parameters = {"num_sub_vectors": 4} if kind == "IVF_PQ" else {}
    table.create_index("vec", kind, min_rows=100, num_partitions=2, **parameters)
    first = table.version
    for number, step in enumerate(steps):
        start = 10_000 * (number + 1)
        match step:
            case "append":
                table.append(some_rows(range(start, start + 150), "a", seed))
            case "new":
                table.append(some_rows(range(start, start + 150), f"n{number}", seed))
            case "delete":
                table.delete(f"n = {(seed + number) % 10}")
            case "update":
                table.update({"n": "n + 1"}, f"n = {(seed + number) % 10}")
            case "optimize":
                table.optimize()
            case "refresh":
                table.refresh_indexes()
            case "rollback":
                table.rollback(first)
        for where in (None, "part = 'a'", "n < 5"):
            result = table.search(QUERY, k=15, where=where, nprobes=2, refine_factor=1000)
            agree(result, brute(table, 15, where))


class TestDefaults:
    """A leaf without the column holds its default."""

    @pytest.mark.parametrize("use_index", [True, False])
    def test_rows_are_found(self, tmp_path, use_index):
        rows = [{"id": 1, "k": "a"}, {"id": 2, "k": "b"}, {"id": 3, "k": "b"}]
        table = phalanx.create(tmp_path / "t", rows, ["k"])
        table.add_column("w", pa.list_(pa.float32(), 2), default=[1.0, 2.0])
        hits = table.search([1, 2], column="w", columns=["id", "w"], use_index=use_index)
        assert hits.column("id").to_pylist() == [1, 2, 3]
        assert hits.column("_distance").to_pylist() == [0, 0, 0]
        table.append([{"id": 4, "k": "a", "w": [1.0, 3.0]}])
        hits = table.search([[1, 3], [1, 2]], column="w", k=2, where="id <> 3", columns=["id"])
        assert hits.to_pylist() == [
            {"query_index": 0, "id": 4, "_distance": 0.0},
            {"query_index": 0, "id": 1, "_distance": 1.0},
            {"query_index": 1, "id": 1, "_distance": 0.0},
            {"query_index": 1, "id": 2, "_distance": 0.0},
        ]

    def test_without_a_default_there_is_no_vector(self, tmp_path):
        table = phalanx.create(tmp_path / "t", [{"id": 1}])
        table.add_column("w", pa.list_(pa.float32(), 2))
        assert table.search([1, 2], column="w").num_rows == 0


def test_a_small_ef_is_raised_to_what_is_needed(tmp_path):
    vectors = np.random.default_rng(1).random((600, 8), np.float32)
    schema = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.float32(), 8))])
    rows = pa.table({"id": np.arange(600), "v": vectors.tolist()}, schema)
    table = phalanx.create(tmp_path / "t", rows)
    table.create_index("v", "IVF_HNSW_SQ", min_rows=1, num_partitions=1)
    assert table.search(vectors[0], k=10, ef=3).num_rows == 10
