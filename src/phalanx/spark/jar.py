"""The Scala half of the bridge as a jar: shipped in the wheel, or compiled once from a checkout.

The compiler is the one inside PySpark's own jars, so nothing but Java is needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from phalanx.errors import PhalanxError

#: The minor version of Spark whose interfaces the bridge uses.
SPARK = "4.3"
_SHIPPED = "phalanx-bridge.jar"
_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_SOURCE = "org.apache.spark.sql.phalanx.PhalanxSource"


def jar() -> Path:
    """The jar for this Spark. Raises PhalanxError where there is none and none can be made."""
    check_spark()
    shipped = Path(__file__).with_name(_SHIPPED)
    if shipped.exists():
        return shipped
    sources = _sources()
    path = _folder() / f"bridge-{_digest(sources)}.jar"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f"{path.name}.lock").open("w") as lock:
        # Of two processes that start at once, one compiles and the other waits.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            print(
                "Phalanx: compiling its Spark bridge; this takes half a minute, once …",
                file=sys.stderr,
                flush=True,
            )
            build(path, sources)
    return path


def check_spark() -> None:
    """Raise PhalanxError where PySpark is missing or of another minor version."""
    try:
        import pyspark
    except ImportError:
        raise PhalanxError(
            "PySpark is not installed: pip install 'phalanx[spark]' brings it"
        ) from None
    if not pyspark.__version__.startswith(f"{SPARK}."):
        raise PhalanxError(
            f"this Phalanx works with Spark {SPARK}, and PySpark {pyspark.__version__} is "
            f"installed: pip install 'pyspark=={SPARK}.*'"
        )


def build(path: Path, sources: list[Path]) -> None:
    """Compile the bridge into a jar, which appears when it is complete."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        out = Path(scratch) / "classes"
        out.mkdir()
        command = [java(), "-Xss8m", "-cp", f"{jars}/*", "scala.tools.nsc.Main", "-usejavacp"]
        command += ["-nowarn", "-d", os.fspath(out), *map(os.fspath, sources)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise PhalanxError(f"the Spark bridge did not compile:\n{done.stdout}{done.stderr}")
        made = Path(scratch) / "bridge.jar"
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(out.rglob("*.class")):
                archive.write(file, file.relative_to(out).as_posix())
            archive.writestr(_SERVICE, _SOURCE + "\n")
        os.replace(made, path)


def java() -> str:
    """The Java that Spark will start. Raises PhalanxError where there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        place = f"JAVA_HOME ({home})" if home else "the PATH"
        raise PhalanxError(
            f"there is no Java on {place}: install Java 17 or newer, which Spark needs"
        )
    return found


def _sources() -> list[Path]:
    """The Scala files: beside this file in an installed package, at the root of a checkout."""
    for folder in (Path(__file__).with_name("jvm"), Path(__file__).parents[3] / "jvm"):
        found = sorted(folder.glob("*.scala"))
        if found:
            return found
    raise PhalanxError("the sources of the Spark bridge are missing: install Phalanx again")


def _digest(sources: list[Path]) -> str:
    import pyspark

    found = hashlib.blake2b(pyspark.__version__.encode(), digest_size=12)
    for path in sources:
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _folder() -> Path:
    from phalanx.storage import cache

    return cache.folder() or Path(tempfile.gettempdir()) / f"phalanx-{os.getuid()}"
