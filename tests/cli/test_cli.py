"""The `phalanx` command, as a shell runs it."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import phalanx
from phalanx.cli import ShownAdvice, main
from phalanx.cli.app import PROGRAM
from phalanx.table.advise import Action, Advice, Finding


@pytest.fixture
def table(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("country", pa.string())])
    table = phalanx.create(tmp_path / "t", schema, ["country"])
    for start in range(3):
        table.append([{"id": start * 2 + k, "country": "AB"[k]} for k in range(2)])
    return table


def environment():
    """A process of its own must find the same package as this one."""
    root = str(Path(phalanx.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}


@pytest.fixture
def run(capsys):
    def _run(*words):
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return _run


def test_it_is_what_gets_installed():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"phalanx": f"{main.__module__}:{main.__name__}"}


def test_as_a_process(table):
    """It says what the method says, and what to do as commands."""
    command = [sys.executable, "-c", "import sys, phalanx.cli; sys.exit(phalanx.cli.main())"]
    command += ["advise", table.uri]
    found = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert found.returncode == 0, found.stderr
    spelled = {
        "table.evolve_partitioning(['bucket(2, country)'])": (
            f"phalanx evolve {table.uri} 'bucket(2, country)'"
        ),
        "table.rewrite()": f"phalanx rewrite {table.uri}",
    }
    expected = str(table.advise())
    for python, shell in spelled.items():
        assert python in expected
        expected = expected.replace(python, shell)
    assert found.stdout.strip() == expected


@pytest.mark.parametrize(
    ("action", "command"),
    [
        (Action("optimize"), "phalanx optimize 'my table'"),
        (Action("optimize", {"sort_by": ["a b", "c"]}), "… --sort-by 'a b' c"),
        (Action("evolve_partitioning", {"partition_by": []}), "phalanx evolve 'my table' --unpart"),
        (
            Action("evolve_partitioning", {"partition_by": [phalanx.expr("col0 + 1", ["n"], "m")]}),
            "table.evolve_partitioning([phalanx.expr('col0 + 1', ['n'], name='m')])  # in Python",
        ),
    ],
)
def test_actions_as_commands(action, command):
    advice = Advice("u", (), 1, 1, 1, (Finding("files", "many files", actions=(action,)),))
    shown = str(ShownAdvice("my table", advice)).splitlines()[-1].strip()
    assert shown.startswith(command.replace("…", "phalanx optimize 'my table'"))


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    verbs = {
        *("create", "info", "schema", "head", "describe", "partitions", "snapshots", "diff"),
        *("scan", "explain", "count", "sql", "search", "index"),
        *("append", "import", "export", "upgrade", "evolve", "rollback", "tag"),
        *("optimize", "rewrite", "advise", "expire", "vacuum", "check", "repair"),
        *("spark", "explore", "demo", "completion"),
    }
    for name in verbs:
        assert re.search(rf"^  {name}  +\S", shown, re.MULTILINE), name


@pytest.mark.parametrize("name", sorted(PROGRAM.commands))
def test_every_command_has_help_with_examples(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "--json" in shown
    assert f"Examples:\n  phalanx {PROGRAM.commands[name].examples[0].split()[1]}" in shown or (
        name == "completion"
    )


def test_advise_in_json(table, run):
    code, shown, _ = run("advise", table.uri, "--json", "--leaf-bytes", 10**6)
    found = json.loads(shown)
    assert code == 0
    assert (found["leaves"], found["rows"], found["ok"]) == (2, 6, False)
    assert "evolve_partitioning" in found["better"]["python"]
    assert found["better"]["actions"][1] == {"verb": "rewrite", "arguments": {}}
    assert found["better"]["commands"][1] == f"phalanx rewrite {table.uri}"


def test_optimize(table, run):
    code, shown, _ = run("optimize", table.uri, "--where", "country = 'A'", "--dry-run")
    assert code == 0
    assert "would" in shown
    assert table.refresh().version == 4
    code, shown, _ = run(
        "optimize", table.uri, "--where", "country = 'A'", "--json", "--sort-by", "id"
    )
    found = json.loads(shown)
    assert (found["leaves"], found["files_before"], found["files_after"]) == (1, 3, 1)
    assert table.refresh().count() == 6


def test_evolve_and_rewrite(table, run):
    code, shown, _ = run("evolve", table.uri, "country", "bucket(2, id)", "--json")
    assert code == 0
    assert json.loads(shown)["partition_by"] == ["country", "bucket(2, id)"]
    code, shown, _ = run("rewrite", table.uri, "--step-rows", 3, "--max-steps", 1, "--json")
    assert json.loads(shown)["left"] == 1
    code, shown, _ = run("rewrite", table.uri, "--json")
    assert json.loads(shown)["left"] == 0
    table.refresh()
    assert all("id_bucket" in leaf.values for leaf in table.scan().plan().leaves)
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == list(range(6))


def test_evolve_to_the_same(table, run):
    code, shown, _ = run("evolve", table.uri, "country", "bucket(2, id)", "--json")
    assert (code, json.loads(shown)["changed"]) == (0, True)
    code, shown, _ = run("evolve", table.uri, "country", "bucket(2, id)", "--json")
    assert (code, json.loads(shown)["changed"]) == (0, False)
    code, shown, _ = run("evolve", table.uri, "country", "bucket(2, id)")
    assert code == 0
    assert "nothing was changed" in shown
    assert len(table.refresh().specs) == 2


def test_evolve_to_nothing_is_asked_for(table, run, capsys):
    for words in ([], ["country", "--unpartitioned"]):
        with pytest.raises(SystemExit) as stopped:
            main(["evolve", table.uri, *words])
        assert stopped.value.code == 2
        assert "--unpartitioned" in capsys.readouterr().err
    assert table.refresh().spec.fields
    code, shown, _ = run("evolve", table.uri, "--unpartitioned")
    assert (code, shown.strip()[-22:]) == (0, "partitioned by nothing")
    assert not table.refresh().spec.fields


def test_whoever_reads_may_stop(table):
    """The other end of the pipe is closed before anything is written."""
    command = [sys.executable, "-c", "import sys, phalanx.cli; sys.exit(phalanx.cli.main())"]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        found = subprocess.run(
            [*command, "advise", table.uri, "--json"],
            stdout=writer,
            stderr=subprocess.PIPE,
            env=environment(),
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    assert (found.returncode, found.stderr) == (0, "")


def test_old_snapshots_and_files(table, run):
    code, shown, _ = run("expire-snapshots", table.uri, "--older-than", "0 days", "--json")
    assert code == 0
    assert json.loads(shown)["oldest"] == 4
    code, shown, _ = run("vacuum", table.uri, "--older-than", "0 seconds", "--force", "--json")
    assert code == 0
    assert json.loads(shown)["paths"]
    assert table.refresh().count() == 6


def test_check_and_repair(table, run):
    assert run("check", table.uri)[0] == 0
    found = next(Path(table.uri).rglob("data/*.lance"))
    found.unlink()
    code, shown, _ = run("check", table.uri)
    assert code == 1
    assert found.name in shown
    code, shown, _ = run("repair", table.uri, "--dry-run", "--json")
    assert code == 1
    assert not json.loads(shown)["ok"]


def test_repair_takes_stray_rows_in(table, run):
    uri, rows = table.partitions()["uri"][0].as_py(), table.scan(limit=1).to_arrow()
    lance.write_dataset(rows, uri, mode="append")
    assert run("repair", table.uri)[0] == 1
    assert run("repair", table.uri, "--stray", "take")[0] == 0
    assert table.refresh().count() == 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["advise", "{uri}/nothing"], "there is no table"),
        (["optimize", "{uri}", "--where", "nope = 1"], "nope"),
        (["vacuum", "{uri}", "--older-than", "soon"], "not a span of time"),
        (["evolve", "{uri}", "bucket(0, id)"], "bucket"),
    ],
)
def test_refused_with_one_sentence(table, run, words, message):
    code, shown, error = run(*(word.format(uri=table.uri) for word in words))
    assert (code, shown) == (1, "")
    assert message in error
    assert error.startswith("phalanx: ")
    assert "Traceback" not in error


def test_damage_is_one_sentence_too(table, run):
    next(Path(table.uri).glob("*_v1$*/data/*.lance")).unlink()
    code, shown, error = run("optimize", table.uri)
    assert (code, shown) == (1, "")
    assert error.startswith("phalanx: a file of the leaf ")
    assert "Traceback" not in error


def test_a_secret_is_not_repeated(table, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["check", table.uri, "--storage-option", "hunter2"])
    assert stopped.value.code == 2
    assert "hunter2" not in capsys.readouterr().err
