"""Which rows of the manifest a swap removes, as a predicate for Lance.

Lance spends about 15 microseconds on each string of a predicate, and a leaf has at least three
rows: its namespace, its own and its timeline. Where everything inside of a namespace is removed,
the id of the namespace stands for all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from phalanx.model.literals import quote
from phalanx.storage.names import SEPARATOR, outer_ids

#: With fewer rows, it takes longer to look for a shorter predicate than to use the longer one.
_MANY = 2_000


def predicate_of(removed: Sequence[str], read_ids: Callable[[], pa.ChunkedArray]) -> str:
    """A predicate for the rows with these ids, and for no other row.

    `read_ids` reads the ids of all rows that the predicate will be applied to.
    """
    if len(removed) >= _MANY:
        roots = _roots(removed)
        if _all_inside_removed(roots, removed, read_ids()):
            return " OR ".join(
                f"substr_index(object_id, '{SEPARATOR}', {parts}) IN ({_list(ids)})"
                for parts, ids in roots.items()
            )
    return f"object_id IN ({_list(removed)})"


def _roots(removed: Sequence[str]) -> dict[int, list[str]]:
    """The ids that are not inside of another one, by the number of their parts."""
    all_removed = set(removed)
    roots: dict[int, list[str]] = {}
    for id in removed:
        if id.rpartition(SEPARATOR)[0] not in all_removed:
            roots.setdefault(id.count(SEPARATOR) + 1, []).append(id)
    return roots


def _all_inside_removed(
    roots: dict[int, list[str]], removed: Sequence[str], ids: pa.ChunkedArray
) -> bool:
    """Whether every row inside of a root is removed. Other clients may have put rows there."""
    kept = ids.filter(pc.invert(pc.is_in(ids, pa.array(removed, pa.string()))))
    return not any(
        pc.any(pc.is_in(outer_ids(kept, parts), pa.array(outer, pa.string()))).as_py()
        for parts, outer in roots.items()
    )


def _list(ids: Sequence[str]) -> str:
    return ", ".join(quote(id) for id in ids)
