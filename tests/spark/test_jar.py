"""The jar of the bridge: compiled once, shipped in the wheel, refused where it cannot be."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

import phalanx
from phalanx.spark.features import MINORS
from phalanx.spark.jar import _folder, check_spark, jar, java, sources
from phalanx.spark.session import session
from sparks import package as package_of
from sparks import version as version_of

ROOT = Path(__file__).resolve().parents[2]
JVM = ROOT / "jvm"
SOURCES = {f"phalanx/spark/jvm/{path.relative_to(JVM)}" for path in JVM.rglob("*.scala")}
SHIPPED = f"phalanx/spark/phalanx-bridge-{pyspark.__version__}.jar"
PRINT_JAR = "from phalanx.spark.jar import jar; print(jar())"
WITHOUT_SPARK = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "pyspark":
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
sys.meta_path.insert(0, Hide())
"""


def child(code, path=ROOT / "src", **env):
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    others = [entry for entry in inherited if Path(entry).resolve() != ROOT / "src"]
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **env, "PYTHONPATH": os.pathsep.join([str(path), *others])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def done(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out, err


@pytest.fixture
def users_cache():
    """The jar is in the user's cache, and not compiled again for a test."""
    with pytest.MonkeyPatch.context() as outside:
        outside.delenv("PHALANX_CACHE")
        jar()
        yield


class TestFirstUse:
    @pytest.mark.soak
    def test_two_processes_at_once_compile_once(self, tmp_path):
        cache = str(tmp_path / "fresh" / "cache")
        both = [child(PRINT_JAR, PHALANX_CACHE=cache) for _ in range(2)]
        (one, one_said), (other, other_said) = map(done, both)
        assert one == other
        made = Path(one.strip())
        assert made.parent == Path(cache)
        assert (one_said + other_said).count("compiling its bridge to Spark") == 1
        with zipfile.ZipFile(made) as archive:
            names = archive.namelist()
            assert archive.testzip() is None
        assert "org/apache/spark/sql/phalanx/PhalanxCatalog.class" in names
        assert "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister" in names
        again, said = done(child(PRINT_JAR, PHALANX_CACHE=cache))
        assert (again, "compiling" in said) == (one, False)
        assert {path.suffix for path in made.parent.iterdir()} == {".jar", ".lock"}

    def test_without_a_cache(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PHALANX_CACHE", "off")
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert _folder() == tmp_path / f"phalanx-{os.getuid()}"
        assert _folder().stat().st_mode & 0o777 == 0o700


class TestSources:
    def test_a_minor_takes_the_nearest_earlier_file(self, tmp_path):
        for name in ("Common", "4.0/A", "4.0/B", "4.1/A", "4.3/B", "4.3/C"):
            path = tmp_path / f"{name}.scala"
            path.parent.mkdir(exist_ok=True)
            path.touch()

        def taken(minor):
            files = sources(tmp_path, minor)
            return [path.relative_to(tmp_path).with_suffix("").as_posix() for path in files]

        assert taken("4.0") == ["4.0/A", "4.0/B", "Common"]
        assert taken("4.1") == taken("4.2") == ["4.0/B", "4.1/A", "Common"]
        assert taken("4.3") == ["4.1/A", "4.3/B", "4.3/C", "Common"]

    def test_the_common_part_knows_no_version(self):
        for path in JVM.glob("*.scala"):
            assert not re.search(r"SPARK_VERSION|\b4\.[0-9]\b", path.read_text()), path.name


class TestRefusals:
    def test_another_minor_version_of_spark(self, tmp_path):
        (tmp_path / "pyspark").mkdir()
        (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '4.4.1'")
        code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {PRINT_JAR}"
        _, said = child(code).communicate(timeout=60)
        assert said.splitlines()[-1] == (
            "phalanx.errors.PhalanxError: this Phalanx works with Spark 4.0 to 4.3, and this is "
            "Spark 4.4.1: pip install 'pyspark>=4.0,<4.4'"
        )

    def test_no_pyspark(self):
        code = WITHOUT_SPARK + "from phalanx.spark import session; session()"
        _, said = child(code).communicate(timeout=60)
        assert said.splitlines()[-1] == (
            "phalanx.errors.PhalanxError: PySpark is not installed: "
            "pip install 'phalanx[spark]' brings it"
        )

    def test_no_java(self, monkeypatch, tmp_path):
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(phalanx.PhalanxError, match="there is no Java on the PATH: install"):
            java()
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(phalanx.PhalanxError, match="there is no Java in JAVA_HOME"):
            java()

    def test_a_session_without_java(self):
        code = "import os; os.environ['PATH'] = ''; os.environ.pop('JAVA_HOME', None)\n"
        code += "from phalanx.spark import session; session()"
        _, said = child(code).communicate(timeout=60)
        assert said.splitlines()[-1].startswith("phalanx.errors.PhalanxError: there is no Java on")

    def test_this_spark_is_fine(self):
        check_spark()
        assert callable(session)


class TestWheel:
    """Built with the hatchling of this environment, so that no network is needed."""

    def build(self, folder, target, before=""):
        code = f"{before}\nfrom hatchling.build import {target}\nprint({target}({str(folder)!r}))"
        out, _ = done(child(code))
        return folder / out.strip().splitlines()[-1]

    def names(self, wheel):
        with zipfile.ZipFile(wheel) as archive:
            return set(archive.namelist())

    def test_has_the_jar_and_the_sources(self, users_cache, tmp_path):
        wheel = self.build(tmp_path, "build_wheel")
        names = self.names(wheel)
        assert names >= SOURCES | {SHIPPED, "pyspark_phalanx.py", "phalanx/spark/session.py"}
        sparks = [package for package in map(package_of, MINORS) if package is not None]
        jars = {f"phalanx/spark/phalanx-bridge-{version_of(spark)}.jar" for spark in sparks}
        assert {name for name in names if name.endswith(".jar")} == jars
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path / "site")
        fresh = str(tmp_path / "cache")
        out, said = done(child(PRINT_JAR, tmp_path / "site", PHALANX_CACHE=fresh))
        assert Path(out.strip()) == tmp_path / "site" / SHIPPED
        assert "compiling" not in said
        with zipfile.ZipFile(tmp_path / "site" / SHIPPED) as archive:
            assert "org/apache/spark/sql/phalanx/PhalanxCatalog.class" in archive.namelist()

    def test_of_another_patch_version_is_compiled(self, users_cache, tmp_path):
        """The sources in the wheel are those of the checkout, so the jar is in the cache."""
        wheel = self.build(tmp_path, "build_wheel")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path / "site")
        shipped = tmp_path / "site" / SHIPPED
        shipped.rename(shipped.with_name(f"{shipped.stem}9.jar"))
        out, _ = done(child(PRINT_JAR, tmp_path / "site"))
        assert Path(out.strip()) == jar()

    def test_without_spark_has_the_sources(self, tmp_path):
        names = self.names(self.build(tmp_path, "build_wheel", WITHOUT_SPARK))
        assert names >= SOURCES
        page = Path(phalanx.__file__).with_name("explore") / "static"
        assert names >= {f"phalanx/explore/static/{file.name}" for file in page.iterdir()}
        assert not [name for name in names if name.endswith(".jar")]

    def test_an_editable_install_needs_no_spark(self):
        code = f"""{WITHOUT_SPARK}
from hatchling.build import get_requires_for_build_editable
from hatchling.builders.wheel import WheelBuilder
data = {{"force_include": {{}}}}
hooks = WheelBuilder(".").get_build_hooks(".")
for hook in hooks.values():
    hook.initialize("editable", data)
print(len(hooks), data["force_include"], get_requires_for_build_editable())
"""
        out, _ = done(child(code))
        assert out.startswith("1 {} ")
        assert "pyspark" not in out
