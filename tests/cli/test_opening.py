"""Commands that open something."""

import json
import subprocess

import pytest
from pyspark.errors import AnalysisException

import phalanx
from tests.cli.test_cli import environment
from tests.cli.test_output import PHALANX


def test_demo(run, tmp_path):
    code, out, _ = run("demo", tmp_path / "my demo", "--rows", 2000)
    assert code == 0
    assert "phalanx explore '" in out
    table = phalanx.open(tmp_path / "my demo" / "events")
    assert len(table.specs) == 2
    assert table.check().ok
    code, _, err = run("demo", tmp_path / "my demo", "--rows", 2000)
    assert code == 1
    assert "there is already a table" in err


@pytest.mark.spark
def test_a_spark_shell(tmp_path):
    phalanx.create(tmp_path / "lake" / "db" / "t", {"k": ["a", "b"], "n": [1, 2]}, ["k"])
    typed = "print('answer', spark.sql(\"SELECT n FROM lake.db.t WHERE k = 'b'\").first().n)\n"
    env = environment()
    env.pop("PHALANX_CACHE")  # where the compiled bridge is kept
    child = subprocess.run(
        [*PHALANX, "spark", str(tmp_path / "lake"), "--conf", "spark.ui.enabled=false"],
        input=typed,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert child.returncode == 0, child.stderr
    assert "answer 2" in child.stdout
    assert "The catalog lake" in child.stderr


def test_demo_in_json(run, tmp_path):
    _, out, _ = run("demo", tmp_path, "--rows", 500, "--json")
    shown = json.loads(out)
    assert len(shown["next_commands"]) == 3
    assert shown["steps"][0]["result"].startswith("500 rows in ")


def test_an_error_of_spark_is_one_sentence(run, tmp_path, monkeypatch):
    """What Spark says of a wrong column, without the plan that follows."""

    class Session:
        def sql(self, statement):
            raise AnalysisException(
                "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter "
                "with name `nope` cannot be resolved. Did you mean one of the following? [`n`, "
                "`k`]. SQLSTATE: 42703; line 1 pos 7;\n'Project ['nope]\n+- SubqueryAlias t\n"
            )

        def stop(self):
            self.stopped = True

    started = Session()
    monkeypatch.setattr("phalanx.spark.session", lambda *_: started)
    code, _, err = run("spark", tmp_path, "--sql", "SELECT nope FROM lake.db.t")
    assert (code, started.stopped) == (1, True)
    assert err.endswith(
        "A column, variable, or function parameter with name `nope` cannot be resolved. Did you "
        "mean one of the following? [`n`, `k`].\n"
    )
    assert "UNRESOLVED" not in err
