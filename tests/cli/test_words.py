"""Messages in the words of a shell."""

import pytest

from phalanx.cli.words import in_shell_words


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("something is gone: run check()", "something is gone: run `phalanx check lake/t`"),
        (
            "it is weak: make_strong() it first",
            "it is weak: `phalanx evolve lake/t --strong` first",
        ),
        ("replace it with overwrite=True", "replace it with --overwrite"),
        ("give partition_by", "give --partition-by"),
        (
            "make it a table with phalanx.interop.hive.adopt",
            "make it a table with `phalanx upgrade lake/t`",
        ),
        (
            "until phalanx.interop.upgrade or `phalanx upgrade` makes it one",
            "until `phalanx upgrade lake/t` makes it one",
        ),
        ("the column recheck() is unknown", "the column recheck() is unknown"),
        ("no hint at all", "no hint at all"),
        ("make one with phalanx.create", "make one with `phalanx create lake/t`"),
        ("which column to search with `column`", "which column to search with --column"),
    ],
)
def test_hints(message, words):
    assert in_shell_words(message, "lake/t") == words


def test_a_table_with_spaces():
    assert in_shell_words("run check()", "my table") == "run `phalanx check 'my table'`"
    assert in_shell_words("run check()") == "run `phalanx check TABLE`"
