"""Constraints: rows that break one are refused before anything of them is visible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model.filters import bind, matches
from phalanx.model.portable import parse_portable
from phalanx.model.predicates import Call, Predicate
from phalanx.table.format import count_text
from phalanx.transaction.snapshot import Snapshot


def satisfying(tables: Iterable[pa.Table], snapshot: Snapshot) -> Iterator[pa.Table]:
    """Pass tables on whose rows satisfy the constraints of a table.

    A condition that is NULL is satisfied. Raises InvalidInput for a row that breaks one, and where
    a condition may mean something else to Spark, whose SQL it is.
    """
    constraints = snapshot.head.constraints
    broken = {name: _broken(name, sql, snapshot) for name, sql in constraints.items()}
    for table in tables:
        for name, predicate in broken.items():
            count = int(matches(predicate, table).sum())
            if count:
                raise InvalidInput(
                    f"{count_text(count, 'row')} {'breaks' if count == 1 else 'break'} the "
                    f"constraint {name!r} of {snapshot.location.uri}: {constraints[name]}"
                )
        yield table


def _broken(name: str, sql: str, snapshot: Snapshot) -> Predicate:
    """Which rows break a constraint."""
    schema = snapshot.head.schema
    try:
        return bind(Call("not", (parse_portable(sql, schema),)), schema.column)
    except InvalidInput as error:
        raise InvalidInput(
            f"the constraint {name!r} of {snapshot.location.uri}, {sql}, can only be checked "
            f"by Spark 4.1 or later ({error}): write the rows there"
        ) from None
