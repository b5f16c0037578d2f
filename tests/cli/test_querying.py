"""Commands that read rows."""

import json

import pyarrow as pa
import pytest

import phalanx
from phalanx.cli.querying import name_of


def test_scan(events, run):
    code, out, err = run("scan", events.uri, "--where", "id > 108", "--columns", "id", "country")
    assert (code, err) == (0, "")
    assert out.splitlines()[2:] == ["109   DE", "110   DE"]
    _, out, _ = run("scan", events.uri, "--json", "--columns", "id")
    assert sorted(row["id"] for row in json.loads(out)) == [*range(18), 108, 109, 110]


def test_people_are_told_that_there_is_more(tmp_path, run):
    table = phalanx.create(tmp_path / "t", {"n": list(range(300))})
    _, out, err = run("scan", table.uri)
    assert len(out.splitlines()) == 102
    assert "the first 100 rows" in err
    _, out, err = run("scan", table.uri, "--limit", 200)
    assert (len(out.splitlines()), err) == (202, "")
    _, out, _ = run("scan", table.uri, "--json")
    assert len(json.loads(out)) == 300


def test_an_empty_result(events, run):
    _, out, _ = run("scan", events.uri, "--where", "id < 0", "--json")
    assert json.loads(out) == []
    assert run("scan", events.uri, "--where", "id < 0")[0] == 0


def test_count(events, run):
    assert run("count", events.uri) == (0, "21\n", "")
    assert run("count", events.uri, "country = 'US'", "--json")[1] == '{\n  "count": 6\n}\n'
    _, out, _ = run("count", events.uri, "--by", "country", "--json")
    counts = {row["country"]: row["count"] for row in json.loads(out)}
    assert counts == {None: 6, "DE": 9, "US": 6}


class TestSql:
    def test_only_the_partitions_that_are_needed_are_read(self, events, run):
        query = "SELECT count(*) AS n, min(id) AS low FROM events WHERE country = 'US'"
        code, out, err = run("sql", events.uri, query)
        assert code == 0
        assert out.splitlines()[-1].split() == ["6", "3"]
        assert err == "read events: 3 of 10 partitions, 6 rows\n"

    def test_times_prune(self, events, run):
        query = "SELECT id FROM t WHERE ts >= '2025-03-01' AND country IS NULL"
        code, out, _ = run("sql", events.uri, query, "--json", "--explain")
        assert code == 0
        (read,) = json.loads(out)["reads"]
        assert (read["partitions"], read["total"], read["columns"]) == (1, 10, ["id"])

    def test_two_tables(self, events, run, tmp_path):
        names = phalanx.create(tmp_path / "n", {"country": ["DE", "US"], "name": ["G", "A"]})
        query = (
            "SELECT name, count(*) AS n FROM events JOIN names USING (country) "
            "GROUP BY name ORDER BY name"
        )
        _, out, _ = run("sql", events.uri, query, "--with", f"names={names.uri}", "--json")
        assert json.loads(out) == [{"name": "A", "n": 6}, {"name": "G", "n": 9}]

    def test_an_earlier_version(self, events, run):
        _, out, _ = run("sql", events.uri, "SELECT count(*) AS n FROM t", "--at", 2, "--json")
        assert json.loads(out) == [{"n": 18}]

    @pytest.mark.parametrize(
        "query",
        [
            "SELECT * FROM nope",
            "SELEC 1",
            "DROP TABLE t",
            "CREATE TABLE x AS SELECT 1",
            "INSERT INTO t VALUES (1)",
            "COPY t TO 'x.parquet'",
            "SET datafusion.execution.batch_size = 1",
            "SELECT 1 / 0 FROM t",
        ],
    )
    def test_what_is_refused(self, events, run, query):
        code, _, err = run("sql", events.uri, query)
        assert code == 1
        assert err.startswith("phalanx: the query ")
        assert "Traceback" not in err

    @pytest.mark.parametrize(
        ("uri", "name"),
        [
            ("s3://bucket/events/", "events"),
            ("lake/my-table.lance", "my_table"),
            ("/", "t"),
            ("a", "a"),
        ],
    )
    def test_what_a_query_calls_a_table(self, uri, name):
        assert name_of(uri) == name


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    rows = pa.table(
        {
            "id": list(range(20)),
            "body": [f"text number {n}" if n else "partitioned tables" for n in range(20)],
            "v": pa.array([[float(n), 0.0] for n in range(20)], pa.list_(pa.float32(), 2)),
        }
    )
    uri = tmp_path_factory.mktemp("docs") / "docs"
    return phalanx.create(uri, rows, ["bucket(2, id)"])


class TestSearch:
    def test_by_vector(self, docs, run, tmp_path):
        words = ["search", docs.uri, "-k", 2, "--columns", "id", "--json"]
        code, out, _ = run(*words, "--vector", "[7.2, 0]")
        assert code == 0
        assert [row["id"] for row in json.loads(out)] == [7, 8]
        (tmp_path / "q.json").write_text("[3, 0]")
        _, out, _ = run(*words, "--vector", f"@{tmp_path}/q.json", "--where", "id > 3")
        assert [row["id"] for row in json.loads(out)] == [4, 5]

    def test_indexes(self, docs, run):
        code, out, _ = run("index", docs.uri, "body", "INVERTED", "--set", "stem=false", "--json")
        assert code == 0
        _, out, _ = run("index", docs.uri, "--json")
        (index,) = json.loads(out)
        assert (index["name"], index["kind"]) == ("body_idx", "INVERTED")
        assert json.loads(index["parameters"])["stem"] is False
        _, out, _ = run("search", docs.uri, "partitioned", "--json", "--columns", "id")
        assert [row["id"] for row in json.loads(out)] == [0]
        assert run("index", docs.uri, "--refresh")[0] == 0
        _, out, _ = run("index", docs.uri, "--drop", "body_idx", "--json")
        assert json.loads(out) == []

    @pytest.mark.parametrize(
        "words",
        [
            ["search", "{uri}"],
            ["search", "{uri}", "--vector", "nope"],
            ["search", "{uri}", "--vector", "@/no/such/file"],
            ["search", "{uri}", "--vector", "7"],
            ["index", "{uri}", "id"],
            ["index", "{uri}", "id", "BTREE", "--refresh"],
            ["index", "{uri}", "id", "NOPE"],
        ],
    )
    def test_refusals(self, docs, run, words):
        code, _, err = run(*(word.format(uri=docs.uri) for word in words))
        assert code == 1
        assert err.startswith("phalanx: ")
