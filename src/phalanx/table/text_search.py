"""Full-text search: rows that have some words, best first, in one partition or in all of them.

A score depends on how rare a word is. Lance knows that for one leaf. To compare rows of several
leaves, rows and words of all leaves that are searched are counted first, and rows are scored with
these counts: the order is that of one dataset with the same rows. Lance's own score in a leaf
bounds the true one from below and above, so only rows that can be among the best are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.indexes import TEXT, IndexDefinition
from phalanx.model.predicates import Predicate
from phalanx.model.text import (
    Scorer,
    Statistics,
    Text,
    TextQuery,
    is_fuzzy,
    matches_in,
    query_of,
    rarity,
)
from phalanx.storage.read_units import ReadUnit
from phalanx.storage.searched import Array, Gathered
from phalanx.storage.text_search import TextLeaf, surfaces, tokenizer
from phalanx.table.plan import Plan
from phalanx.table.search import Best, search_pool, search_units
from phalanx.transaction.snapshot import Snapshot

#: How many rows of a leaf are looked at, at first, for each row that is wanted.
_FIRST = 2
#: How many times more in each further round.
_MORE = 8
#: Scores of Lance are 32-bit numbers.
_ROUNDING = 1e-5

#: A leaf with its residual filter.
_Searched: TypeAlias = tuple[TextLeaf, Predicate | None]


@dataclass(frozen=True)
class Frequencies:
    """Rows and words of leaves, and how many rows have each word of a query."""

    statistics: Statistics
    with_word: Mapping[str, int]

    def __add__(self, other: Frequencies) -> Frequencies:
        words = self.with_word.keys() | other.with_word.keys()
        counts = {w: self.with_word.get(w, 0) + other.with_word.get(w, 0) for w in words}
        return Frequencies(self.statistics + other.statistics, counts)


class TextSearch:
    """A query for words of a column, checked."""

    def __init__(self, snapshot: Snapshot, text: str | TextQuery, column: str | None) -> None:
        """Raises InvalidInput for a query or a column that makes no sense."""
        self._snapshot = snapshot
        self.query = query_of(text)
        self._column = text_column(snapshot, column)
        self._index = text_index(snapshot, self._column)
        self.tokenize = tokenizer(self._index)
        #: The words of the query, with how it spells them.
        self.words: dict[str, str] = {}
        for part in matches_in(self.query):
            self.words |= surfaces(part.text, self.tokenize)

    def leaves(self, units: Sequence[ReadUnit]) -> list[_Searched]:
        """Leaves that are open, each with its residual filter."""
        return list(search_pool().map(self._opened, units))

    def _opened(self, unit: ReadUnit) -> _Searched:
        (member,) = unit.members
        location, schema = self._snapshot.location, self._snapshot.head.schema
        # Lance compares words that are not cut down to their stems, and not with all words.
        exactly = not is_fuzzy(self.query)
        leaf = TextLeaf(
            location, schema, member, self._column, self._index, self.tokenize, use_index=exactly
        )
        return leaf, unit.where

    def frequencies(self, leaves: Sequence[_Searched]) -> Frequencies:
        """The frequencies in some leaves."""
        parts = search_pool().map(lambda item: item[0].statistics, leaves)
        statistics = sum(parts, Statistics(0, 0))
        counts = {word: self.count(word, leaves) for word in self.words}
        return Frequencies(statistics, counts)

    def count(self, word: str, leaves: Sequence[_Searched]) -> int:
        """How many rows of some leaves have a word."""
        spelled = self.words.get(word, word)
        return sum(search_pool().map(lambda item: item[0].with_word(word, spelled), leaves))


def text_units(plan: Plan) -> list[ReadUnit]:
    """The leaves to search, one by one."""
    return search_units(plan, None, together=False)


def best_texts(
    snapshot: Snapshot, text: str | TextQuery, column: str | None, k: int, plan: Plan
) -> Best:
    """The k rows that match a query best; `distances` of the result are negative scores."""
    asked = TextSearch(snapshot, text, column)
    leaves = asked.leaves(text_units(plan))
    if len(leaves) == 1 and leaves[0][0].is_whole:
        # All rows are in one index: Lance's scores are the true ones.
        leaf, where = leaves[0]
        ids, scores = leaf.indexed(asked.query, where, k)
        return _best(snapshot, [leaf], [np.zeros(len(ids), np.int64)], [ids], [scores]).top(k)
    return _Ranking(snapshot, asked, k, leaves, asked.frequencies(leaves)).best()


def best_texts_of(
    snapshot: Snapshot,
    asked: TextSearch,
    k: int,
    units: Sequence[ReadUnit],
    frequencies: Frequencies,
) -> Best:
    """The k best rows of some leaves, for one of several processes.

    Raises InvalidInput for a fuzzy query: which words it is for is only known from all texts.
    """
    if is_fuzzy(asked.query):
        raise InvalidInput("a fuzzy query is not searched in parts")
    return _Ranking(snapshot, asked, k, asked.leaves(units), frequencies).best()


def text_column(snapshot: Snapshot, column: str | None) -> str:
    """The column to search in; without a name, the only one that has a full-text index."""
    schema = snapshot.head.schema
    if column is None:
        indexed = [
            name
            for index in snapshot.head.indexes.values()
            if index.family == TEXT and (name := schema.name_of(index.column_id)) is not None
        ]
        if len(indexed) == 1:
            return indexed[0]
        known = ", ".join(indexed) or "none"
        raise InvalidInput(
            f"say which column to search with `column`: those with a full-text index are {known}"
        )
    if column not in schema.arrow.names:
        known = ", ".join(schema.arrow.names)
        raise InvalidInput(f"there is no column {column!r} to search: the table has {known}")
    type = schema.arrow.field(column).type
    if not (pa.types.is_string(type) or pa.types.is_large_string(type)):
        raise InvalidInput(f"column {column!r} is {type}, and words are searched in strings")
    return column


def text_index(snapshot: Snapshot, column: str) -> IndexDefinition | None:
    """The full-text index of a column."""
    schema = snapshot.head.schema
    return next(
        (
            index
            for index in snapshot.head.indexes.values()
            if index.family == TEXT and schema.name_of(index.column_id) == column
        ),
        None,
    )


def _best(
    snapshot: Snapshot,
    leaves: Sequence[TextLeaf],
    sources: Sequence[Array],
    ids: Sequence[Array],
    scores: Sequence[Array],
) -> Best:
    places = np.concatenate([*sources, np.zeros(0, np.int64)])
    datasets = [leaf.searched for leaf in leaves]
    return Best(
        datasets,
        Gathered(snapshot.location, snapshot.head.schema, datasets),
        places,
        np.zeros(len(places), np.int32),
        np.concatenate([*ids, np.zeros(0, np.uint64)]),
        -np.concatenate([*scores, np.zeros(0)]),
    )


@dataclass
class _Candidates:
    """Indexed rows of one leaf: their ids, and Lance's scores in the leaf."""

    ids: Array
    local: Array
    #: The true score lies between these multiples of Lance's.
    least: float
    most: float
    #: How many rows were asked for; None for all.
    limit: int | None
    #: True scores, where they are known.
    scores: Array = field(init=False)

    def __post_init__(self) -> None:
        self.scores = np.full(len(self.ids), np.nan)

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows that match."""
        return self.limit is None or len(self.ids) < self.limit

    @property
    def rest(self) -> float:
        """The best score that a row which is not among these can have."""
        return -np.inf if self.is_whole else float(self.local.min()) * self.most


class _Ranking:
    """The order of rows of several leaves, with the statistics of all of them."""

    def __init__(
        self,
        snapshot: Snapshot,
        asked: TextSearch,
        k: int,
        leaves: Sequence[_Searched],
        frequencies: Frequencies,
    ) -> None:
        """`frequencies` are those of all leaves that are searched, also by other processes."""
        self._snapshot, self._asked, self._k = snapshot, asked, k
        self._query, self._words, self._leaves = asked.query, asked.words, leaves
        self._statistics = frequencies.statistics
        self._with_word = dict(frequencies.with_word)
        self._scorer = Scorer(asked.tokenize, self._statistics, self._count)

    def _count(self, word: str) -> int:
        """How many rows of all leaves have a word; those that a fuzzy query is for come later."""
        if word not in self._with_word:
            self._with_word[word] = self._asked.count(word, self._leaves)
        return self._with_word[word]

    def best(self) -> Best:
        limit = None if is_fuzzy(self._query) else max(_FIRST * self._k, 16)
        numbers = range(len(self._leaves))
        candidates = list(search_pool().map(lambda n: self._candidates(n, limit), numbers))
        tails = [
            leaf.unindexed(lambda text: self._scorer.score(self._query, text), where)
            for leaf, where in self._leaves
        ]
        tail_scores = np.concatenate([*(scores for _, scores in tails), np.zeros(0)])
        while True:
            bar = self._score_contenders(candidates, tail_scores)
            short = [n for n in numbers if candidates[n].rest > bar]
            if not short:
                break
            for number in short:
                known = candidates[number]
                assert known.limit is not None
                candidates[number] = self._candidates(number, known.limit * _MORE)
        return self._put_together(candidates, tails)

    def _candidates(self, number: int, limit: int | None) -> _Candidates:
        leaf, where = self._leaves[number]
        ids, local = leaf.indexed(self._query, where, limit)
        least, most = self._bounds(leaf) if len(ids) else (1.0, 1.0)
        return _Candidates(ids, local, least, most, limit)

    def _bounds(self, leaf: TextLeaf) -> tuple[float, float]:
        """Between which multiples of Lance's score in a leaf the true one lies.

        A score is a sum over words of their rarity times how often they occur, relative to the
        length of the text in comparison with the mean. Both factors are bounded one by one.
        """
        if is_fuzzy(self._query):
            return 0.0, np.inf
        ratios = []
        for word, spelled in self._words.items():
            low, high = leaf.local_rarities(word, spelled)
            true = rarity(self._statistics.rows, self._count(word))
            ratios += [true / high, true / low]
        longer = self._statistics.average / (leaf.local_average or 1.0)
        least = min(ratios, default=1.0) * min(1.0, longer)
        most = max(ratios, default=1.0) * max(1.0, longer)
        return least * (1 - _ROUNDING), most * (1 + _ROUNDING)

    def _score_contenders(self, candidates: Sequence[_Candidates], tail_scores: Array) -> float:
        """Score the rows that can be among the best; returns the score that the k-th best has."""
        lows = [
            np.where(np.isnan(part.scores), part.local * part.least, part.scores)
            for part in candidates
        ]
        bar = self._kth(np.concatenate([*lows, tail_scores]))

        def score(number: int) -> None:
            part, leaf = candidates[number], self._leaves[number][0]
            wanted = np.flatnonzero(np.isnan(part.scores) & (part.local * part.most >= bar))
            if len(wanted):
                part.scores[wanted] = self._scores(leaf.texts(part.ids[wanted]))

        for number in range(len(candidates)):
            score(number)
        known = [part.scores[~np.isnan(part.scores)] for part in candidates]
        return self._kth(np.concatenate([*known, tail_scores]))

    def _scores(self, texts: Sequence[Text]) -> list[float]:
        scores = (self._scorer.score(self._query, text) for text in texts)
        # Lance says that the row matches; if we see it otherwise, it is at least no good match.
        return [0.0 if score is None else score for score in scores]

    def _kth(self, scores: Array) -> float:
        if len(scores) < self._k:
            return -np.inf
        return float(np.partition(scores, len(scores) - self._k)[len(scores) - self._k])

    def _put_together(
        self, candidates: Sequence[_Candidates], tails: Sequence[tuple[Array, Array]]
    ) -> Best:
        sources, ids, scores = [], [], []
        for number, (part, (tail_ids, tail_scores)) in enumerate(
            zip(candidates, tails, strict=True)
        ):
            known = ~np.isnan(part.scores)
            ids += [part.ids[known], tail_ids]
            scores += [part.scores[known], tail_scores]
            sources.append(np.full(int(known.sum()) + len(tail_ids), number, np.int64))
        leaves = [leaf for leaf, _ in self._leaves]
        return _best(self._snapshot, leaves, sources, ids, scores).top(self._k)
