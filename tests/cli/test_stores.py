"""Every command on a table in each of the object stores."""

import json
import uuid

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from phalanx.cli.app import PROGRAM
from tests.table.in_a_store import secrets_of

#: Commands that start something, or have nothing to do with a store, and where they are tested.
ELSEWHERE = {"spark", "explore", "demo", "completion"}


@pytest.fixture(params=["s3", "gs", "az"])
def store(request):
    """The URI of a folder of the test's own in a store, and the store's options."""
    options = request.getfixturevalue(f"{request.param}_options")
    return f"{request.param}://lake/{uuid.uuid4().hex}", options


def test_every_command(run, store, tmp_path):
    root, options = store
    given = [f"--storage-option={name}={value}" for name, value in options.items()]
    uri, used, shown = f"{root}/events", set(), []

    def does(command, *words, at=uri):
        code, out, err = run(command, at, *words, *given)
        assert code == 0, err
        used.add(command)
        shown.extend([out, err])
        return out

    def answers(command, *words, at=uri):
        return json.loads(does(command, *words, "--json", at=at))

    pq.write_table(pa.table({"id": [1, 2], "k": ["a", "b"]}), tmp_path / "x.parquet")
    pq.write_table(pa.table({"id": [3], "k": ["c/ü"]}), tmp_path / "y.parquet")
    does("create", "id BIGINT", "k STRING", "--partition-by", "k")
    assert answers("append", tmp_path / "x.parquet", tmp_path / "y.parquet")["version"] == 2
    assert does("count", "k = 'a'") == "1\n"
    assert [row["id"] for row in answers("scan", "--where", "k = 'c/ü'")] == [3]
    assert answers("sql", "SELECT sum(id) AS n FROM events WHERE k < 'c'") == [{"n": 3}]
    assert "partitions  1 of 3" in does("explain", "k = 'a'")
    assert len(answers("partitions")) == 3
    for command in ("info", "schema", "head", "describe", "advise"):
        assert does(command)
    does("index", "id", "BTREE")
    does("index", "k", "INVERTED")
    assert [row["id"] for row in answers("search", "b", "--column", "k", "--columns", "id")] == [2]
    does("tag", "before")
    does("evolve", "k", "bucket(2, id)")
    does("rewrite")
    does("optimize")
    does("rollback", "before")
    assert does("diff", 2)
    assert len(answers("snapshots")) > 5
    does("expire", "--older-than", "0")
    does("vacuum", "--older-than", "0", "--force")
    assert answers("check")["ok"]
    does("repair")
    assert does("count") == "3\n"
    does("export", tmp_path / "out")
    does("import", tmp_path / "out", at=f"{root}/imported")
    assert does("count", at=f"{root}/imported") == "3\n"
    does("create", "id BIGINT", "k STRING", "--partition-by=k", "--layout=hive", at=f"{root}/tree")
    does("append", tmp_path / "x.parquet", at=f"{root}/tree")
    assert does("count", "k = 'b'", at=f"{root}/tree") == "1\n"
    for k in "ab":  # a tree that another client has made
        leaf = f"{root}/others/k={k}.lance"
        lance.write_dataset(pa.table({"id": [1, 2]}), leaf, storage_options=options)
    does("upgrade", at=f"{root}/others")
    assert does("count", "k = 'a'", at=f"{root}/others") == "2\n"
    code, _, err = run("info", f"{root}/none", *given)
    assert (code, "there is no table" in err) == (1, True)
    assert not [text for text in [*shown, err] for s in secrets_of(options) if s in text]
    assert used | ELSEWHERE == {
        name for name, command in PROGRAM.commands.items() if not command.hidden
    }
