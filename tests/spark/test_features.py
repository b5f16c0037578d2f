"""What a version of Spark has is asked by name, and an unknown version is refused."""

import re
from pathlib import Path

import pyspark
import pytest

import phalanx
from phalanx.spark import features
from phalanx.spark.features import FEATURES, MINORS, minor_of
from tests.markdown import table_under

ROOT = Path(__file__).resolve().parents[2]


def test_the_spark_that_is_installed():
    assert features.minor() == minor_of(pyspark.__version__)


@pytest.mark.parametrize("feature", FEATURES)
def test_each_feature_comes_with_a_minor(monkeypatch, feature):
    has = []
    for minor in MINORS:
        monkeypatch.setattr("pyspark.version.__version__", f"{minor}.7")
        sentence = features.lacking(feature)
        has.append(features.has(feature))
        assert has[-1] == (sentence is None)
        assert sentence is None or re.fullmatch(rf"Spark {re.escape(minor)} [^.].*[^.]", sentence)
    assert has == sorted(has)
    assert has[0] is False
    assert has[-1] is True


@pytest.mark.parametrize("version", ["3.5.6", "4.4.0", "4.10.1", "5.0.0"])
def test_an_unknown_minor_is_refused(version):
    sentence = (
        f"this Phalanx works with Spark 4.0 to 4.3, and this is Spark {version}: "
        "pip install 'pyspark>=4.0,<4.4'"
    )
    with pytest.raises(phalanx.PhalanxError) as refusal:
        minor_of(version)
    assert str(refusal.value) == sentence


def test_an_unknown_feature_is_an_error():
    with pytest.raises(KeyError):
        features.has("time_machine")


def test_the_docs_say_the_same():
    assert table_under(ROOT / "docs" / "spark.md", "## Versions of Spark") == [
        {
            "feature": name.replace("_", " "),
            "since": feature.since,
            "an earlier Spark": feature.without,
        }
        for name, feature in FEATURES.items()
    ]


@pytest.mark.parametrize("feature", FEATURES)
def test_each_feature_has_a_test(feature):
    """Which runs where Spark has it, and is shown as skipped where it has not."""
    files = Path(__file__).parent.rglob("test_*.py")
    assert any(f'needs("{feature}")' in path.read_text() for path in files)
