"""The list of rules as a whole."""

import inspect
from pathlib import Path

import pytest

from phalanx.table.check import MANIFEST_UNREADABLE
from phalanx.table.rules import RULES
from phalanx.table.rules.rule import Rule

DOCS = Path(__file__).parents[3] / "docs" / "upkeep.md"


def described():
    """Every kind of problem, as the documentation lists it."""
    yield MANIFEST_UNREADABLE, "The manifest cannot be read.", "cannot be mended"
    for rule in RULES:
        without = "harmless" if rule.harmless else "cannot be mended"
        yield rule.kind, inspect.getdoc(rule).splitlines()[0], rule.remedy or without
        for outcome in rule.outcomes:
            yield outcome.kind, outcome.meaning, outcome.remedy or "cannot be mended"


def test_the_documentation_lists_them():
    lines = [line.strip("| ").split("|") for line in DOCS.read_text().splitlines() if "|" in line]
    rows = [tuple(cell.strip().strip("`") for cell in line) for line in lines]
    start = rows.index(("problem", "what is wrong", "what `repair` does"))
    assert rows[start + 2 : start + 2 + len(list(described()))] == sorted(described())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
class TestEveryRule:
    def test_is_in_the_list_once(self, rule):
        assert [type(other) for other in RULES].count(type(rule)) == 1

    def test_mends_or_says_why_not(self, rule):
        mends = type(rule).mend is not Rule.mend
        assert mends == bool(rule.remedy)
        assert mends or len(inspect.getdoc(rule).splitlines()) > 2
