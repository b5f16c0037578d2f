"""The Scala half of the bridge as a jar: shipped in the wheel, or compiled once from its sources.

The compiler is the one inside PySpark's own jars, so nothing but Java is needed. A jar belongs to
one version of Spark, because it uses interfaces that may change with it. What differs between minor
versions is in folders that are named after them: a minor takes each file from its own folder, or
else from that of the nearest earlier one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from phalanx.errors import PhalanxError
from phalanx.spark.features import MINORS, minor_of

_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_SOURCE = "org.apache.spark.sql.phalanx.PhalanxSource"


@dataclass(frozen=True)
class Spark:
    """A Spark to compile for: its version, and the folder of its jars."""

    version: str
    jars: Path

    @staticmethod
    def installed() -> Spark:
        """The one of this environment. Raises PhalanxError where it is missing or unknown."""
        check_spark()
        import pyspark

        return Spark(pyspark.__version__, Path(pyspark.__file__).parent / "jars")

    @property
    def minor(self) -> str:
        return minor_of(self.version)

    @property
    def shipped_name(self) -> str:
        """What a wheel calls the jar for it."""
        return f"phalanx-bridge-{self.version}.jar"


def jar() -> Path:
    """The jar for this Spark. Raises PhalanxError where there is none and it does not compile."""
    spark = Spark.installed()
    shipped = Path(__file__).with_name(spark.shipped_name)
    return shipped if shipped.exists() else compiled(_jvm(), spark)


def compiled(jvm: Path, spark: Spark) -> Path:
    """The jar of the sources in a folder: from the cache, or compiled now, which takes a while."""
    files = sources(jvm, spark.minor)
    path = _folder() / f"bridge-{_digest(files, spark)}.jar"
    if not path.exists():
        # Of two processes that start at once, one compiles and the other waits.
        with _alone(path.with_suffix(".lock")):
            if not path.exists():
                _say(f"compiling its bridge to Spark {spark.version}; once, for half a minute …")
                _compile(path, files, spark)
    return path


def sources(jvm: Path, minor: str) -> list[Path]:
    """The Scala files for a minor version of Spark: those for all, and those that differ."""
    differing: dict[str, Path] = {}
    for earlier in MINORS[: MINORS.index(minor) + 1]:
        differing |= {path.name: path for path in (jvm / earlier).glob("*.scala")}
    return sorted([*jvm.glob("*.scala"), *differing.values()])


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process is in here. Where files cannot be locked, nobody waits."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process is compiling the Spark bridge; waiting for it …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            pass
        yield


def _say(text: str) -> None:
    print(f"Phalanx: {text}", file=sys.stderr, flush=True)


def check_spark() -> None:
    """Raise PhalanxError where PySpark is missing, or of a minor version that is unknown."""
    try:
        import pyspark
    except ImportError:
        raise PhalanxError(
            "PySpark is not installed: pip install 'phalanx[spark]' brings it"
        ) from None
    minor_of(pyspark.__version__)


def java() -> str:
    """The Java that Spark will start. Raises PhalanxError where there is none."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if path is None:
        place = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise PhalanxError(f"there is no Java {place}: install Java 17 or newer, which Spark needs")
    return path


def _compile(path: Path, sources: Sequence[Path], spark: Spark) -> None:
    """Make a jar, which appears when it is complete."""
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        out = Path(scratch) / "classes"
        out.mkdir()
        command = [java(), "-Xss8m", "-cp", f"{spark.jars}/*", "scala.tools.nsc.Main", "-usejavacp"]
        command += ["-nowarn", "-d", os.fspath(out), *map(os.fspath, sources)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise PhalanxError(
                f"the bridge to Spark {spark.version} did not compile:\n{done.stdout}{done.stderr}"
            )
        bridge = Path(scratch) / "bridge.jar"
        files = {file.relative_to(out).as_posix(): file for file in out.rglob("*.class")}
        with zipfile.ZipFile(bridge, "w", zipfile.ZIP_DEFLATED) as archive:
            # Without the time of day: the same sources make the same jar.
            for name in sorted(files):
                archive.writestr(_entry(name), files[name].read_bytes())
            archive.writestr(_entry(_SERVICE), _SOURCE + "\n")
        os.replace(bridge, path)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _jvm() -> Path:
    """The folder of the Scala files: beside this file in an installed package, or in a checkout."""
    for folder in (Path(__file__).with_name("jvm"), Path(__file__).parents[3] / "jvm"):
        if any(folder.glob("*.scala")):
            return folder
    raise PhalanxError("the sources of the Spark bridge are missing: install Phalanx again")


def _digest(sources: Sequence[Path], spark: Spark) -> str:
    digest = hashlib.blake2b(spark.version.encode(), digest_size=12)
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _folder() -> Path:
    """Where compiled jars are kept: in the cache, or else in a folder that only this user owns."""
    from phalanx.storage import cache

    folder = cache.folder()
    if folder is not None:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    folder = Path(tempfile.gettempdir()) / f"phalanx-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PhalanxError(f"{folder} belongs to somebody else: let PHALANX_CACHE name a folder")
    return folder
