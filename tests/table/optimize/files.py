"""Rows for tables of many files, and what there is to see of the files."""

import pyarrow as pa

from phalanx.transaction.view import read_statistics

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.float64())])


def row(id, part="a", n=None):
    return {"id": id, "part": part, "n": n}


def rows_of(table, where=None):
    return table.scan(where=where).to_arrow().to_pylist()


def fragments(table):
    return {leaf["part"]: leaf["fragments"] for leaf in table.partitions().to_pylist()}


def deleted_in_files(table):
    return sum(table.files()["deleted_rows"].to_pylist())


def statistics_of(table, part):
    snapshot = table._snapshot
    leaves = [snapshot.leaves.row(i) for i in range(len(snapshot.leaves))]
    (leaf,) = [leaf for leaf in leaves if leaf.keys == (part,)]
    return read_statistics(snapshot, [leaf])[leaf.object_id]


def last_operation(table):
    found = table.snapshots().to_pylist()[-1]
    return found["operation"], found["rows_added"], found["rows_removed"], found["leaves"]
