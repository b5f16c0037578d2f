"""The site of docs/ builds without a warning, and its pages load nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import phalanx
from phalanx.spark.procedures.base import PROCEDURES

ROOT = Path(__file__).resolve().parent.parent
#: What a browser fetches by itself when it shows a page.
FETCHED = re.compile(
    r'<(?:script|img|iframe|source|object)\b[^>]*\b(?:src|data)="(?P<src>[^"]+)"'
    r'|<link\b[^>]*\brel="(?:stylesheet|icon|preconnect|preload)"[^>]*'
)
ELSEWHERE = re.compile(r'"(?:https?:)?//')


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    child = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert child.returncode == 0, child.stdout + child.stderr
    return folder


def test_every_page_is_built_and_named_in_the_navigation(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    for path in (ROOT / "docs").glob("*.md"):
        page = path.with_suffix(".html").name
        assert (site / page).is_file()
        assert page == "index.html" or f'href="{page}"' in home, f"{path.name} is not reachable"


def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.rglob("*.html"):
        tags = [match[0] for match in FETCHED.finditer(page.read_text(encoding="utf-8"))]
        assert tags, page
        assert not [tag for tag in tags if ELSEWHERE.search(tag)], page


def test_reference_says_what_the_code_says(site):
    def text(name):
        return (site / "reference" / f"{name}.html").read_text(encoding="utf-8")

    api = text("python")
    for name in vars(phalanx.Table):
        if not name.startswith("_"):
            assert f"Table.{name}" in api, name
    assert "phalanx.spark.session" in api
    assert "transactions: str = &#39;strong&#39;" in api or "transactions: str = 'strong'" in api
    procedures = text("procedures")
    assert PROCEDURES
    for name in PROCEDURES:
        assert f'id="{name}"' in procedures, name
    assert "retention.min_snapshots" in text("properties")
    assert "spark.sql.phalanx.keyedLeaves" in text("confs")
    assert "rows_removed" in text("metadata-tables")
    assert "at least 100 x" in text("bounds")
    errors = text("errors")
    for name in phalanx.__all__:
        if name.endswith(("Error", "Input", "Table", "NotFound", "Exists")) and name != "Table":
            assert f">{name}<" in errors, name
    assert "this transaction is over: start another one" in errors


def test_conformance_names_tests_that_exist():
    text = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)((?:::\w+)*)`", text)
    assert len(named) > 40
    for path, parts in named:
        source = (ROOT / "tests" / path).read_text(encoding="utf-8")
        for part in filter(None, parts.split("::")):
            assert re.search(rf"^ *(?:class|def) {part}\b", source, re.MULTILINE), (path, part)


def test_benchmarks_are_all_described():
    from bench.__main__ import ALL

    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(ALL)
