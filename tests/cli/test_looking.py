"""Commands that look: what they say is what the table says."""

import json

import pytest

import phalanx


def test_info(events, run):
    code, out, err = run("info", events.uri)
    assert (code, err) == (0, "")
    lines = dict(line.split("  ", 1) for line in out.splitlines()[1:])
    assert lines["rows"].strip() == "21"
    assert lines["partitioned by"].strip() == "country"
    assert lines["specs"].strip() == "v1 (9 leaves), v2 (1 leaf)"
    code, out, _ = run("info", events.uri, "--json", "--at", "2")
    found = json.loads(out)
    assert (found["version"], found["rows"], found["leaves"]) == (2, 18, 9)
    assert found["columns"][0] == {
        "id": 0,
        "name": "id",
        "type": "int64",
        "nullable": False,
        "default": None,
        "partition_fields": [],
    }


def test_schema(events, run):
    code, out, _ = run("schema", events.uri)
    assert code == 0
    assert out.splitlines()[0].split() == [
        *("id", "column", "type", "null", "default", "partitioned", "by")
    ]
    assert "spec v1 (earlier, 9 leaves): year(ts), month(ts), country" in out
    assert "spec v2 (for new rows, 1 leaf): country" in out


def test_head(events, run):
    code, out, _ = run("head", events.uri, "-n", 2, "--columns", "id", "country")
    assert code == 0
    assert len(out.splitlines()) == 4
    assert out.splitlines()[0].split() == ["id", "country"]
    _, out, _ = run("head", events.uri, "--json", "-n", 1)
    assert json.loads(out) == [{"id": 6, "ts": "2025-01-05T00:00:00+00:00", "country": None}]


def test_describe_draws_the_tree(events, run):
    code, out, _ = run("describe", events.uri, "--depth", 2)
    assert code == 0
    lines = [line for line in out.splitlines() if "ts_month=" in line]
    assert len(lines) == 3
    assert lines[0].lstrip(" ├│").startswith("── ts_month=1  ████")
    assert lines[0].endswith("leaves")
    assert "country=US" not in out  # it is one level further down
    _, out, _ = run("describe", events.uri, "--limit", 1)
    assert "… 2 more with 12 rows in 6 leaves" in out


def test_describe_in_json(events, run):
    _, out, _ = run("describe", events.uri, "--json")
    first, second = json.loads(out)["tree"]
    months = first["children"][0]["children"]
    assert [month["name"] for month in months] == ["ts_month=1", "ts_month=2", "ts_month=3"]
    assert [country["value"] for country in months[0]["children"]] == [None, "DE", "US"]
    assert (second["rows"], second["children"][0]["value"]) == (3, "DE")


def test_skew_is_said(tmp_path, run):
    import phalanx

    rows = {"k": [*("abc"), *("d" * 20_000)], "n": list(range(20_003))}
    table = phalanx.create(tmp_path / "t", rows, ["k"])
    _, out, _ = run("describe", table.uri, "--by", "bytes")
    assert "skewed: the largest has" in out


def test_partitions(events, run):
    code, out, _ = run("partitions", events.uri, "--where", "WHERE country = 'US'", "--json")
    assert code == 0
    found = json.loads(out)
    assert {row["country"] for row in found} == {"US"}
    assert all(row["uri"].startswith(events.uri) for row in found)
    _, out, _ = run("partitions", events.uri, "--limit", 1, "--sort-by", "rows")
    assert "1 of 10: give --limit for more" in out
    assert "uri" not in out


def test_explain_says_which_leaves_survive_and_why(events, run):
    where = "WHERE country = 'US' AND ts >= '2025-03-01' AND id > 5"
    code, out, _ = run("explain", events.uri, where)
    assert code == 0
    assert "1 of 10 (9 pruned, 90.0%)" in out
    assert "read    ts_year=2025 / ts_month=3 / country=US  2 rows  filter: id >= 6" in out
    assert "pruned  ts_year=2025 / ts_month=1 / country=NULL  ts_month = 1 does not fit ts" in out
    assert "… and 4 more" in out
    _, out, _ = run("explain", events.uri, where, "--json", "--limit", 100)
    found = json.loads(out)
    assert (found["total"], found["selected"], len(found["pruned_leaves"])) == (10, 1, 9)
    assert [(step["field"], step["before"], step["after"]) for step in found["steps"]] == [
        ("ts_year", 9, 9),
        ("ts_month", 9, 3),
        ("country", 3, 1),
        ("country", 1, 0),
    ]
    assert found["pruned_leaves"][-1]["reason"] == "country = DE does not fit country = 'US'"
    assert found["leaves"][0]["residual"] == "id >= 6"


def test_snapshots(events, run):
    code, out, _ = run("snapshots", events.uri)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["4", "3", "2", "1"]
    _, out, _ = run("snapshots", events.uri, "--json", "--limit", 1)
    (newest,) = json.loads(out)
    assert (newest["version"], newest["operation"], newest["rows_added"]) == (4, "append", 3)


def test_diff(events, run):
    code, out, _ = run("diff", events.uri, 1, 2)
    assert code == 0
    assert "rows        0 -> 18" in out
    _, out, _ = run("diff", events.uri, "3", "--json")
    found = json.loads(out)
    assert (found["before"]["version"], found["after"]["version"]) == (3, 4)
    assert found["leaves"][0]["partition"] == "country=DE"


@pytest.mark.parametrize(
    "words",
    [
        ["info", "{uri}", "--at", "99"],
        ["explain", "{uri}", "nope = 1"],
        ["head", "{uri}", "--columns", "nope"],
        ["partitions", "{uri}", "--where", "country ="],
        ["diff", "{uri}", "no-such-tag"],
    ],
)
def test_refused_with_one_sentence(events, run, words):
    code, out, err = run(*(word.format(uri=events.uri) for word in words))
    assert (code, out) == (1, "")
    assert err.startswith("phalanx: ")
    assert len(err.splitlines()) == 1


def test_a_query_where_a_filter_belongs(events, run):
    for words in (("explain", events.uri), ("count", events.uri), ("scan", events.uri, "--where")):
        code, _, err = run(*words, "select * FROM events WHERE id = 1")
        assert code == 1
        assert "a filter is what stands after WHERE" in err
        assert "phalanx sql" in err
    assert run("count", events.uri, " where\n id = 1")[0] == 0


def test_values_that_look_like_none(tmp_path, run):
    values = ["", "NULL", None, " a", "b"]
    table = phalanx.create(tmp_path / "t", {"p": values, "n": [1] * 5}, partition_by=["p"])
    names = ["p=''", "p='NULL'", "p=NULL", "p=' a'", "p=b"]
    for words in (("explain", table.uri, "n > 0"), ("describe", table.uri)):
        _, out, _ = run(*words)
        assert all(f"{name} " in out for name in names), out
    assert all(f" {name} " in table.scan(where="n > 0").explain() for name in names)
