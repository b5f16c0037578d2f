"""Environments with other versions of Spark. PySpark itself is a stand-in here: no network."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import sparks


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder in which PySpark 4.9 is installed, and environments of the test's own."""
    monkeypatch.setenv("PHALANX_SPARKS", str(tmp_path / "sparks"))
    monkeypatch.setattr(sparks, "ROOT", tmp_path)
    package = tmp_path / "sparks" / "4.9" / "pyspark"
    package.mkdir(parents=True)
    (package / "version.py").write_text('__version__: str = "4.9.3"')
    (package / "__init__.py").write_text("from pyspark.version import __version__")
    return tmp_path / "sparks"


def test_an_environment_has_its_spark_and_all_else(kept):
    python = sparks.python("4.9")
    assert python == sparks.python("4.9")
    code = "import pyspark, pytest, lance; print(pyspark.__version__)"
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    child = subprocess.run([python, "-c", code], env=env, capture_output=True, text=True)
    assert child.stdout == "4.9.3\n", child.stderr


def test_what_is_here_is_taken(kept):
    assert sparks.package("4.9") == kept / "4.9" / "pyspark"
    assert sparks.package("4.8") is None
    here = Path(pyspark.__file__).parent
    assert sparks.version(here) == pyspark.__version__
    assert sparks.package(".".join(pyspark.__version__.split(".")[:2])) == here


def test_what_cannot_be_installed_is_said(kept, tmp_path):
    child = subprocess.run(
        [sys.executable, sparks.__file__, "4.8"],
        env={**os.environ, "PIP_NO_INDEX": "1"},
        capture_output=True,
        text=True,
    )
    assert child.returncode == 1
    assert child.stdout == ""
    assert child.stderr.splitlines()[-1].startswith("PySpark 4.8 cannot be installed here: ")
    assert [path.name for path in kept.iterdir()] == ["4.9"]
