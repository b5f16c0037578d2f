"""The Scala half of the bridge as a jar: shipped in the wheel, or compiled once from its sources.

The compiler is the one inside PySpark's own jars, so nothing but Java is needed. A jar belongs to
one version of Spark, because it uses interfaces that may change with it.
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
from pathlib import Path

from phalanx.errors import PhalanxError

#: The minor version of Spark whose interfaces the bridge uses.
SPARK = "4.3"
_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_SOURCE = "org.apache.spark.sql.phalanx.PhalanxSource"


def jar() -> Path:
    """The jar for this Spark. Raises PhalanxError where there is none and it does not compile."""
    check_spark()
    shipped = Path(__file__).with_name(shipped_name())
    return shipped if shipped.exists() else compiled(_sources())


def shipped_name() -> str:
    """What a wheel calls the jar for the Spark that is installed."""
    import pyspark

    return f"phalanx-bridge-{pyspark.__version__}.jar"


def compiled(sources: Sequence[Path]) -> Path:
    """The jar of some sources: from the cache, or compiled now, which takes a while."""
    path = _folder() / f"bridge-{_digest(sources)}.jar"
    if not path.exists():
        # Of two processes that start at once, one compiles and the other waits.
        with _alone(path.with_suffix(".lock")):
            if not path.exists():
                _say("compiling its Spark bridge; this takes half a minute, once …")
                _compile(path, sources)
    return path


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


def java() -> str:
    """The Java that Spark will start. Raises PhalanxError where there is none."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if path is None:
        place = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise PhalanxError(f"there is no Java {place}: install Java 17 or newer, which Spark needs")
    return path


def _compile(path: Path, sources: Sequence[Path]) -> None:
    """Make a jar, which appears when it is complete."""
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


def _sources() -> list[Path]:
    """The Scala files: beside this file in an installed package, at the root of a checkout."""
    for folder in (Path(__file__).with_name("jvm"), Path(__file__).parents[3] / "jvm"):
        files = sorted(folder.glob("*.scala"))
        if files:
            return files
    raise PhalanxError("the sources of the Spark bridge are missing: install Phalanx again")


def _digest(sources: Sequence[Path]) -> str:
    import pyspark

    digest = hashlib.blake2b(pyspark.__version__.encode(), digest_size=12)
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
