"""Constraints: rows that break one are refused before anything of them is visible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.constraints import constraints_of
from phalanx.model.filters import matches
from phalanx.table.filters import predicate_of
from phalanx.table.format import count_text
from phalanx.transaction.snapshot import Snapshot


def satisfying(tables: Iterable[pa.Table], snapshot: Snapshot) -> Iterator[pa.Table]:
    """Pass tables on whose rows satisfy the constraints of a table.

    A condition that is NULL is satisfied. Raises InvalidInput for a row that breaks one, and where
    a condition is beyond the SQL of filters.
    """
    broken = {}
    for name, sql in constraints_of(snapshot.head.properties).items():
        try:
            broken[name] = predicate_of(f"NOT ({sql})", snapshot)
        except InvalidInput as error:
            raise InvalidInput(
                f"the constraint {name!r} of {snapshot.location.uri}, {sql}, can only be checked "
                f"by Spark 4.1 or later ({error}): write the rows there"
            ) from None
    for table in tables:
        for name, predicate in broken.items():
            count = int(matches(predicate, table).sum())
            if count:
                sql = constraints_of(snapshot.head.properties)[name]
                raise InvalidInput(
                    f"{count_text(count, 'row')} {'breaks' if count == 1 else 'break'} the "
                    f"constraint {name!r} of {snapshot.location.uri}: {sql}"
                )
        yield table
