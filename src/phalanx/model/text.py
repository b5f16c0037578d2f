"""Full-text queries as values: what matches them, and how well.

Scores are BM25, as Lance computes them: each word of the query adds the more, the rarer it is in
all rows that are searched and the more often it occurs in the row, relative to the row's length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from phalanx.errors import InvalidInput

#: BM25's parameters: how soon more occurrences add little, and how much the length counts.
K1, B = 1.2, 0.75


class Token(NamedTuple):
    """A word of a text as an index knows it, and its place."""

    text: str
    position: int


Tokenize = Callable[[str], Sequence[Token]]


@dataclass(frozen=True)
class Match:
    """Rows with any of some words, or with all of them (`operator="and"`).

    `fuzziness` is how many letters of a word may differ; None chooses by its length. The first
    `prefix_length` letters must be the same.
    """

    text: str
    operator: str = "or"
    fuzziness: int | None = 0
    prefix_length: int = 0
    boost: float = 1.0

    def __post_init__(self) -> None:
        _check_text(self.text)
        if self.operator not in ("or", "and"):
            raise InvalidInput(f"operator is 'or' or 'and', not {self.operator!r}")
        if self.fuzziness is not None and self.fuzziness not in (0, 1, 2):
            raise InvalidInput(f"fuzziness is 0, 1, 2 or None, not {self.fuzziness!r}")
        if not self.boost > 0:
            raise InvalidInput(f"boost is greater than 0, not {self.boost!r}")


@dataclass(frozen=True)
class Phrase:
    """Rows with some words one after the other, with at most `slop` words in between."""

    text: str
    slop: int = 0

    def __post_init__(self) -> None:
        _check_text(self.text)
        if not isinstance(self.slop, int) or self.slop < 0:
            raise InvalidInput(f"slop is a whole number from 0, not {self.slop!r}")


@dataclass(frozen=True)
class Boolean:
    """Rows that match all of `must` and none of `must_not`; `should` adds to the score.

    Without `must`, a row matches at least one of `should`.
    """

    must: Sequence[TextQuery] = ()
    should: Sequence[TextQuery] = ()
    must_not: Sequence[TextQuery] = ()

    def __post_init__(self) -> None:
        if not self.must and not self.should:
            raise InvalidInput("a boolean query needs something that must or should match")
        for part in (*self.must, *self.should, *self.must_not):
            if not isinstance(part, Match | Phrase | Boolean):
                raise InvalidInput(f"a part of a boolean query is a query, not {part!r}")


TextQuery = Match | Phrase | Boolean


def _check_text(text: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput("a full-text query needs words to search for")


def query_of(text: str | TextQuery) -> TextQuery:
    """A query from what a user passes in. Raises InvalidInput for anything else."""
    if isinstance(text, Match | Phrase | Boolean):
        return text
    return Match(text)


def matches_in(query: TextQuery) -> Iterator[Match | Phrase]:
    """The parts of a query that contribute to a score."""
    if isinstance(query, Boolean):
        for part in (*query.must, *query.should):
            yield from matches_in(part)
    else:
        yield query


def is_fuzzy(query: TextQuery) -> bool:
    """Whether words that are not in the query may match it."""
    return any(isinstance(part, Match) and part.fuzziness != 0 for part in matches_in(query))


class Statistics(NamedTuple):
    """How many rows have words, and how many words they have in all."""

    rows: int
    words: int

    def __add__(self, other: object) -> Statistics:
        assert isinstance(other, Statistics)
        return Statistics(self.rows + other.rows, self.words + other.words)

    @property
    def average(self) -> float:
        return self.words / self.rows if self.rows else 0.0


def rarity(rows: int, with_word: int) -> float:
    """How much a word says that this many of all rows have."""
    return math.log(1 + (max(0, rows - with_word) + 0.5) / (with_word + 0.5))


class Text:
    """A row's text, cut into words."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.length = len(tokens)
        self.positions: dict[str, list[int]] = {}
        for token in tokens:
            self.positions.setdefault(token.text, []).append(token.position)

    def __contains__(self, word: str) -> bool:
        return word in self.positions


class Scorer:
    """Scores rows with the statistics of everything that is searched."""

    def __init__(
        self, tokenize: Tokenize, statistics: Statistics, with_word: Callable[[str], int]
    ) -> None:
        """`with_word` says how many rows have a word."""
        self._tokenize, self._statistics, self._with_word = tokenize, statistics, with_word
        self._words: dict[str, tuple[Token, ...]] = {}

    def score(self, query: TextQuery, text: Text) -> float | None:
        """How well a row matches; None if it does not."""
        match query:
            case Match():
                return self._match(query, text)
            case Phrase():
                tokens = self._tokens(query.text)
                if not tokens or not _has_phrase(tokens, text, query.slop):
                    return None
                return sum(self._weight(token.text, text) for token in tokens)
            case Boolean():
                return self._boolean(query, text)

    def _match(self, query: Match, text: Text) -> float | None:
        total, matched = 0.0, 0
        tokens = self._tokens(query.text)
        for token in tokens:
            words = list(alike(token.text, query, text))
            matched += bool(words)
            total += sum(self._weight(word, text) for word in words)
        if not matched or (query.operator == "and" and matched < len(tokens)):
            return None
        return total * query.boost

    def _boolean(self, query: Boolean, text: Text) -> float | None:
        if any(self.score(part, text) is not None for part in query.must_not):
            return None
        must = [self.score(part, text) for part in query.must]
        should = [self.score(part, text) for part in query.should]
        if None in must or (not must and all(score is None for score in should)):
            return None
        return sum(score for score in (*must, *should) if score is not None)

    def _tokens(self, text: str) -> tuple[Token, ...]:
        if text not in self._words:
            self._words[text] = tuple(self._tokenize(text))
        return self._words[text]

    def _weight(self, word: str, text: Text) -> float:
        count = len(text.positions.get(word, ()))
        if not count:
            return 0.0
        relative = text.length / self._statistics.average if self._statistics.rows else 1.0
        often = count * (K1 + 1) / (count + K1 * (1 - B + B * relative))
        return rarity(self._statistics.rows, self._with_word(word)) * often


def alike(word: str, query: Match, text: Text) -> Iterator[str]:
    """The words of a text that match a word of a query."""
    distance = query.fuzziness
    if distance is None:
        distance = 0 if len(word) <= 2 else 1 if len(word) <= 5 else 2
    if distance == 0:
        if word in text:
            yield word
        return
    prefix = word[: query.prefix_length]
    for other in text.positions:
        if other.startswith(prefix) and _is_within(word, other, distance):
            yield other


def _is_within(one: str, other: str, most: int) -> bool:
    """Whether one word becomes another by at most so many changed, added or removed letters."""
    if abs(len(one) - len(other)) > most:
        return False
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        previous, row = row, [i]
        for j, b in enumerate(other, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (a != b)))
        if min(row) > most:
            return False
    return row[-1] <= most


def _has_phrase(tokens: Sequence[Token], text: Text, slop: int) -> bool:
    """Whether words follow each other as in a phrase, with at most `slop` others in between."""
    first, *rest = tokens
    for start in text.positions.get(first.text, ()):
        at, extra = start, 0
        for before, token in zip(tokens, rest, strict=False):
            wanted = at + token.position - before.position
            places = [p for p in text.positions.get(token.text, ()) if p >= wanted]
            if not places:
                break
            extra += min(places) - wanted
            at = min(places)
        else:
            if extra <= slop:
                return True
    return False
