"""Commands that make and change tables."""

import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import phalanx
from phalanx.cli import main
from phalanx.cli.types import schema_of
from phalanx.errors import InvalidInput
from tests.interop.trees import write_leaf


def test_create_and_append(run, tmp_path):
    uri = tmp_path / "t"
    code, out, _ = run(
        *("create", uri, "id BIGINT NOT NULL", "country STRING"),
        *("--partition-by", "country", "bucket(2, id)"),
        *("--property", "retention.snapshots=30 days"),
    )
    assert (code, out) == (0, f"{uri}: version 1 with 0 rows in 0 partitions\n")
    table = phalanx.open(uri)
    assert [field.field_id for field in table.spec.fields] == ["country", "id_bucket"]
    assert not table.schema.field("id").nullable
    assert table.properties["retention.snapshots"] == "30 days"
    rows = pa.table({"id": [1, 2], "country": ["A", None]})
    pq.write_table(rows, tmp_path / "a.parquet")
    pyarrow.csv.write_csv(pa.table({"id": [3], "country": ["B"], "n": [7]}), tmp_path / "b.csv")
    files = [tmp_path / "a.parquet", tmp_path / "b.csv"]
    code, _, err = run("append", uri, *files)
    assert code == 1
    assert "no column 'n'" in err
    assert phalanx.open(uri).count() == 0
    words = ["append", uri, *files, "--merge-schema", "--transaction-id", "x"]
    code, out, _ = run(*words)
    assert (code, out) == (
        0,
        f"{uri}: version 2, 3 rows added and 0 rows removed in 3 partitions\n",
    )
    code, out, _ = run(*words, "--json")
    assert json.loads(out)["version"] == 2  # it was committed before
    assert phalanx.open(uri).count() == 3


def test_create_from_files(run, tmp_path):
    pq.write_table(pa.table({"id": [1, 2], "k": ["a", "b"]}), tmp_path / "x.parquet")
    source = f"{tmp_path}/*.parquet"
    code, out, _ = run("create", tmp_path / "t", "--from", source, "--partition-by", "k", "--json")
    assert code == 0
    assert json.loads(out)["rows"] == 2
    for words in ([], ["id INT", "--from", source]):
        code, _, err = run("create", tmp_path / "u", *words)
        assert code == 1
        assert "--from" in err


def test_columns_as_in_sql():
    schema = schema_of(
        ("id BIGINT NOT NULL", '"a ""b" string', "ts timestamp", "d DECIMAL(10, 2)", "v vector(3)")
    )
    assert schema == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ('a "b', pa.string()),
            ("ts", pa.timestamp("us", "UTC")),
            ("d", pa.decimal128(10, 2)),
            ("v", pa.list_(pa.float32(), 3)),
        ]
    )
    (field,) = schema_of(("tags array<array<int>>",))
    assert field.type == pa.list_(pa.list_(pa.int32()))
    (field,) = schema_of(("t timestamp[ns]",))
    assert field.type == pa.timestamp("ns")


@pytest.mark.parametrize("text", ["id", "", "id nope", "id DECIMAL(99, 2)", "id array<nope>"])
def test_texts_that_are_no_columns(text):
    with pytest.raises(InvalidInput, match="write"):
        schema_of((text,))


def test_tags_and_rollback(run, tmp_path):
    table = phalanx.create(tmp_path / "t", {"n": [1]}).append({"n": [2]})
    assert run("tag", table.uri) == (0, f"{table.uri} has no tags\n", "")
    assert run("tag", table.uri, "first", 1)[1] == "first -> 1\n"
    _, out, _ = run("tag", table.uri, "now", "--json")
    assert json.loads(out)["tags"] == {"first": 1, "now": 3}
    code, out, _ = run("rollback", table.uri, "first")
    assert code == 0
    assert out.endswith("has what version 1 had\n")
    assert phalanx.open(table.uri).count() == 1
    assert run("tag", table.uri, "first", "--drop")[1] == "now -> 3\n"
    code, _, err = run("rollback", table.uri, "first")
    assert code == 1
    assert "no tag 'first'" in err


def test_a_weak_table_becomes_strong(run, tmp_path):
    uri = tmp_path / "t"
    run("create", uri, "n INT", "--weak")
    phalanx.open(uri).append({"n": [1]})
    code, _, err = run("rewrite", uri)
    assert code == 1
    assert f"`phalanx evolve {uri} --strong`" in err
    assert run("evolve", uri, "--strong")[0] == 0
    assert run("rewrite", uri)[0] == 0


def test_upgrade_takes_trees(run, tmp_path):
    for country in ("DE", "US"):
        write_leaf(tmp_path / "tree", f"country={country}.lance", [{"id": 1}])
    code, out, _ = run("upgrade", tmp_path / "tree", "--json")
    assert code == 0
    assert json.loads(out)["version"] == 1
    assert run("check", tmp_path / "tree")[0] == 0


def test_usage(events, capsys):
    for words in (
        ["import", "t", "p", "--partition-by", "a", "--unpartitioned"],
        ["tag", "t", "--drop"],
        ["create", "t", "--layout", "nope"],
        ["nope"],
        ["head", "t", "-n", "-1"],
        ["describe", "t", "--limit", "0"],
        ["append", "t"],
    ):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 2
        assert "Error:" in capsys.readouterr().err


def test_a_file_where_columns_belong(run, tmp_path):
    code, _, err = run("create", tmp_path / "t", "o.csv")
    assert code == 1
    assert "o.csv is a file and no column: take its rows with --from o.csv" in err
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (["a, b"], ["a", "b"]),
        (["a,bucket(4, id)", "b"], ["a", "id_bucket", "b"]),
        (["multi_bucket(4, a, b)"], None),
        ([" a ,"], ["a"]),
    ],
)
def test_several_fields_in_one_word(run, tmp_path, words, fields):
    columns = ["id BIGINT", "a STRING", "b STRING"]
    assert run("create", tmp_path / "t", *columns, "--partition-by", *words)[0] == 0
    spec = phalanx.open(tmp_path / "t").spec
    assert len(spec.fields) == 1 if fields is None else [f.field_id for f in spec.fields] == fields
    assert run("create", tmp_path / "u", *columns)[0] == 0
    assert run("evolve", tmp_path / "u", *words)[0] == 0
    assert phalanx.open(tmp_path / "u").spec.fields == spec.fields


def test_a_json_array(run, tmp_path):
    phalanx.create(tmp_path / "t", pa.schema([("id", pa.int64())]))
    (tmp_path / "o.json").write_text('\n [{"id": 1}, {"id": 2}]')
    code, _, err = run("append", tmp_path / "t", tmp_path / "o.json")
    assert code == 1
    assert "is one JSON array: write one object per line" in err
    (tmp_path / "o.json").write_text('{"id": 1}\n{"id": 2}\n')
    assert run("append", tmp_path / "t", tmp_path / "o.json")[0] == 0
    assert phalanx.open(tmp_path / "t").count() == 2
