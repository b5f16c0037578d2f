"""The line of writers that wait to commit to a table in an object store.

Each commit that loses a swap has done its work for nothing, and with many writers nearly all of
them lose. So writers that have met others stand in line: a file in the table's folder lists them,
and whoever is first in it commits. Correctness does not depend on it: the swap alone decides which
transaction wins. Hence a writer goes on without its turn if the store has no conditional writes, or
refuses them, or does not answer.

A writer that meets nobody never looks at the file. Clocks of other machines do not matter: a writer
that stays first in line for some seconds by the clock of another one is passed over.
"""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Sequence
from types import TracebackType

from phalanx.lru import LruCache
from phalanx.storage.location import Location
from phalanx.storage.shared_file import Content, SharedFile, Unavailable
from phalanx.transaction.lock import LOCK_FILE

#: How long the first in line may take. Then the others pass it over: it is dead or stuck.
_PATIENCE_SECONDS = 3.0
#: How much longer each place further back waits for that. So a writer that finds the first one
#: still there knows that those in between are gone as well: they would have passed it over. It is
#: longer than any writer's pause between two looks.
_STAGGER_SECONDS = 0.3
#: How long a writer stays in line before it goes on without its turn.
_LONGEST_WAIT_SECONDS = 30.0
#: For how long a writer stands in line after it has met another one.
_BUSY_SECONDS = 5.0
#: For how long a line that failed is left alone. It doubles with each further failure.
_REST_SECONDS, _LONGEST_REST_SECONDS = 10.0, 300.0
#: How long a writer takes to commit, before this process has seen one.
_PACE_SECONDS = 0.1
#: The shortest and the longest time between two looks at the line.
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.004, 0.25
#: How often a writer joins again that is not in line any more: others have passed it over.
_JOINS = 3
#: How often a writer tries to leave. Those that come and go at the same moment make it fail.
_LEAVES = 20


class Turn:
    """A writer's place in line, for one commit. It is left when the commit is over.

    A file system has a lock instead, and there it does nothing.
    """

    def __init__(self, location: Location) -> None:
        self._line = _line_of(location) if SharedFile.is_possible(location) else None
        self._id = uuid.uuid4().hex[:16]
        self._joined = False
        #: Since when it has been this writer's turn.
        self._since: float | None = None

    def __enter__(self) -> Turn:
        return self

    def wait(self, lost: bool) -> bool:
        """Wait for the writer's turn if there are others; returns whether it has one.

        `lost` says that this commit has just lost a swap, so there are others.
        """
        line = self._line
        if line is None:
            return False
        if lost:
            line.meet()
        if not line.is_busy:
            return False
        try:
            turn = self._wait(line)
        except Unavailable:
            line.fail()
            return False
        line.failures = 0
        return turn

    def _wait(self, line: _Line) -> bool:
        started = time.monotonic()
        first, since = "", started
        joins = 0
        state = line.read()
        while True:
            now = time.monotonic()
            is_in_line = self._id in state.ids
            ahead = state.ids.index(self._id) if is_in_line else len(state.ids)
            if ahead or len(state.ids) > 1:
                line.meet()
            if is_in_line and ahead == 0:
                self._since = now
                return True
            if now - started > _LONGEST_WAIT_SECONDS or (joins == _JOINS and not is_in_line):
                return False
            if ahead and state.ids[0] != first:
                first, since = state.ids[0], now
            if not is_in_line:
                self._joined = True
                changed = line.write([*state.ids, self._id], state)
                joins += changed is not None
            elif now - since > _PATIENCE_SECONDS + (ahead - 1) * _STAGGER_SECONDS:
                changed = line.write(state.ids[ahead:], state)
            else:
                time.sleep(_pause(ahead, line.pace, now - since))
                changed = None
            state = changed or line.read()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._line is None or not self._joined:
            return
        if self._since is not None:
            self._line.pace += 0.3 * (time.monotonic() - self._since - self._line.pace)
        for attempt in range(_LEAVES):
            try:
                state = self._line.read()
                others = [id for id in state.ids if id != self._id]
                if len(others) == len(state.ids):
                    return
                if others:
                    self._line.meet()
                if self._line.write(others, state):
                    return
            except Unavailable:
                # A writer that stays in line is passed over by the others, after seconds.
                if attempt > 1:
                    self._line.fail()
                    return


def _pause(ahead: int, pace: float, passed: float) -> float:
    """How long to sleep before the next look at the line, with so many writers ahead.

    `pace` is how long each of them takes, and `passed` for how long the first one has been there. A
    look costs the store as much as a step of a commit does, so only the next in line looks often.
    """
    pause = max(pace / 10, passed / 20) if ahead == 1 else 0.6 * (ahead - 1) * pace
    pause = min(max(pause, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
    return pause * random.uniform(0.8, 1.2)


class _Waiting:
    """The writers in line, the first one first."""

    def __init__(self, content: Content | None) -> None:
        """Raises Unavailable if the file holds something else."""
        self.content = content
        try:
            ids = [] if content is None else json.loads(content.data or b"[]")
        except ValueError:
            raise Unavailable from None
        if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
            raise Unavailable
        self.ids: list[str] = ids


class _Line:
    """The line of a table, and what this process knows of it. Threads share it."""

    def __init__(self, location: Location) -> None:
        self._file = SharedFile(location, LOCK_FILE)
        self._lock = threading.Lock()
        self._busy_until = self._rests_until = 0.0
        self.failures = 0
        #: How long a commit takes while it is a writer's turn.
        self.pace = _PACE_SECONDS

    def read(self) -> _Waiting:
        return _Waiting(self._file.read())

    def write(self, ids: Sequence[str], over: _Waiting) -> _Waiting | None:
        """Write the line; None if another writer came first."""
        content = self._file.write(json.dumps(ids).encode(), over.content)
        return None if content is None else _Waiting(content)

    @property
    def is_busy(self) -> bool:
        """Whether this process has met other writers lately, and can stand in line."""
        return self._rests_until < time.monotonic() < self._busy_until

    def meet(self) -> None:
        """Note that there are other writers."""
        self._busy_until = time.monotonic() + _BUSY_SECONDS

    def fail(self) -> None:
        """Note that the line does not work."""
        with self._lock:
            rest = min(_REST_SECONDS * 2**self.failures, _LONGEST_REST_SECONDS)
            self._rests_until = time.monotonic() + rest
            self.failures = min(self.failures + 1, 10)


_Key = tuple[str, frozenset[tuple[str, str]]]
#: The lines that this process knows, by the table's URI and options.
_lines: LruCache[_Key, _Line] = LruCache(16)


def _line_of(location: Location) -> _Line:
    key = location.uri, frozenset((location.options or {}).items())
    line = _lines.get(key)
    if line is None:
        line = _Line(location)
        _lines.put(key, line)
    return line
