"""Search and indexes in Spark: the same rows as in Python."""

import numpy as np
import pyarrow as pa
import pytest

import phalanx
from phalanx import Boolean, Match, Phrase
from phalanx.errors import InvalidInput
from phalanx.spark import search, searching

WORDS = ["fox", "dog", "cat", "lazy", "quick"]
QUERY = [0.1, -0.3, 0.7, 0.2]


@pytest.fixture
def docs(lake):
    """A table of documents in four partitions."""
    lake.sql(
        "CREATE TABLE {db}.docs (id BIGINT, tenant STRING, body STRING, v ARRAY<FLOAT>) "
        "USING phalanx PARTITIONED BY (tenant) TBLPROPERTIES ('vector.v.dimension' = '4')"
    )
    numbers = np.random.default_rng(3)
    table = lake.open("docs")
    table.append(
        [
            {
                "id": id,
                "tenant": "abcd"[id % 4],
                "body": " ".join(numbers.choice(WORDS, 1 + id % 7)),
                "v": numbers.normal(size=4).astype("f4").tolist(),
            }
            for id in range(400)
        ]
    )
    return lake


def rows(frame, *names):
    return [tuple(row[name] for name in names) for row in frame.collect()]


def expected(table, *names, **arguments):
    result = table.search(**arguments)
    return list(zip(*(result[name].to_pylist() for name in names), strict=True))


def test_indexes_by_procedures(docs):
    (row,) = docs.sql(
        "CALL lake.system.create_index(table => '"
        f"{docs.name}.docs', column => 'id', kind => 'btree', min_rows => 1)"
    ).collect()
    assert (row["indexes"], row["partitions"], row["notes"]) == ("id_idx", 4, "")
    assert row["version"] == docs.open("docs").version
    docs.sql(
        f"CALL lake.system.create_index(table => '{docs.name}.docs', column => 'v', "
        "kind => 'IVF_FLAT', min_rows => 1, options => 'metric=cosine, num_partitions=2')"
    )
    listed = docs.sql("SELECT * FROM {db}.docs.indexes ORDER BY name").collect()
    assert [row["name"] for row in listed] == ["id_idx", "v_idx"]
    assert [row["rows_indexed"] for row in listed] == [400, 400]
    assert "cosine" in listed[1]["parameters"]
    docs.sql("INSERT INTO {db}.docs SELECT id + 1000, tenant, body, v FROM {db}.docs")
    assert docs.rows("SELECT rows_unindexed FROM {db}.docs.indexes") == [(400,), (400,)]
    (row,) = docs.sql(f"CALL lake.system.refresh_indexes(table => '{docs.name}.docs')").collect()
    assert row["partitions"] == 4
    assert docs.rows("SELECT rows_unindexed FROM {db}.docs.indexes") == [(0,), (0,)]
    assert docs.rows("SELECT id FROM {db}.docs WHERE id = 1007") == [(1007,)]
    docs.sql(f"CALL lake.system.drop_index(table => '{docs.name}.docs', name => 'v_idx')")
    assert docs.rows("SELECT name FROM {db}.docs.indexes") == [("id_idx",)]


def test_what_is_wrong_is_said(docs):
    for arguments, message in [
        ("column => 'id', kind => 'tree'", "no index of kind"),
        ("column => 'v', kind => 'IVF_PQ', options => 'metric'", "name=value"),
        ("column => 'v', kind => 'IVF_PQ', options => 'num_partitions=x'", "cannot be 'x'"),
    ]:
        with pytest.raises(Exception, match=message):
            docs.sql(f"CALL lake.system.create_index(table => '{docs.name}.docs', {arguments})")


def test_a_vector(docs, spark):
    table = docs.open("docs")
    for where in (None, "tenant = 'b'", "id < 100"):
        frame = search(spark, docs["docs"], QUERY, k=7, where=where, columns=["id", "tenant"])
        assert frame.columns == ["id", "tenant", "_distance"]
        wanted = expected(table, "id", "_distance", vector=QUERY, k=7, where=where)
        assert rows(frame, "id", "_distance") == wanted
    assert rows(search(spark, str(docs.path / "docs"), QUERY, k=3), "id") == expected(
        table, "id", vector=QUERY, k=3
    )


def test_all_columns_and_an_index(docs, spark):
    table = docs.open("docs")
    table.create_index("v", "IVF_FLAT", min_rows=1, num_partitions=2)
    frame = search(spark, docs["docs"], QUERY, k=5, nprobes=2)
    assert frame.columns == ["id", "tenant", "body", "v", "_distance"]
    assert rows(frame, "id") == expected(table, "id", vector=QUERY, k=5, nprobes=2)


def test_many_queries_are_joined_with_the_table(docs, spark):
    vectors = [QUERY, [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]
    queries = spark.createDataFrame(
        [(f"q{number}", vector) for number, vector in enumerate(vectors)],
        "name STRING, query ARRAY<FLOAT>",
    )
    frame = search(spark, docs["docs"], queries=queries, query_column="query", k=4, columns=["id"])
    assert frame.columns == ["name", "query", "id", "_distance"]
    for number, vector in enumerate(vectors):
        mine = frame.where(f"name = 'q{number}'").orderBy("_distance")
        wanted = expected(docs.open("docs"), "id", vector=vector, k=4)
        assert rows(mine, "id") == wanted
    empty = search(spark, docs["docs"], queries=queries.limit(0), query_column="query")
    assert empty.count() == 0
    clash = queries.withColumnRenamed("name", "id")
    with pytest.raises(InvalidInput, match="both have id"):
        search(spark, docs["docs"], queries=clash, query_column="query")


def test_a_text_and_both(docs, spark):
    table = docs.open("docs")
    table.create_index("body", "INVERTED")
    frame = search(spark, docs["docs"], text="lazy fox", k=6)
    assert rows(frame, "id", "_score") == expected(table, "id", "_score", text="lazy fox", k=6)
    both = search(spark, docs["docs"], QUERY, text="lazy fox", k=6)
    wanted = expected(table, "id", "_relevance", vector=QUERY, text="lazy fox", k=6)
    assert rows(both, "id", "_relevance") == wanted


QUERIES = {
    "words": "lazy fox",
    "a phrase": Phrase("lazy fox"),
    "boolean": Boolean(must=[Match("fox")], should=[Match("dog")], must_not=[Match("cat")]),
    "nothing": "elephant",
    "similar words": Match("fix", fuzziness=1),
}


def test_texts_are_searched_in_parts_with_the_scores_of_all_leaves(docs, spark, monkeypatch):
    """The partitions differ in how rare a word is, and one has rows without an index."""
    table = docs.open("docs")
    table.create_index("body", "INVERTED")
    table.append([{"id": 900 + n, "tenant": "d", "body": "fox " * (n + 1)} for n in range(9)])
    table.append([{"id": 950, "tenant": "e", "body": "the lazy fox"}])
    tasks = []
    mapped = searching._mapped
    monkeypatch.setattr(
        searching,
        "_mapped",
        lambda spark, count, task: (
            tasks.append((type(task).__name__, count)) or mapped(spark, count, task)
        ),
    )
    for name, text in QUERIES.items():
        for where in (None, "tenant IN ('b', 'd') AND id < 950"):
            tasks.clear()
            frame = search(
                spark, docs["docs"], text=text, column="body", k=12, where=where, columns=["id"]
            )
            assert frame.columns == ["id", "_score"]
            wanted = expected(table, "id", "_score", text=text, column="body", k=12, where=where)
            assert rows(frame, "id", "_score") == wanted, name
            in_parts = [("CountWordsTask", 2), ("TextShareTask", 2)]
            assert tasks == ([("TextSearchTask", 1)] if name == "similar words" else in_parts)
    with pytest.raises(InvalidInput, match="no column 'none'"):
        search(spark, docs["docs"], text="fox", column="none")
    with pytest.raises(InvalidInput, match="k is a whole number"):
        search(spark, docs["docs"], text="fox", k=0)


def test_the_table_function(docs):
    table = docs.open("docs")
    numbers = ", ".join(f"CAST({number} AS FLOAT)" for number in QUERY)
    found = docs.sql(
        f"SELECT id, _distance FROM phalanx_search('{docs['docs']}', vector => array({numbers}), "
        "k => 5, filter => \"tenant = 'a'\") ORDER BY _distance"
    )
    wanted = expected(table, "id", "_distance", vector=QUERY, k=5, where="tenant = 'a'")
    assert rows(found, "id", "_distance") == [(id, pytest.approx(d)) for id, d in wanted]
    by_text = docs.sql(
        f"SELECT * FROM phalanx_search('{docs['docs']}', text => 'lazy', column => 'body', "
        "columns => array('id', 'body'), k => 3)"
    )
    assert by_text.columns == ["id", "body", "_score"]
    assert sorted(rows(by_text, "id")) == sorted(
        expected(table, "id", text="lazy", column="body", k=3)
    )


def test_the_table_function_in_a_lateral_join(docs):
    docs.sql("CREATE TABLE {db}.queries (name STRING, q ARRAY<FLOAT>) USING phalanx")
    queries = docs.open("queries")
    rows = {"name": ["x", "y"], "q": [QUERY, [1.0, 1.0, 1.0, 1.0]]}
    queries.append(pa.table(rows).cast(queries.schema))
    found = docs.rows(
        "SELECT queries.name, s.id FROM {db}.queries, "
        f"LATERAL phalanx_search('{docs['docs']}', vector => q, k => 2) s"
    )
    table = docs.open("docs")
    wanted = [("x", id) for (id,) in expected(table, "id", vector=QUERY, k=2)]
    wanted += [("y", id) for (id,) in expected(table, "id", vector=[1.0] * 4, k=2)]
    assert found == sorted(wanted, key=repr)


def test_a_table_function_that_makes_no_sense(docs):
    for arguments, message in [
        ("k => 3", "takes a vector, a text, or both"),
        ("text => 'a', speed => 3", "no argument 'speed'"),
    ]:
        with pytest.raises(Exception, match=message):
            docs.sql(f"SELECT * FROM phalanx_search('{docs['docs']}', {arguments})").collect()


def test_a_filter_on_an_indexed_column(docs):
    docs.open("docs").create_index("id", "BTREE", min_rows=1)
    assert docs.rows("SELECT id, tenant FROM {db}.docs WHERE id = 123") == [(123, "d")]
    assert docs.rows("SELECT count(*) FROM {db}.docs WHERE id IN (1, 2, 999)") == [(2,)]
    assert phalanx.open(docs.path / "docs").count("id = 123") == 1
