"""`phalanx import`, `phalanx export` and `phalanx upgrade`."""

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import phalanx
from phalanx.cli import main
from tests.interop.earlier_tables import appendix_c


@pytest.fixture
def table(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("country", pa.string())])
    rows = [{"id": n, "country": "AB"[n % 2]} for n in range(6)]
    return phalanx.create(tmp_path / "t", schema, ["country"]).append(rows)


@pytest.fixture
def run(capsys):
    def _run(*words):
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return _run


def test_parquet(table, run, tmp_path):
    code, out, _ = run("export", table.uri, tmp_path / "tree")
    assert code == 0
    assert "version 2 as 2 Parquet files, 6 rows" in out
    code, out, _ = run("import", tmp_path / "back", tmp_path / "tree")
    assert (code, out) == (0, f"{tmp_path}/back: version 1 with 6 rows in 2 partitions\n")
    assert phalanx.open(tmp_path / "back").count("country = 'A'") == 3


def test_delta(table, run, tmp_path):
    assert run("export", table.uri, tmp_path / "delta", "--format", "delta")[0] == 0
    table.append([{"id": 7, "country": "C"}])
    code, out, _ = run("export", table.uri, tmp_path / "delta", "--json")
    assert code == 0
    assert json.loads(out)["files_added"] == 1
    assert DeltaTable(tmp_path / "delta").count() == 7
    code, out, _ = run("import", tmp_path / "back", tmp_path / "delta", "--json")
    assert json.loads(out)["rows"] == 7
    assert phalanx.open(tmp_path / "back").spec.fields[0].field_id == "country"


def test_another_partitioning(table, run, tmp_path):
    run("export", table.uri, tmp_path / "tree", "--unpartitioned")
    assert [path.suffix for path in (tmp_path / "tree").iterdir()] == [".parquet"] * 2
    run("import", tmp_path / "back", tmp_path / "tree", "--partition-by", "bucket(2, id)")
    assert phalanx.open(tmp_path / "back").spec.fields[0].field_id == "id_bucket"
    run("import", tmp_path / "one", tmp_path / "tree", "--unpartitioned")
    assert phalanx.open(tmp_path / "one").spec.fields == ()


def test_refusals(table, run, tmp_path):
    run("export", table.uri, tmp_path / "tree")
    code, _, err = run("export", table.uri, tmp_path / "tree")
    assert code == 1
    assert "is not empty" in err
    assert run("export", table.uri, tmp_path / "tree", "--overwrite")[0] == 0
    code, _, err = run("import", table.uri, tmp_path / "tree")
    assert code == 1
    assert "there is already a table" in err


def test_upgrade(run, tmp_path):
    appendix_c(tmp_path / "t").commit()
    code, out, _ = run("check", tmp_path / "t")
    assert code == 0
    assert "other-form" in out
    code, out, _ = run("upgrade", tmp_path / "t")
    assert (code, out) == (0, f"{tmp_path}/t: version 1 with 11 rows in 5 partitions\n")
    assert run("check", tmp_path / "t")[1].startswith("ok: 5 leaves, 1 snapshot")
    code, out, _ = run("upgrade", tmp_path / "t", "--branches", "copy", "--json")
    assert json.loads(out)["version"] == 1
    code, _, err = run("upgrade", tmp_path / "nothing")
    assert code == 1
    assert "there is no table" in err
