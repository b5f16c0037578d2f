"""Environments with other minor versions of Spark, for `make test-spark` and for the wheel.

    python sparks.py 4.1

prints the Python of an environment that has PySpark 4.1 and is otherwise the one that runs this.
PySpark, which is 400 MB, is kept in the user's cache (PHALANX_SPARKS names another folder), the
environment itself in build/.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
#: How long an installation may take, in seconds.
PATIENCE = 300


def package(minor: str) -> Path | None:
    """The folder of the package `pyspark` of a minor version, where it is installed already."""
    for site in (*_sites(), _kept() / minor):
        folder = site / "pyspark"
        if (folder / "version.py").exists() and version(folder).startswith(f"{minor}."):
            return folder
    return None


def version(folder: Path) -> str:
    """The version of Spark whose package is in a folder."""
    names: dict[str, str] = {}
    exec((folder / "version.py").read_text(), names)
    return names["__version__"]


def install(minor: str) -> Path:
    """The folder of the package `pyspark` of a minor version. Raises where pip cannot get it."""
    folder = package(minor)
    if folder is not None:
        return folder
    kept = _kept()
    kept.mkdir(parents=True, exist_ok=True)
    print(f"Installing PySpark {minor} into {kept / minor} …", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=kept) as scratch:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--target", f"{scratch}/site", f"pyspark=={minor}.*"]
        subprocess.run(command, check=True, timeout=PATIENCE, stdout=sys.stderr)
        # Appears when it is complete; what is there is an earlier patch version, or broken.
        shutil.rmtree(kept / minor, ignore_errors=True)
        os.replace(f"{scratch}/site", kept / minor)
    return kept / minor / "pyspark"


def python(minor: str) -> Path:
    """The Python of an environment with PySpark of a minor version, which is made where needed."""
    site = install(minor).parent
    if site in _sites():
        return Path(sys.executable)
    environment = ROOT / "build" / f"spark-{minor}"
    if not (environment / "bin" / "python").exists():
        command = [sys.executable, "-m", "venv", "--without-pip", os.fspath(environment)]
        subprocess.run(command, check=True, stdout=sys.stderr)
    (packages,) = environment.glob("lib/python3*/site-packages")
    # Its own PySpark first, and all other packages as they are here.
    folders = [site, *_sites(), ROOT / "src"]
    (packages / "phalanx.pth").write_text("\n".join(map(os.fspath, folders)) + "\n")
    return environment / "bin" / "python"


def _sites() -> list[Path]:
    """Where the packages of the environment are that runs this."""
    return [Path(folder) for folder in sys.path if folder.endswith("-packages")]


def _kept() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("PHALANX_SPARKS") or Path(cache) / "phalanx-sparks")


if __name__ == "__main__":
    (_, wanted) = sys.argv
    try:
        print(python(wanted))
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"PySpark {wanted} cannot be installed here: {error}")
