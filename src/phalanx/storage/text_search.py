"""Full-text search in a leaf: rows that its index covers, and rows that it does not.

Lance searches the indexed rows. It would search the others, too, but cuts their texts into words
as its defaults say, and not as the index does; and it leaves out words that are merely similar. So
these rows are read, cut into words by Lance's tokenizer with the parameters of the index, and
matched here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import lance
import numpy as np
import pyarrow as pa
from lance.query import (
    BooleanQuery,
    FullTextOperator,
    FullTextQuery,
    MatchQuery,
    Occur,
    PhraseQuery,
)

from phalanx.lru import LruCache
from phalanx.model.indexes import IndexDefinition
from phalanx.model.predicates import Predicate
from phalanx.model.schema import TableSchema
from phalanx.model.text import (
    Boolean,
    Match,
    Phrase,
    Statistics,
    Text,
    TextQuery,
    Token,
    Tokenize,
    rarity,
)
from phalanx.storage.files import is_lasting
from phalanx.storage.lance_private import text_index_lengths
from phalanx.storage.leaf_indexes import covered_fragments
from phalanx.storage.location import Location
from phalanx.storage.mapping import ROW_ID
from phalanx.storage.searched import SCORE, Array, open_searched
from phalanx.storage.small_leaves import Member

#: How many words of rows without an index, and how many counts of words, a process remembers.
_REMEMBERED_WORDS = 4_000_000
_REMEMBERED_COUNTS = 200_000
#: A parameter of an index that says nothing about how texts are cut into words.
_NOT_TOKENIZER = ("with_position",)


def tokenizer(definition: IndexDefinition | None) -> Tokenize:
    """Cuts a text into words as an index does; without one, as a new index would."""
    parameters = {} if definition is None else dict(definition.parameters)
    options = {key: value for key, value in parameters.items() if key not in _NOT_TOKENIZER}

    def tokenize(text: str) -> list[Token]:
        return [Token(token.text, token.position) for token in lance.tokenize(text, **options)]

    return tokenize


def surfaces(text: str, tokenize: Tokenize) -> dict[str, str]:
    """For each word of a query, as an index knows it, how it is spelled there.

    A query for one word must spell it like this: cutting `universities` down to its stem twice may
    give another word than doing it once.
    """
    spelled: dict[str, str] = {}
    for piece in text.split():
        tokens = tokenize(piece)
        if len(tokens) == 1:
            spelled.setdefault(tokens[0].text, piece)
        for token in tokens:
            spelled.setdefault(token.text, token.text)
    for token in tokenize(text):
        spelled.setdefault(token.text, token.text)
    return spelled


class _Tail:
    """The rows of a leaf that its index does not cover, cut into words."""

    def __init__(self, ids: Array, texts: Sequence[Text]) -> None:
        kept = [number for number, text in enumerate(texts) if text.length]
        self.ids = ids[kept]
        self.texts = [texts[number] for number in kept]
        self.statistics = Statistics(len(kept), sum(text.length for text in self.texts))
        self.with_word = Counter(word for text in self.texts for word in text.positions)


_tails: LruCache[tuple[Any, ...], _Tail] = LruCache(
    _REMEMBERED_WORDS, lambda tail: tail.statistics.words + 1
)
_statistics: LruCache[tuple[Any, ...], tuple[Statistics, Statistics]] = LruCache(4_096)
_counts: LruCache[tuple[Any, ...], int] = LruCache(_REMEMBERED_COUNTS)


class TextLeaf:
    """A leaf whose texts are searched."""

    def __init__(
        self,
        location: Location,
        schema: TableSchema,
        member: Member,
        column: str,
        definition: IndexDefinition | None,
        tokenize: Tokenize,
        use_index: bool = True,
    ) -> None:
        """Without `use_index`, texts are cut into words as its index does, and all are read."""
        self._use_index = use_index
        self._location, self._schema, self._member = location, schema, member
        self._column, self._definition, self._tokenize = column, definition, tokenize
        (self.searched,) = open_searched(location, schema, [member])
        self._handle = self.searched.handle

    @property
    def _key(self) -> tuple[Any, ...]:
        name = "" if self._definition is None else self._definition.name
        uri, column = self.searched.uri, self._schema.tagged.names.index(self._column)
        identity = uri, int(self._handle.version), self._column, column, name, self._parameters
        return (*identity, self._use_index)

    @cached_property
    def _parameters(self) -> str:
        return "" if self._definition is None else self._definition.to_text()

    @property
    def _is_fixed(self) -> bool:
        """Whether the version never changes, so that what is known of it can be remembered."""
        return is_lasting(self._member.version)

    @cached_property
    def _held(self) -> str | None:
        """The leaf's name for the column; None if it has none, and so no text."""
        reading = self.searched.reading([self._column])
        return reading.columns[0] if reading.columns and not reading.converts else None

    @cached_property
    def _covered(self) -> Mapping[str, frozenset[int]]:
        """The fragments that each segment of the index covers, by the segment's id."""
        if self._definition is None or self._held is None or not self._use_index:
            return {}
        return covered_fragments(self._handle, self._definition.name)

    @cached_property
    def _missing(self) -> list[int]:
        covered = frozenset().union(*self._covered.values())
        live = {fragment.fragment_id for fragment in self._handle.get_fragments()}
        return sorted(live - covered)

    @property
    def is_whole(self) -> bool:
        """Whether the index covers every row, and no row that was deleted."""
        if not self._covered or self._missing:
            return False
        live, everything = self._indexed_statistics
        return live == everything

    @cached_property
    def tail(self) -> _Tail:
        """The rows that the index does not cover."""
        if not self._missing:
            return _Tail(np.zeros(0, np.uint64), [])
        tail = _tails.get(self._key) if self._is_fixed else None
        if tail is None:
            rows = self._scanned(None, [self._column])
            values = rows.column(self._column).to_pylist()
            texts = [Text(self._tokenize(value) if value else ()) for value in values]
            tail = _Tail(rows.column(ROW_ID).to_numpy(), texts)
            if self._is_fixed:
                _tails.put(self._key, tail)
        return tail

    def _scanned(self, where: Predicate | None, columns: Sequence[str]) -> pa.Table:
        """Columns of the rows that the index does not cover, with their ids."""
        leaf = self._member.leaf(self._location, self._schema)
        batches = list(
            leaf.scan(self._member.version, columns, where, fragments=self._missing, row_ids=True)
        )
        fields = [self._schema.arrow.field(name) for name in columns]
        empty = pa.schema([*fields, pa.field(ROW_ID, pa.uint64())]).empty_table()
        return pa.Table.from_batches(batches) if batches else empty

    # Statistics

    @property
    def statistics(self) -> Statistics:
        """Rows and words of the leaf."""
        return self._indexed_statistics[0] + self.tail.statistics

    @cached_property
    def _indexed_statistics(self) -> tuple[Statistics, Statistics]:
        """Of the indexed rows: those that are there, and those that Lance's own scores count."""
        known = _statistics.get(self._key) if self._is_fixed else None
        if known is None:
            known = self._read_statistics()
            if self._is_fixed:
                _statistics.put(self._key, known)
        return known

    def _read_statistics(self) -> tuple[Statistics, Statistics]:
        everything, live = Statistics(0, 0), Statistics(0, 0)
        if not self._covered:
            return live, everything
        ids = None
        fragments = {f.fragment_id: f for f in self._handle.get_fragments()}
        for segment, covered in self._covered.items():
            rows, words, lengths = text_index_lengths(
                self.searched.uri, segment, self._location.options
            )
            everything += Statistics(rows, words)
            untouched = all(fragments[id].num_deletions == 0 for id in covered)
            if untouched and len(covered) == self._built_for[segment]:
                live += Statistics(rows, words)
                continue
            if ids is None:
                ids = self._live_ids()
            of_rows, counts = lengths()
            mine = np.isin(of_rows, ids) & np.isin(of_rows >> np.uint64(32), list(covered))
            live += Statistics(int(mine.sum()), int(counts[mine].sum()))
        return live, everything

    @cached_property
    def _built_for(self) -> Mapping[str, int]:
        """How many fragments each segment was built for, whether or not they are still there."""
        assert self._definition is not None
        return {
            str(segment.uuid): len(segment.fragment_ids)
            for index in self._handle.describe_indices()
            if index.name == self._definition.name
            for segment in index.segments
        }

    def _live_ids(self) -> Array:
        table = self._handle.scanner(columns=[], with_row_id=True).to_table()
        ids: Array = table.column(ROW_ID).to_numpy()
        return ids

    def with_word(self, word: str, spelled: str) -> int:
        """How many rows have a word; `spelled` is how a query spells it."""
        return self._indexed_with_word(word, spelled) + self.tail.with_word[word]

    def _indexed_with_word(self, word: str, spelled: str) -> int:
        if not self._covered:
            return 0
        key = (*self._key, word)
        count = _counts.get(key) if self._is_fixed else None
        if count is None:
            count = len(self._run(Match(spelled), None, None)[0])
            if self._is_fixed:
                _counts.put(key, count)
        return count

    def local_rarities(self, word: str, spelled: str) -> tuple[float, float]:
        """The least and the most that a word can say in Lance's own scores.

        Deleted rows are counted in them until the index is built again.
        """
        live, everything = self._indexed_statistics
        have = self._indexed_with_word(word, spelled)
        gone = everything.rows - live.rows
        return rarity(everything.rows, have + gone), rarity(everything.rows, have)

    @property
    def local_average(self) -> float:
        """The mean length of a text in Lance's own scores."""
        return self._indexed_statistics[1].average

    # Searching

    def indexed(
        self, query: TextQuery, where: Predicate | None, limit: int | None
    ) -> tuple[Array, Array]:
        """Ids of the best indexed rows, and Lance's own scores."""
        if not self._covered:
            return np.zeros(0, np.uint64), np.zeros(0, np.float32)
        return self._run(query, where, limit)

    def _run(
        self, query: TextQuery, where: Predicate | None, limit: int | None
    ) -> tuple[Array, Array]:
        assert self._held is not None
        with self.searched.evaluating(where) as filter:
            table = self._handle.scanner(
                columns=[SCORE],
                filter=filter,
                prefilter=True,
                limit=limit,
                full_text_query=lance_query(query, self._held),
                with_row_id=True,
                # Only indexed rows: the others are matched here.
                fast_search=True,
                disable_scoring_autoprojection=True,
            ).to_table()
        return table.column(ROW_ID).to_numpy(), table.column(SCORE).to_numpy()

    def unindexed(
        self, score: Callable[[Text], float | None], where: Predicate | None
    ) -> tuple[Array, Array]:
        """Ids and scores of the rows that match and that the index does not cover."""
        tail = self.tail
        if not len(tail.ids):
            return np.zeros(0, np.uint64), np.zeros(0, np.float64)
        scores = [score(text) for text in tail.texts]
        matched = np.array([value is not None for value in scores])
        if where is not None and matched.any():
            matched &= np.isin(tail.ids, self._scanned(where, []).column(ROW_ID).to_numpy())
        values = np.array([0.0 if value is None else value for value in scores])
        return tail.ids[matched], values[matched]

    def texts(self, ids: Array) -> list[Text]:
        """The texts of some rows, cut into words."""
        values = self.searched.rows(ids, [self._column]).column(0).to_pylist()
        return [Text(self._tokenize(value) if value else ()) for value in values]


def lance_query(query: TextQuery, column: str) -> FullTextQuery:
    """A query as Lance takes it."""
    match query:
        case Match():
            return MatchQuery(
                query.text,
                column,
                boost=query.boost,
                fuzziness=cast(int, query.fuzziness),  # None is allowed, too
                prefix_length=query.prefix_length,
                operator=FullTextOperator(query.operator.upper()),
            )
        case Phrase():
            return PhraseQuery(query.text, column, slop=query.slop)
        case Boolean():
            parts = [
                (occur, lance_query(part, column))
                for occur, queries in (
                    (Occur.MUST, query.must),
                    (Occur.SHOULD, query.should),
                    (Occur.MUST_NOT, query.must_not),
                )
                for part in queries
            ]
            return BooleanQuery(parts)
