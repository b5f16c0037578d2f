"""Advice on partitions: which are too small, too large or skewed, and what would be better.

Everything comes from the manifest: no leaf is opened. The leaves that another spec would make are
predicted from the values and sizes of the present ones. Where a field becomes coarser, that is
exact, because the new value of a leaf follows from the old one. Where it becomes finer, it is an
estimate, which assumes that rows are spread evenly.

Advice says what to do as actions: a method of the table and its arguments. How an action is
written, as a call in Python, a statement in SQL or a command in a shell, is up to those who show
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.domains import domain_of
from phalanx.model.partition_advice import (
    MOST_BUCKETS,
    Candidate,
    CandidateField,
    by_time,
    coarser,
    entries_of,
    finer,
)
from phalanx.model.paths import join_path
from phalanx.model.predicates import EVERYTHING
from phalanx.model.specs import CustomField, build_spec
from phalanx.model.transforms import Bucket
from phalanx.table.arguments import whole_number
from phalanx.table.format import count_text, size_text
from phalanx.table.plan import Plan
from phalanx.transaction.snapshot import Snapshot
from phalanx.transaction.view import read_statistics

#: How large a leaf should be, about. Up to a quarter or four times of it is as good.
LEAF_BYTES = 512 * 1024 * 1024
_AS_GOOD = 2.0
#: From which part and which multiple of it on a leaf is called small or large.
_SMALL, _LARGE = 1 / 16, 16
#: How many times the median the largest leaf has where leaves are called skewed.
_SKEW = 10
#: Files below this size are small, and a leaf with so many of them is worth compacting.
_FILE_BYTES = 16 * 1024 * 1024
_FILES = 4
#: By how many doublings, on average, another spec must bring leaves nearer to their size.
_WORTH_IT = 0.5
#: What the loss of a field, or one more that no query knows, weighs against that.
_LOST, _ADDED = 0.25, 0.75
_NAMED = 5

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Action:
    """Something to do: the name of a table's method, and its arguments by their names."""

    verb: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """The call in Python. The only argument that must be given goes without its name."""
        arguments = ", ".join(
            _shown(value) if name == "partition_by" else f"{name}={_shown(value)}"
            for name, value in self.arguments.items()
        )
        return f"table.{self.verb}({arguments})"


#: How an action is written.
Spelling = Callable[[Action], str]


@dataclass(frozen=True)
class Finding:
    """One thing that could be better.

    `kind` is "small", "large", "skewed", "files", "old-spec" or "unknown".
    """

    kind: str
    text: str
    #: How many leaves it is about, and some of their names.
    leaves: int = 0
    examples: tuple[str, ...] = ()
    #: What to do about it, if it is not the other spec that is suggested.
    actions: tuple[Action, ...] = ()

    @property
    def python(self) -> str | None:
        """What to do about it, as calls in Python."""
        return "\n".join(map(str, self.actions)) or None


@dataclass(frozen=True)
class BetterSpec:
    """A spec that would suit the rows of the table better."""

    #: As `evolve_partitioning` takes it.
    partition_by: tuple[Any, ...]
    #: How many leaves the table would have, and their sizes.
    leaves: int
    median_bytes: int
    smallest_bytes: int
    largest_bytes: int
    #: Whether that is exact, or assumes that rows are spread evenly.
    exact: bool

    @property
    def actions(self) -> tuple[Action, ...]:
        """What gives the table this spec: evolve it, and move the rows of the earlier ones."""
        evolve = Action("evolve_partitioning", {"partition_by": list(self.partition_by)})
        return evolve, Action("rewrite")

    @property
    def python(self) -> str:
        """What gives the table this spec, as calls in Python."""
        return "\n".join(map(str, self.actions))

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        entries = ", ".join(_shown(entry) for entry in self.partition_by) or "nothing"
        return (
            f"partitioned by {entries}, it would have {about}{count_text(self.leaves, 'leaf')} of "
            f"{about}{size_text(self.median_bytes)} ({size_text(self.smallest_bytes)} to "
            f"{size_text(self.largest_bytes)})"
        )


@dataclass(frozen=True)
class Advice:
    """The report of `advise`."""

    uri: str
    partition_by: tuple[str, ...]
    leaves: int
    #: None where the manifest does not know.
    rows: int | None
    bytes: int | None
    findings: tuple[Finding, ...] = ()
    better: BetterSpec | None = None

    @property
    def ok(self) -> bool:
        """Whether there is nothing to do."""
        return not self.findings and self.better is None

    def __str__(self) -> str:
        return self.text(str)

    def text(self, spell: Spelling) -> str:
        """The advice for a reader, with actions as `spell` writes them."""
        fields = ", ".join(self.partition_by) or "nothing"
        held = "an unknown number of rows"
        if self.rows is not None and self.bytes is not None:
            held = f"{count_text(self.rows, 'row')}, {size_text(self.bytes)}"
        lines = [f"{self.uri}: {count_text(self.leaves, 'leaf')}, {held}, partitioned by {fields}"]
        for finding in self.findings:
            lines.append(f"- {finding.text}")
            lines += [f"    {spell(action)}" for action in finding.actions]
        if self.better is not None:
            lines.append(f"- {self.better}")
            lines += [f"    {spell(action)}" for action in self.better.actions]
        if self.ok:
            lines.append("nothing to do: its partitions and files are of good size")
        return "\n".join(lines)


def advise(snapshot: Snapshot, leaf_bytes: int = LEAF_BYTES) -> Advice:
    """Look at the sizes of leaves and files, and say what could be better."""
    return _Adviser(snapshot, whole_number(leaf_bytes, 1, "leaf_bytes")).advice()


class _Adviser:
    def __init__(self, snapshot: Snapshot, target: int) -> None:
        self._snapshot, self._target = snapshot, target
        self._leaves, self._head = snapshot.leaves, snapshot.head
        self._plan = Plan(snapshot, EVERYTHING)
        self._start = Candidate((), np.zeros(0), np.zeros(0))

    def advice(self) -> Advice:
        leaves, head = self._leaves, self._head
        sizes, rows = leaves.byte_counts, leaves.row_counts
        known = (sizes >= 0) & (rows >= 0)
        all_known = bool(known.all())
        low, high = leaves.range_of(head.spec_id)
        current = np.arange(low, high)[known[low:high]]
        findings = [
            *self._unknown(int((~known).sum())),
            *self._old(len(leaves) - (high - low)),
            *self._files(np.flatnonzero(known)),
        ]
        better = None
        # Rows that are still to be moved would change the picture.
        if 2 * int(sizes[current].sum()) >= int(sizes[known].sum()) and len(current):
            uneven = [*self._small(current), *self._large(current), *self._skewed(current)]
            if uneven:
                better = self._better(current)
            if better is None:
                # Nothing can be done about small leaves, and large ones can at least be sorted.
                uneven = [self._sorted(finding) for finding in uneven if finding.kind != "small"]
            findings += uneven
        return Advice(
            self._snapshot.location.uri,
            tuple(head.spec.spell(head.schema)),
            len(leaves),
            int(rows.sum()) if all_known else None,
            int(sizes.sum()) if all_known else None,
            tuple(findings),
            better,
        )

    # What is the matter

    def _unknown(self, count: int) -> Iterator[Finding]:
        if count:
            yield Finding(
                "unknown",
                f"the manifest does not know the sizes of {count_text(count, 'leaf')}, as in every "
                "weak table: make_strong() counts them",
                count,
            )

    def _old(self, count: int) -> Iterator[Finding]:
        if count:
            newest = self._head.spec.namespace
            yield Finding(
                "old-spec",
                f"{count_text(count, 'leaf')} of earlier specs could be moved to {newest}",
                count,
                self._names(np.flatnonzero(self._leaves.spec_ids != self._head.spec_id)),
                (Action("rewrite"),),
            )

    def _files(self, known: Array) -> Iterator[Finding]:
        leaves = self._leaves
        files, sizes = leaves.fragment_counts[known], leaves.byte_counts[known]
        many = known[(files >= _FILES) & (sizes < files * _FILE_BYTES)]
        if len(many):
            total = int(leaves.fragment_counts[many].sum())
            mean = int(leaves.byte_counts[many].sum()) // max(1, total)
            yield Finding(
                "files",
                f"{count_text(len(many), 'leaf')} {'consists' if len(many) == 1 else 'consist'} of "
                f"many small files: {total:,} of {size_text(mean)} on average",
                len(many),
                self._names(many),
                (Action("optimize"),),
            )

    def _small(self, current: Array) -> Iterator[Finding]:
        sizes = self._leaves.byte_counts[current]
        small = current[sizes < self._target * _SMALL]
        # One leaf that holds all there is cannot be larger, and half of the rest is enough.
        if len(current) > 1 and 2 * len(small) > len(current):
            median = int(np.median(sizes))
            yield Finding(
                "small",
                f"{len(small):,} of {count_text(len(current), 'leaf')} are too small: half of all "
                f"have at most {size_text(median)}, where {size_text(self._target)} would be good",
                len(small),
                self._names(small),
            )

    def _large(self, current: Array) -> Iterator[Finding]:
        sizes = self._leaves.byte_counts[current]
        large = current[sizes > self._target * _LARGE]
        if len(large):
            names = self._names(large[np.argsort(-self._leaves.byte_counts[large])])
            yield Finding(
                "large",
                f"{count_text(len(large), 'leaf')} of {len(current):,} "
                f"{'is' if len(large) == 1 else 'are'} too large, with up to "
                f"{size_text(int(sizes.max()))}: {', '.join(names)}",
                len(large),
                names,
            )

    def _skewed(self, current: Array) -> Iterator[Finding]:
        sizes = self._leaves.byte_counts[current]
        median, largest = float(np.median(sizes)), int(sizes.max())
        if len(current) < 3 or largest < self._target * _SMALL or largest <= _SKEW * median:
            return
        order = current[np.argsort(-sizes, kind="stable")]
        heavy = order[self._leaves.byte_counts[order] > _SKEW * median]
        share = self._leaves.byte_counts[heavy].sum() / max(1, sizes.sum())
        names = self._names(heavy)
        yield Finding(
            "skewed",
            f"{count_text(len(heavy), 'leaf')} of {len(current):,} "
            f"{'holds' if len(heavy) == 1 else 'hold'} {share:.0%} of all bytes: "
            f"{', '.join(names)}",
            len(heavy),
            names,
        )

    def _sorted(self, finding: Finding) -> Finding:
        """What helps where no other spec does: order within the leaf."""
        column = self._bucket_column(())
        if column is None or finding.actions:
            return finding
        return replace(
            finding,
            text=f"{finding.text}; no other spec would be better, but sorted by a column that "
            "queries filter by, less of it would be read",
            actions=(Action("optimize", {"sort_by": [column]}),),
        )

    def _names(self, indices: Array) -> tuple[str, ...]:
        return tuple(self._plan.short_name_of(row) for row in self._leaves.rows(indices[:_NAMED]))

    # What would be better

    def _better(self, current: Array) -> BetterSpec | None:
        """The best spec that can be reached by small changes, if it is worth the move."""
        start = candidate = self._start = self._current(current)
        score = first = self._score(candidate)
        for _ in range(8):
            moves = [
                (self._score(other), n, other) for n, other in enumerate(self._moves(candidate))
            ]
            best = min(moves, default=None, key=lambda move: move[:2])
            if best is None or best[0] >= score - 1e-9:
                break
            score, _, candidate = best
        if candidate is start or first - score < _WORTH_IT:
            return None
        return self._described(candidate)

    def _current(self, current: Array) -> Candidate:
        leaves, head = self._leaves, self._head
        fields = []
        for spec_field in head.spec.fields:
            column = leaves.column(spec_field.column_name).take(current)
            names = [
                None if source is None else join_path(source.path)
                for source in spec_field.sources(head.schema)
            ]
            fields.append(
                CandidateField(
                    spec_field.transform,
                    tuple(name or "" for name in names),
                    column,
                    dropped=None in names,
                    name=spec_field.field_id,
                )
            )
        return Candidate(tuple(fields), leaves.byte_counts[current], leaves.row_counts[current])

    def _score(self, candidate: Candidate) -> float:
        """How many doublings leaves are away from the target: the mean, by number and by bytes."""
        sizes, counts, _ = candidate.predicted()
        away = np.abs(np.log2(np.maximum(sizes, 1) / self._target)) - _AS_GOOD
        away = np.maximum(away, 0)
        weights = sizes * counts
        by_bytes = float((away * weights).sum() / max(1.0, weights.sum()))
        mean = (float((away * counts).sum() / counts.sum()) + by_bytes) / 2
        # Fields are there because queries filter by them, and nobody filters by a bucket.
        kept = {one.columns for one in candidate.fields}
        hashed = {one.columns for one in candidate.fields if isinstance(one.transform, Bucket)}
        lost = [
            one
            for one in self._start.fields
            if one.columns not in kept
            or (one.columns in hashed and not isinstance(one.transform, Bucket))
        ]
        added = [
            f for f in candidate.fields if isinstance(f.transform, Bucket) and f.column is None
        ]
        return mean + _LOST * len(lost) + _ADDED * len(added)

    def _moves(self, candidate: Candidate) -> Iterator[Candidate]:
        """Specs that differ in one field, gentle changes first; inner fields before outer ones."""
        for number in reversed(range(len(candidate.fields))):
            for less in coarser(candidate.fields[number]):
                yield candidate.with_fields(number, (less,))
        for number in reversed(range(len(candidate.fields))):
            if candidate.can_lose(number):
                yield candidate.with_fields(number, ())
        for number, one in enumerate(candidate.fields):
            for more in finer(one):
                yield candidate.with_fields(number, more)
        if not candidate.fields:
            yield from self._by_time(candidate)
        column = self._bucket_column(candidate.fields)
        if column is not None and not any(
            isinstance(f.transform, Bucket) for f in candidate.fields
        ):
            for power in range(1, int(math.log2(MOST_BUCKETS)) + 1):
                added = CandidateField(Bucket(2**power), (column,), None, factor=2**power)
                yield candidate.with_fields(len(candidate.fields), (added,))

    def _by_time(self, candidate: Candidate) -> Iterator[Candidate]:
        """An unpartitioned table by its first timestamp column, in units that suit its range."""
        leaves, schema = self._leaves, self._head.schema
        stats = read_statistics(
            self._snapshot, leaves.rows(range(*leaves.range_of(self._head.spec_id)))
        )
        for column in schema.columns.values():
            if len(column.path) > 1 or not pa.types.is_timestamp(column.type):
                continue
            bounds = [
                statistics[column.field_id]
                for statistics in stats.values()
                if column.field_id in statistics
            ]
            ends = [b.low for b in bounds if b.low is not None]
            ends += [b.high for b in bounds if b.high is not None]
            if not ends:
                continue
            array = domain_of(column.type).array([min(ends), max(ends)])
            first, last = (
                array.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
            )
            days = (last - first) / 86_400e6
            for fields in by_time(column.path[0], days):
                yield candidate.with_fields(0, fields)
            return

    def _bucket_column(self, fields: Sequence[CandidateField]) -> str | None:
        """A column to spread rows by, preferably one that has many values."""
        used = {f.columns[0] for f in fields} | {
            f.spell(self._head.schema) for f in self._head.spec.fields
        }
        candidates: list[tuple[bool, int, str]] = []
        for column in self._head.schema.columns.values():
            name, type = column.path[0], column.type
            if len(column.path) > 1 or name in used:
                continue
            if pa.types.is_integer(type) or pa.types.is_string(type):
                likely = name.lower() == "id" or name.lower().endswith("_id")
                candidates.append((not likely, len(candidates), name))
        return min(candidates)[2] if candidates else None

    def _described(self, candidate: Candidate) -> BetterSpec | None:
        sizes, counts, exact = candidate.predicted()
        entries = entries_of(candidate.fields)
        try:
            head = self._head
            number = max(spec.id for spec in head.specs) + 1
            spec = build_spec(number, entries, head.schema, head.specs)
        except InvalidInput:
            return None
        if spec.fields == head.spec.fields:
            return None
        order = np.argsort(sizes)
        middle = np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2)
        return BetterSpec(
            tuple(entries),
            max(1, round(float(counts.sum()))),
            int(sizes[order[min(middle, len(order) - 1)]]),
            int(sizes.min()),
            int(sizes.max()),
            exact,
        )


def _shown(value: Any) -> str:
    """An argument in Python."""
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, CustomField):
        return f"phalanx.expr({value.sql!r}, {list(value.columns)!r}, name={value.name!r})"
    return repr(value)
