"""A bounded cache that evicts the least recently used value."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Values by key, up to a total weight of `size`. Threads may share a cache.

    A value weighs 1 unless `weigh` says otherwise. The newest value is kept even if it weighs more
    than `size`, but a cache of size 0 keeps nothing.
    """

    def __init__(self, size: int, weigh: Callable[[V], int] = lambda value: 1) -> None:
        self._size, self._weigh = size, weigh
        self._values: OrderedDict[K, V] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._drop(key)
            self._values[key] = value
            self._weight += self._weigh(value)
            while self._weight > self._size and len(self._values) > bool(self._size):
                self._drop(next(iter(self._values)))

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._weight = 0

    def values(self) -> list[V]:
        with self._lock:
            return list(self._values.values())

    def __len__(self) -> int:
        return len(self._values)

    @property
    def weight(self) -> int:
        """The total weight of all values."""
        return self._weight

    def _drop(self, key: K) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self._weight -= self._weigh(value)
