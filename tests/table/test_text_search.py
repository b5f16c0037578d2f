"""Full-text search: the rows and the order of one dataset that is not partitioned."""

import random

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lance.query import BooleanQuery, FullTextOperator, MatchQuery, Occur, PhraseQuery

import phalanx
from phalanx import Boolean, Match, Phrase
from phalanx.errors import InvalidInput

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("body", pa.string())])
WORDS = ["fox", "dog", "cat", "lazy", "quick", "running", "universe", "university", "foxes", "box"]


def texts(count, seed, tilt):
    """Texts whose words are rarer or more frequent depending on `tilt`."""
    chance = random.Random(seed)
    weights = [1 + (tilt * number) % 11 for number in range(len(WORDS))]
    return [
        " ".join(chance.choices(WORDS, weights, k=chance.randint(1, 3 + 3 * tilt)))
        for _ in range(count)
    ]


def some_rows(ids, part, tilt=1, seed=0):
    ids = list(ids)
    return [
        {"id": id, "part": part, "body": body}
        for id, body in zip(ids, texts(len(ids), seed + tilt, tilt), strict=True)
    ]


def some_table(root, rows=200):
    table = phalanx.create(root, SCHEMA, ["part"])
    for number, part in enumerate("abcd"):
        ids = range(number * 1000, number * 1000 + rows)
        table.append(some_rows(ids, part, tilt=number + 1))
    return table


@pytest.fixture
def table(root):
    table = some_table(root)
    table.create_index("body", "INVERTED")
    return table


def whole(table, folder, where=None):
    """The rows of a table as one dataset with a full-text index of its own."""
    one = lance.write_dataset(table.scan(where=where).to_arrow(), folder / "one", mode="overwrite")
    one.create_scalar_index("body", "INVERTED", with_position=True)
    return one


def agree(table, folder, query, lances, k=10, where=None):
    """Whether the result has the scores, and the rows, that Lance gives for one dataset."""
    one = whole(table, folder, where)
    every = one.to_table(full_text_query=lances, columns=["id", "_score"])
    expected = dict(zip(every["id"].to_pylist(), every["_score"].to_pylist(), strict=True))
    result = table.search(text=query, column="body", k=k, where=where, columns=["id"])
    ids, scores = result["id"].to_pylist(), result["_score"].to_pylist()
    best = sorted(expected.values(), reverse=True)[:k]
    np.testing.assert_allclose(scores, best, rtol=1e-5)
    np.testing.assert_allclose([expected[id] for id in ids], scores, rtol=1e-5)
    assert len(set(ids)) == len(ids)
    return ids


QUERIES = {
    "one word": ("fox", MatchQuery("fox", "body")),
    "two words": ("lazy box", MatchQuery("lazy box", "body")),
    "a word twice": ("fox fox dog", MatchQuery("fox fox dog", "body")),
    "a stem": ("universities run", MatchQuery("universities run", "body")),
    "all words": (
        Match("lazy quick fox", operator="and"),
        MatchQuery("lazy quick fox", "body", operator=FullTextOperator.AND),
    ),
    "similar words": (Match("dox", fuzziness=1), MatchQuery("dox", "body", fuzziness=1)),
    "a phrase": (Phrase("lazy quick"), PhraseQuery("lazy quick", "body")),
    "a combination": (
        Boolean(must=[Match("fox")], should=[Match("dog cat")], must_not=[Match("lazy")]),
        BooleanQuery(
            [
                (Occur.MUST, MatchQuery("fox", "body")),
                (Occur.SHOULD, MatchQuery("dog cat", "body")),
                (Occur.MUST_NOT, MatchQuery("lazy", "body")),
            ]
        ),
    ),
    "no such word": ("elephant", MatchQuery("elephant", "body")),
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("k", [1, 10, 10_000])
def test_the_order_is_that_of_one_dataset(table, tmp_path, name, k):
    agree(table, tmp_path, *QUERIES[name], k=k)


@pytest.mark.parametrize("name", QUERIES)
def test_rows_that_the_index_does_not_cover(table, tmp_path, name):
    table.append(some_rows(range(5000, 5100), "a", tilt=7))
    table.append(some_rows(range(6000, 6100), "new", tilt=3))
    assert table.indexes()["rows_unindexed"].to_pylist() == [200]
    agree(table, tmp_path, *QUERIES[name])


@pytest.mark.parametrize("name", QUERIES)
def test_a_column_without_an_index(root, tmp_path, name):
    agree(some_table(root, 60), tmp_path, *QUERIES[name])


@pytest.mark.parametrize("name", ["one word", "two words", "similar words", "a phrase"])
def test_after_deletes_the_scores_are_those_of_the_rows_that_are_left(table, tmp_path, name):
    table.delete("id % 3 = 0")
    agree(table, tmp_path, *QUERIES[name])
    table.update({"body": "'fox'"}, "id % 7 = 1")
    agree(table, tmp_path, *QUERIES[name])
    table.optimize()
    agree(table, tmp_path, *QUERIES[name])


def test_one_partition(table, tmp_path):
    for part in "abcd":
        ids = agree(table, tmp_path, *QUERIES["two words"], where=f"part = '{part}'")
        assert {id // 1000 for id in ids} == {"abcd".index(part)}


def test_a_filter_is_applied_before_the_search(table):
    result = table.search(text="fox", k=500, where="id % 10 = 3")
    everything = table.search(text="fox", k=5000)
    wanted = [id for id in everything["id"].to_pylist() if id % 10 == 3]
    assert sorted(result["id"].to_pylist()) == sorted(wanted)
    assert table.search(text="fox", k=5, where="id % 10 = 3").num_rows == 5
    table.append(some_rows(range(7003, 7004), "a") + some_rows(range(7004, 7005), "b"))
    again = table.search(text=" ".join(WORDS), k=5000, where="id IN (7003, 7004)")
    assert sorted(again["id"].to_pylist()) == [7003, 7004]


def test_the_snapshot_of_a_version(table):
    before = table.search(text="lazy", k=20)
    version = table.version
    table.delete("body LIKE '%lazy%'")
    assert table.search(text="lazy", k=20).num_rows == 0
    assert phalanx.open(table.uri, version).search(text="lazy", k=20) == before
    table.rollback(version)
    assert table.search(text="lazy", k=20) == before


def test_a_renamed_column(table):
    before = table.search(text="lazy", k=20, columns=["id"])
    table.rename_column("body", "words")
    assert table.search(text="lazy", k=20, columns=["id"]) == before
    assert table.search(text="lazy", column="words", k=20, columns=["id"]) == before


def test_empty_texts_and_nulls_are_not_found(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    assert table.search(text="fox", column="body").num_rows == 0
    rows = [{"id": 1, "part": "a", "body": None}, {"id": 2, "part": "a", "body": ""}]
    table.append([*rows, {"id": 3, "part": "b", "body": "a fox"}])
    assert table.search(text="fox", column="body")["id"].to_pylist() == [3]
    table.create_index("body", "INVERTED")
    assert table.search(text="fox")["id"].to_pylist() == [3]
    assert table.search(text="fox").schema.names == ["id", "part", "body", "_score"]


def test_the_parameters_of_the_index_count(root):
    table = phalanx.create(root, SCHEMA, ["part"])
    table.append([{"id": 1, "part": "a", "body": "The Foxes"}])
    table.create_index("body", "INVERTED", stem=False, remove_stop_words=False)
    table.append([{"id": 2, "part": "b", "body": "the fox"}])
    assert table.search(text="fox")["id"].to_pylist() == [2]
    assert sorted(table.search(text="the")["id"].to_pylist()) == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": ""}, "needs words"),
        ({"text": 7}, "needs words"),
        ({"text": "fox", "column": "id"}, "words are searched in strings"),
        ({"text": "fox", "column": "none"}, "no column 'none'"),
        ({"text": "fox", "k": 0}, "k is"),
        ({}, "takes a vector, a text, or both"),
    ],
)
def test_what_makes_no_sense_is_refused(table, arguments, message):
    with pytest.raises(InvalidInput, match=message):
        table.search(**arguments)


def test_queries_are_checked():
    for make, message in [
        (lambda: Match("x", operator="xor"), "operator"),
        (lambda: Match("x", fuzziness=5), "fuzziness"),
        (lambda: Phrase("x", slop=-1), "slop"),
        (lambda: Boolean(must_not=[Match("x")]), "must or should"),
        (lambda: Boolean(must=["x"]), "is a query"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            make()


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(st.sampled_from(["append", "new", "delete", "optimize", "refresh"]), max_size=4),
    words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
    k=st.integers(1, 30),
    seed=st.integers(0, 100),
)
def test_whatever_happens_the_order_is_that_of_one_dataset(tmp_path_factory, steps, words, k, seed):
    folder = tmp_path_factory.mktemp("t")
    table = some_table(folder / "table", 40)
    table.create_index("body", "INVERTED")
    for number, step in enumerate(steps):
        start = 10_000 * (number + 1)
        match step:
            case "append":
                table.append(some_rows(range(start, start + 30), "a", number + 2, seed))
            case "new":
                table.append(some_rows(range(start, start + 30), f"n{number}", number + 5, seed))
            case "delete":
                table.delete(f"id % 5 = {(seed + number) % 5}")
            case "optimize":
                table.optimize()
            case "refresh":
                table.refresh_indexes()
    query = " ".join(words)
    agree(table, folder, query, MatchQuery(query, "body"), k)


# Vector and text together

HYBRID = SCHEMA.append(pa.field("vec", pa.list_(pa.float32(), 4)))


@pytest.fixture
def hybrid(root):
    table = phalanx.create(root, HYBRID, ["part"])
    numbers = np.random.default_rng(5)
    for number, part in enumerate("abc"):
        rows = some_rows(range(number * 1000, number * 1000 + 100), part, tilt=number + 1)
        table.append([row | {"vec": numbers.normal(size=4).tolist()} for row in rows])
    table.create_index("body", "INVERTED")
    return table


def fused(table, vector, text, weights, k):
    ranks = {}
    near = table.search(vector, k=100, columns=["id"])["id"].to_pylist()
    matching = table.search(text=text, k=100, columns=["id"])["id"].to_pylist()
    for ids, weight in zip((near, matching), weights, strict=True):
        for rank, id in enumerate(ids, 1):
            ranks[id] = ranks.get(id, 0) + weight / (60 + rank)
    return sorted(ranks.values(), reverse=True)[:k], ranks


@pytest.mark.parametrize("weights", [(1.0, 1.0), (2.0, 0.5), (0.0, 1.0)])
def test_both_ranks_count(hybrid, weights):
    vector = [0.1, 0.2, 0.3, 0.4]
    result = hybrid.search(vector, text="lazy fox", k=10, weights=weights)
    best, ranks = fused(hybrid, vector, "lazy fox", weights, 10)
    np.testing.assert_allclose(result["_relevance"].to_pylist(), best)
    relevances = zip(result["id"].to_pylist(), result["_relevance"].to_pylist(), strict=True)
    assert all(ranks[id] == pytest.approx(value) for id, value in relevances)
    assert result.schema.names == [*HYBRID.names, "_relevance", "_distance", "_score"]
    assert result.num_rows == len(set(result["id"].to_pylist())) == 10


def test_a_search_by_both_in_one_partition(hybrid):
    result = hybrid.search([0.0] * 4, text="fox", where="part = 'b'", k=5, columns=["part"])
    assert set(result["part"].to_pylist()) == {"b"}
    assert result.num_rows == 5


def test_weights_and_vectors_of_a_search_by_both_are_checked(hybrid):
    for weights in [(1,), (-1, 2), (0, 0), "ab", None]:
        with pytest.raises(InvalidInput, match="weights"):
            hybrid.search([0.0] * 4, text="fox", weights=weights)
    with pytest.raises(InvalidInput, match="takes one vector"):
        hybrid.search([[0.0] * 4] * 2, text="fox")


def test_a_weak_table_is_searched_as_it_is(root, tmp_path):
    table = phalanx.create(root, SCHEMA, ["part"], transactions="weak")
    for number, part in enumerate("ab"):
        table.append(some_rows(range(1000 * number, 1000 * number + 50), part, number + 1))
    agree(table, tmp_path, *QUERIES["two words"])
    table.append(some_rows(range(3000, 3050), "a", 5))
    agree(table, tmp_path, *QUERIES["two words"])


class TestFuzzyIsTheSameWithAndWithoutIndex:
    """Words alike are looked for in the texts themselves, whatever an index covers."""

    @pytest.mark.parametrize("fuzziness", [1, 2, None])
    @pytest.mark.parametrize("word", ["lazzy", "foxx", "wordaz"])
    def test_rows(self, tmp_path, word, fuzziness):
        texts = ["lazily", "lazy", "foxes", "fox", "x1"]
        texts += [f"word{a}{b}" for a in "abcdefghijklmnop" for b in "abcdefgh"]
        rows = [{"id": n, "body": text} for n, text in enumerate(texts)]
        table = phalanx.create(tmp_path / "t", rows)
        query = phalanx.Match(word, fuzziness=fuzziness)

        def ids():
            hits = table.search(text=query, column="body", k=1000)
            return sorted(hits.column("id").to_pylist())

        plain = ids()
        table.create_index("body", "INVERTED", min_rows=1)
        assert ids() == plain
        table.append([{"id": 1000 + row["id"], "body": row["body"]} for row in rows])
        both = sorted([*plain, *(1000 + id for id in plain)])
        assert ids() == both
        table.refresh_indexes()
        assert ids() == both


def test_deleted_rows_are_not_counted_in_a_single_leaf(tmp_path):
    rows = [{"id": 1, "body": "fox"}, {"id": 2, "body": "dog"}, {"id": 3, "body": "dog"}]
    rows += [{"id": 100 + n, "body": "fox"} for n in range(50)]
    table = phalanx.create(tmp_path / "t", rows)
    table.create_index("body", "INVERTED", min_rows=1)
    table.delete("id >= 100")
    hits = table.search(text="fox dog", column="body").column("id").to_pylist()
    assert hits == [1, 2, 3]
