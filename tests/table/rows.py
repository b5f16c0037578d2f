"""A small table of three partitions, and what there is to see of it."""

import pyarrow as pa

import phalanx

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])


def row(id, part="a", n=0):
    return {"id": id, "part": part, "n": n}


ROWS = [row(1), row(2), row(3, "b"), row(4, None)]


def rows(table):
    """The rows as anybody sees them; the handle that made a change must see the same."""
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda found: found["id"])
    again = phalanx.open(table.uri)
    assert found == sorted(again.scan().to_arrow().to_pylist(), key=lambda found: found["id"])
    assert table.count() == again.count() == len(found)
    assert sum(table.partitions()["rows"].to_pylist()) == len(found)
    return found


def ids(table):
    return [found["id"] for found in rows(table)]


def parts(table):
    """The partitions that have rows: in a weak table a leaf stays when they are gone."""
    found = zip(*(table.partitions()[c].to_pylist() for c in ("part", "rows")), strict=True)
    return [part for part, count in found if count]


def last(table):
    return table.snapshots().to_pylist()[-1]


#: The ids at each version of a table with history.
IDS_AT = {1: [], 2: [1, 2, 3, 4], 3: [1, 2, 3, 4, 5], 4: [3, 4, 5], 5: [3, 4, 5]}


def with_history(table):
    """Three changes to a strong table, which is at version 5 then."""
    table.append([row(5, "new")])
    table.delete("part = 'a'")
    table.update({"n": "n + 1", "part": "'z'"}, "id = 3")
    return table
