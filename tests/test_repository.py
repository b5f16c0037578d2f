"""What must hold for the repository as a whole."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

TARGETS = {
    "help",
    "setup",
    "demo",
    "test",
    "lint",
    "format",
    "typecheck",
    "bench",
    "soak",
    "docs",
    "clean",
}
HOME_PATH = re.compile(rb"(?<![\w.:/$}-])/(?:(?:home|Users)/\w|root/)|[A-Z]:\\Users\\")


def run(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run in the root, free of the variables that an outer make passes down."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        command, cwd=ROOT, env={**inherited, **env}, capture_output=True, text=True, timeout=120
    )


def modules_after_import(*, hide: Collection[str] = ()) -> set[str]:
    """The modules that `import phalanx` loads in a fresh process where `hide` is not installed."""
    code = f"""
import json, sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name in {sorted(hide)}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hide())
import phalanx
print(json.dumps([phalanx.__file__, *sys.modules]))
"""
    child = run(sys.executable, "-c", code, PYTHONPATH=str(ROOT / "src"))
    assert child.returncode == 0, child.stderr
    file, *modules = json.loads(child.stdout)
    assert file == str(ROOT / "src" / "phalanx" / "__init__.py")
    return set(modules)


def test_import_loads_no_engine():
    # pandas is not in the set: where it is installed, pyarrow loads it by itself.
    assert modules_after_import().isdisjoint({"pyspark", "duckdb"})


def test_import_needs_no_extra():
    modules_after_import(hide={"pyspark", "pandas", "duckdb", "polars", "deltalake", "rich"})


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_no_home_paths():
    listed = run("git", "ls-files", "-z")
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    found = [
        f"{path.relative_to(ROOT)}: {match[0].decode()}"
        for path in paths
        if path.is_file()
        for match in [HOME_PATH.search(path.read_bytes())]
        if match
    ]
    assert not found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cache in /" + "home/ann/cache", True),
        ('"/' + 'Users/ann"', True),
        ("/" + "root/x", True),
        ("C:" + "\\Users\\ann", True),
        ("s3://bucket/home/ann", False),
        ("docs/home/page, /homeward, {tmp}/root/x", False),
    ],
)
def test_home_paths_are_recognized(text, found):
    assert bool(HOME_PATH.search(text.encode())) == found


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_alone_prints_help():
    child = run("make")
    assert child.returncode == 0, child.stderr
    named = re.findall(r"^  ([a-z-]+) +\S", child.stdout, re.MULTILINE)
    assert TARGETS.issubset(named)
