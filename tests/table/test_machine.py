"""Random changes to a table and to a plain list of rows: both must always hold the same."""

import datetime as dt
import shutil
import tempfile

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import phalanx
from phalanx import ConflictError, InvalidInput, TableNotFound
from phalanx.storage.location import Location
from phalanx.storage.manifest import ManifestVersion

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])
NAMES = SCHEMA.names
PARTS = ["a", "b", "c", None]


# Rows are tuples of id, part and n. A filter is SQL and the same in Python.
ROWS = st.lists(st.tuples(st.integers(0, 6), st.sampled_from(PARTS), st.integers(0, 3)), max_size=5)
FILTERS = st.one_of(
    st.integers(0, 6).map(lambda k: (f"id = {k}", lambda row: row[0] == k)),
    st.integers(0, 6).map(lambda k: (f"id < {k}", lambda row: row[0] < k)),
    st.integers(0, 3).map(lambda k: (f"n >= {k}", lambda row: row[2] >= k)),
    st.sampled_from("abc").map(lambda p: (f"part = '{p}'", lambda row: row[1] == p)),
    st.sampled_from("abc").map(lambda p: (f"part <> '{p}'", lambda row: row[1] not in (p, None))),
    st.just(("part IS NULL", lambda row: row[1] is None)),
    st.tuples(st.sampled_from("abc"), st.integers(0, 6)).map(
        lambda x: (f"part = '{x[0]}' OR id = {x[1]}", lambda row: row[1] == x[0] or row[0] == x[1])
    ),
    st.just(("TRUE", lambda row: True)),
)
ASSIGNMENTS = st.one_of(
    st.just(({"n": "n + 1"}, lambda row: (row[0], row[1], row[2] + 1))),
    st.just(({"n": "id", "id": "n"}, lambda row: (row[2], row[1], row[0]))),
    st.just(({"part": "NULL"}, lambda row: (row[0], None, row[2]))),
    st.sampled_from("abc").map(
        lambda p: ({"part": f"'{p}'", "n": "0"}, lambda row: (row[0], p, 0))
    ),
)


#: How tables are partitioned, and which partition a row is in.
PLACES = {
    ("part",): lambda row: row[1],
    ("part", "truncate(3, id)"): lambda row: (row[1], row[0] // 3),
    (): lambda row: None,
}


def arrow(rows):
    return pa.Table.from_pylist([dict(zip(NAMES, row, strict=True)) for row in rows], SCHEMA)


def order(rows):
    return sorted(rows, key=repr)


class Append:
    def __init__(self, rows):
        self.rows = rows

    def do(self, target, **options):
        target.append(arrow(self.rows), **options)

    def expect(self, rows, place):
        return rows + self.rows, None


class Delete:
    def __init__(self, where):
        self.where, self.matches = where

    def do(self, target, **options):
        return target.delete(self.where, **options)

    def expect(self, rows, place):
        left = [row for row in rows if not self.matches(row)]
        return left, len(rows) - len(left)


class Update:
    def __init__(self, assignment, where):
        self.values, self.set = assignment
        self.where, self.matches = where

    def do(self, target, **options):
        return target.update(self.values, self.where, **options)

    def expect(self, rows, place):
        found = [self.set(row) if self.matches(row) else row for row in rows]
        return found, sum(map(self.matches, rows))


class Merge:
    def __init__(self, rows, matched, not_matched):
        self.source = list({row[0]: row for row in rows}.values())
        self.matched, self.not_matched = matched, not_matched

    def do(self, target, **options):
        counts = target.merge(
            arrow(self.source),
            ["id"],
            when_matched=self.matched,
            when_not_matched=self.not_matched,
            **options,
        )
        return counts.inserted, counts.updated, counts.deleted

    def expect(self, rows, place):
        keys, have = {row[0] for row in self.source}, {row[0] for row in rows}
        hits = [row for row in rows if row[0] in keys]
        left = rows if self.matched == "ignore" else [row for row in rows if row[0] not in keys]
        updated = [row for row in self.source if row[0] in have and self.matched == "update"]
        new = [row for row in self.source if row[0] not in have and self.not_matched == "insert"]
        counts = len(new), len(hits) * (self.matched == "update"), len(hits)
        return left + updated + new, (*counts[:2], counts[2] * (self.matched == "delete"))


class Overwrite:
    def __init__(self, rows, mode, where):
        self.mode, (self.where, self.matches) = mode, where
        self.rows = [row for row in rows if mode != "where" or self.matches(row)]

    def do(self, target, **options):
        if self.mode == "where":
            target.overwrite(arrow(self.rows), where=self.where, **options)
        else:
            target.overwrite(arrow(self.rows), self.mode, **options)

    def expect(self, rows, place):
        places = {place(row) for row in self.rows}
        stays = {
            "table": lambda row: False,
            "partitions": lambda row: place(row) not in places,
            "where": lambda row: not self.matches(row),
        }[self.mode]
        return [row for row in rows if stays(row)] + self.rows, None


CHANGES = st.one_of(
    st.builds(Append, ROWS),
    st.builds(Append, ROWS),
    st.builds(Delete, FILTERS),
    st.builds(Update, ASSIGNMENTS, FILTERS),
    st.builds(
        Merge,
        ROWS,
        st.sampled_from(["update", "update", "delete", "ignore"]),
        st.sampled_from(["insert", "insert", "ignore"]),
    ),
    st.builds(Overwrite, ROWS, st.sampled_from(["table", "partitions", "where"]), FILTERS),
)
#: How files are to be laid out.
ORDERS = [{}, {}, {"target_rows": 2}, {"sort_by": ["n"]}, {"zorder_by": ["id", "n"]}]
#: Which of several handles is used: all but one may be behind.
HANDLES = st.integers(0, 2)


class WeakMachine(RuleBasedStateMachine):
    """What both kinds of tables can do."""

    mode = "weak"

    def __init__(self):
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="phalanx-machine-")
        self.uri = f"{self.folder}/table"
        self.tables = []
        #: The rows at every version, the oldest that can be opened, tags, and ids in use.
        self.at, self.oldest, self.tags, self.ids = {1: []}, 1, {}, {}

    @initialize(fields=st.sampled_from(list(PLACES)))
    def create(self, fields):
        self.place = PLACES[fields]
        phalanx.create(self.uri, SCHEMA, list(fields), transactions=self.mode)
        self.tables = [phalanx.open(self.uri) for _ in range(3)]

    def teardown(self):
        try:
            if self.tables:
                report = phalanx.open(self.uri).check()
                assert report.ok, str(report)
        finally:
            shutil.rmtree(self.folder)

    @property
    def rows(self):
        return self.at[max(self.at)]

    def handle(self, number):
        """One of the handles. A weak table's must not be stale: it knows what leaves there are."""
        table = self.tables[number]
        return table.refresh() if self.mode == "weak" else table

    def landed(self, table, rows):
        self.at[max(self.at) + 1] = rows
        assert table.version == max(self.at)

    @rule(number=HANDLES, change=CHANGES)
    def change(self, number, change):
        table = self.handle(number)
        rows, answer = change.expect(self.rows, self.place)
        assert change.do(table) == answer
        self.landed(table, rows)

    @rule(number=HANDLES, change=CHANGES, id=st.sampled_from("xy"))
    def change_with_an_id(self, number, change, id):
        table = self.handle(number)
        if id in self.ids:
            change.do(table, transaction_id=id)
            assert table.version == max(self.at)
            return
        rows, answer = change.expect(self.rows, self.place)
        assert change.do(table, transaction_id=id) == answer
        self.landed(table, rows)
        self.ids[id] = table.version

    @rule(number=HANDLES, changes=st.lists(CHANGES, min_size=2, max_size=4), look=st.booleans())
    def change_several_at_once(self, number, changes, look):
        table = self.handle(number)
        stale = table.version != max(self.at)
        rows = self.at[table.version]
        try:
            with table.transaction() as tx:
                for change in changes:
                    rows, answer = change.expect(rows, self.place)
                    assert change.do(tx) == answer
                    if look:
                        assert found_in(tx) == order(rows)
        except ConflictError:
            # What it had read or counted is no longer so.
            assert stale
            return
        rows = self.rows
        for change in changes:
            rows, _ = change.expect(rows, self.place)
        self.landed(table, rows)

    @rule(number=HANDLES, change=CHANGES)
    def change_nothing_after_all(self, number, change):
        table = self.handle(number)
        if self.mode == "weak":
            return
        with pytest.raises(ZeroDivisionError), table.transaction() as tx:  # noqa: PT012
            change.do(tx)
            tx.count()
            1 / 0  # noqa: B018

    @rule(number=HANDLES, where=st.none() | FILTERS, options=st.sampled_from(ORDERS))
    def optimize(self, number, where, options):
        """No row changes, and each group of leaves is a version of its own."""
        table, before = self.handle(number), max(self.at)
        report = table.optimize(None if where is None else where[0], **options)
        assert report.notes == [] or where is not None
        for version in range(before + 1, table.version + 1):
            self.at[version] = self.at[before]

    @rule(number=HANDLES)
    def refresh(self, number):
        assert self.tables[number].refresh().version == max(self.at)

    @rule(where=FILTERS)
    def read(self, where):
        text, matches = where
        table = phalanx.open(self.uri)
        expected = [row for row in self.rows if matches(row)]
        assert found_in(table, text) == order(expected)
        assert table.count(text) == len(expected)

    @invariant()
    def it_holds_what_it_should(self):
        if not self.tables:
            return
        table = phalanx.open(self.uri)
        assert table.version == max(self.at)
        assert found_in(table) == order(self.rows)
        assert table.count() == len(self.rows)
        assert sum(table.partitions()["rows"].to_pylist()) == len(self.rows)


class StrongMachine(WeakMachine):
    """And what only tables with a history can."""

    mode = "strong"

    def openable(self):
        return [v for v in self.at if v >= self.oldest or v in self.tags.values()]

    @rule(data=st.data())
    def travel(self, data):
        version = data.draw(st.sampled_from(self.openable()))
        then = phalanx.open(self.uri, version=version)
        assert found_in(then) == order(self.at[version])
        assert then.count() == len(self.at[version])

    @rule(number=HANDLES)
    def look_at_a_stale_handle(self, number):
        table = self.tables[number]
        assert found_in(table) == order(self.at[table.version])

    @rule(number=HANDLES, data=st.data())
    def rollback(self, number, data):
        table = self.tables[number].refresh()
        version = data.draw(st.sampled_from(self.openable()))
        table.rollback(version)
        self.landed(table, self.at[version])

    @rule(number=HANDLES, id=st.integers(0, 6), deletes=st.booleans(), data=st.data())
    def rollback_beside_a_change(self, number, id, deletes, data):
        """Under snapshot isolation the change reaches its rows wherever the rollback puts them."""
        table = self.tables[number].refresh()
        version, before = data.draw(st.sampled_from(self.openable())), self.rows
        with table.transaction(isolation="snapshot") as tx:
            tx.delete(f"id = {id}") if deletes else tx.update({"n": "-1"}, f"id = {id}")
            self.landed(phalanx.open(self.uri).rollback(version), self.at[version])
        rows = found_in(table)
        there, there_before = (sum(row[0] == id for row in at) for at in (self.rows, before))
        left = [row for row in rows if row[0] == id and row[2] != -1]
        assert len(left) <= max(0, there - there_before)
        others = [[row for row in at if row[0] != id] for at in (rows, self.rows)]
        assert order(others[0]) == order(others[1])
        assert deletes or len(rows) == len(self.rows)
        self.landed(table, rows)

    @rule(number=HANDLES, name=st.sampled_from("tu"), data=st.data())
    def tag(self, number, name, data):
        table = self.tables[number].refresh()
        version = data.draw(st.sampled_from(self.openable()))
        if self.tags.get(name, version) != version:
            with pytest.raises(InvalidInput, match="drop it first"):
                table.tag(name, version=version)
            return
        table.tag(name, version=version)
        self.tags[name] = version
        self.landed(table, self.rows)
        tagged = phalanx.open(self.uri, version=name)
        assert (tagged.version, found_in(tagged)) == (version, order(self.at[version]))

    @precondition(lambda self: self.tags)
    @rule(number=HANDLES, data=st.data())
    def drop_tag(self, number, data):
        table = self.tables[number].refresh()
        name = data.draw(st.sampled_from(sorted(self.tags)))
        table.drop_tag(name)
        del self.tags[name]
        self.landed(table, self.rows)

    @precondition(lambda self: len(self.at) > 4)
    @rule(number=HANDLES)
    def vacuum(self, number):
        """Everything goes that can: all but the newest version, and those with tags."""
        newest = max(self.at)
        self.tables[number].vacuum(dt.timedelta(0), force=True)
        if self.tables[number].version > newest:
            self.landed(self.tables[number], self.rows)
        self.oldest = ManifestVersion(Location(self.uri)).head().oldest
        assert self.oldest in (newest, newest - 1)
        kept = self.openable()
        for version in self.at:
            if version not in kept:
                with pytest.raises(TableNotFound):
                    phalanx.open(self.uri, version=version)
        self.ids = {id: version for id, version in self.ids.items() if version in kept}
        for table in self.tables:
            table.refresh()

    @invariant()
    def plain_lance_sees_what_was_there_once(self):
        """Each leaf is empty on main, or holds what it held in some version of the table."""
        for uri in phalanx.open(self.uri).partitions()["uri"].to_pylist() if self.tables else ():
            found = rows_of(lance.dataset(uri).to_table())
            if found:
                place = self.place(found[0])
                known = (order(r for r in at if self.place(r) == place) for at in self.at.values())
                assert found in known

    @rule()
    def check(self):
        report = phalanx.open(self.uri).check()
        assert report.ok, str(report)


def found_in(table, where=None):
    return rows_of(table.scan(where=where).to_arrow())


def rows_of(found):
    return order(zip(*(found[name].to_pylist() for name in NAMES), strict=True))


#: How many tables, and how many changes to each.
SMALL = settings(max_examples=12, stateful_step_count=12, derandomize=True, phases=[Phase.generate])
LARGE = settings(max_examples=150, stateful_step_count=40)


@pytest.mark.parametrize("size", [SMALL, pytest.param(LARGE, marks=pytest.mark.soak)])
@pytest.mark.parametrize("machine", [StrongMachine, WeakMachine])
def test_a_table_holds_what_a_plain_list_would(machine, size):
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    options = settings(
        size,
        deadline=None,
        suppress_health_check=slow,
        print_blob=True,
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(machine, settings=options)
