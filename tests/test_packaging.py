"""The wheel works in an environment of its own, and the Dockerfile does what the docs say."""

import json
import os
import re
import shlex
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import phalanx

ROOT = Path(__file__).resolve().parent.parent
SMOKE = """
import importlib.metadata, json, pathlib
import phalanx

table = phalanx.create("people", {"id": [1, 2, 3], "country": ["US", "DE", "US"]}, ["country"])
table.delete("id = 3")
folder = pathlib.Path(phalanx.__file__).parent
print(json.dumps({
    "rows": phalanx.open("people").scan(where="country = 'US'").to_arrow().to_pylist(),
    "folder": str(folder),
    "versions": [phalanx.__version__, importlib.metadata.version("phalanx")],
    "typed": (folder / "py.typed").exists(),
    "sources": len(list((folder / "spark" / "jvm").rglob("*.scala"))),
}))
"""


def run(*command, cwd, **env):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    child = subprocess.run(
        command, cwd=cwd, env={**kept, **env}, capture_output=True, text=True, timeout=300
    )
    assert child.returncode == 0, child.stdout + child.stderr
    return child.stdout


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """The programs of an environment with the wheel and its dependencies, and no checkout.

    The dependencies are those of this environment, which no network is needed for.
    """
    folder = tmp_path_factory.mktemp("clean")
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    # An isolated build has no PySpark, and makes a wheel without jars.
    hidden = "import sys; sys.modules['pyspark'] = None\n"
    name = run(sys.executable, "-c", hidden + build, cwd=ROOT).strip().splitlines()[-1]
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    run(programs / "pip", "install", "--no-index", "--no-deps", folder / name, cwd=folder)
    own = Path(run(programs / "python", "-c", "import sysconfig as s; print(s.get_path('purelib'))",
                   cwd=folder).strip())  # fmt: skip
    others = {sysconfig.get_path("purelib"), *site.getsitepackages()}
    others |= {path for path in sys.path if path.endswith("site-packages")}
    # Paths that a .pth file names are searched, but their own .pth files are not run: the
    # checkout, which is installed as editable, is not there.
    (own / "dependencies.pth").write_text("\n".join(sorted(others)) + "\n")
    return programs


def test_the_wheel_in_a_clean_environment(clean, tmp_path):
    figures = json.loads(run(clean / "python", "-c", SMOKE, cwd=tmp_path).splitlines()[-1])
    assert figures["rows"] == [{"id": 1, "country": "US"}]
    assert Path(figures["folder"]).is_relative_to(clean.parent)
    assert figures["versions"] == [phalanx.__version__] * 2
    assert figures["typed"]
    assert figures["sources"] > 0
    assert "ok" in run(clean / "phalanx", "check", "people", cwd=tmp_path)


def test_the_changelog_has_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(phalanx.__version__)}\b", changelog, re.MULTILINE)


class TestDockerfile:
    """It is built only where there is Docker. That its commands are right is shown elsewhere:

    the docs' are run by tests/test_docs.py and, as a server, by tests/spark/deployments.
    """

    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    docs = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")

    def test_the_server_is_started_as_in_the_docs(self):
        block = re.search(r"```bash\n(spark-submit --class .*?)```", self.docs, re.DOTALL)[1]
        command = re.search(r"^CMD (\[.*?\])$", self.dockerfile, re.DOTALL | re.MULTILINE)[1]
        assert json.loads(command.replace("\\\n", "")) == shlex.split(block.replace("\\\n", " "))

    def test_the_confs_are_written_as_in_the_docs(self):
        block = re.search(
            r"```python\n(import os\nfrom phalanx.spark import conf\n.*?)```", self.docs, re.DOTALL
        )
        assert block[1].replace('"lake"', '"/lake"') in self.dockerfile

    def test_it_is_built_and_run_as_in_the_docs(self):
        for line in re.findall(r"^#   (docker .*)$", self.dockerfile, re.MULTILINE):
            assert f"{line}\n" in self.docs
        assert "docker run" in self.docs
