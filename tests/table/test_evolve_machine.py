"""Random changes of shape and of rows, to a table and to plain rows keyed by field id."""

import copy
import shutil
import tempfile

import numpy as np
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
from phalanx import ConflictError

NAMES = "abcde"
TYPES = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "text": pa.string(),
}
WIDER = {"int": "long", "float": "double"}
VALUES = {
    "int": [None, 0, 1, 2, -3, 7],
    "long": [None, 0, 1, 2, -3, 7, 2**40],
    "float": [None, 0.5, -1.5, float(np.float32(0.1))],
    "double": [None, 0.5, -1.5, 0.1],
    "text": [None, "", "x", "y"],
}
FILTER_OPS = {"=": lambda a, b: a == b, ">": lambda a, b: a > b, "<>": lambda a, b: a != b}


class Field:
    """A column of the model: what it is called is one thing, its id another."""

    def __init__(self, id, name, kind, default=None, fields=()):
        self.id, self.name, self.kind, self.default = id, name, kind, default
        self.fields = list(fields)

    @property
    def type(self):
        if self.kind == "struct":
            return pa.struct([(field.name, field.type) for field in self.fields])
        return TYPES[self.kind]

    def value(self, held):
        """What a user sees of what a row holds."""
        if self.kind != "struct" or held is None:
            return held
        return {field.name: held.get(field.id) for field in self.fields}


class State:
    """All that a table holds at one version."""

    def __init__(self, fields, rows, spec):
        self.fields, self.rows, self.spec = fields, rows, spec

    def copy(self):
        return copy.deepcopy(self)

    def named(self, name):
        return next(field for field in self.fields if field.name == name)

    def seen(self, rows=None):
        return [
            {field.name: field.value(row.get(field.id)) for field in self.fields}
            for row in (self.rows if rows is None else rows)
        ]

    @property
    def plain(self):
        return [field for field in self.fields if field.kind != "struct"]

    @property
    def shape(self):
        return [
            (f.id, f.name, f.kind, f.default, [(g.id, g.name, g.kind) for g in f.fields])
            for f in self.fields
        ]


def order(rows):
    return sorted(map(repr, rows))


class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="phalanx-evolve-")
        self.uri = f"{self.folder}/table"
        self.at, self.highest = {}, 0
        self.tables = []

    @initialize(spec=st.sampled_from([["a"], ["truncate(2, a)", "b"], [], ["bucket(2, a)"]]))
    def create(self, spec):
        inner = [Field(3, "p", "int"), Field(4, "q", "text")]
        fields = [Field(0, "a", "int"), Field(1, "b", "text"), Field(2, "s", "struct", None, inner)]
        self.highest = 4
        schema = pa.schema([(field.name, field.type) for field in fields])
        phalanx.create(self.uri, schema, spec)
        self.at = {1: State(fields, [], spec)}
        self.tables = [phalanx.open(self.uri) for _ in range(2)]

    def teardown(self):
        try:
            if self.tables:
                report = phalanx.open(self.uri).check()
                assert report.ok, str(report)
        finally:
            shutil.rmtree(self.folder)

    @property
    def now(self):
        return self.at[max(self.at)]

    def landed(self, table, state):
        self.at[max(self.at) + 1] = state
        assert table.version == max(self.at)

    def newest(self):
        return self.tables[0].refresh()

    def free(self, data, fields):
        names = [name for name in NAMES if name not in {field.name for field in fields}]
        return data.draw(st.sampled_from(names)) if names else None

    def next_id(self):
        self.highest += 1
        return self.highest

    # Shape

    @rule(data=st.data(), kind=st.sampled_from(sorted(TYPES)))
    def add(self, data, kind):
        name = self.free(data, self.now.fields)
        if name is None:
            return
        default = data.draw(st.sampled_from([None, None, *VALUES[kind]]))
        place = data.draw(st.sampled_from([None, "first", *[f.name for f in self.now.fields]]))
        state = self.now.copy()
        field = Field(self.next_id(), name, kind, default)
        names = [f.name for f in state.fields]
        at = len(names) if place is None else 0 if place == "first" else names.index(place) + 1
        state.fields.insert(at, field)
        for row in state.rows:
            row[field.id] = default
        where = {} if place is None else {"first": True} if place == "first" else {"after": place}
        table = self.newest().add_column(name, TYPES[kind], default, **where)
        self.landed(table, state)

    @rule(data=st.data())
    def drop(self, data):
        if len(self.now.fields) < 2:
            return
        state = self.now.copy()
        field = data.draw(st.sampled_from(state.fields), label="dropped")
        state.fields.remove(field)
        self.landed(self.newest().drop_column(field.name), state)

    @rule(data=st.data())
    def rename(self, data):
        state = self.now.copy()
        field = data.draw(st.sampled_from(state.fields))
        name = self.free(data, state.fields)
        if name is None:
            return
        table = self.newest().rename_column(field.name, name)
        field.name = name
        self.landed(table, state)

    @rule(data=st.data())
    def widen(self, data):
        state = self.now.copy()
        fields = [field for field in state.fields if field.kind in WIDER]
        if not fields:
            return
        field = data.draw(st.sampled_from(fields))
        field.kind = WIDER[field.kind]
        self.landed(self.newest().change_type(field.name, field.type), state)

    @rule(data=st.data())
    def set_default(self, data):
        """It is for new rows: those that are there keep what they hold."""
        state = self.now.copy()
        field = data.draw(st.sampled_from(state.fields))
        field.default = self.drawn_value(data, field)
        table = self.newest().set_default(field.name, field.value(field.default))
        self.landed(table, state)

    @rule(data=st.data())
    def reorder(self, data):
        state = self.now.copy()
        state.fields = data.draw(st.permutations(state.fields))
        self.landed(self.newest().reorder_columns([f.name for f in state.fields]), state)

    @rule(data=st.data(), change=st.sampled_from(["add", "drop", "rename", "widen"]))
    def change_inside(self, data, change):
        state = self.now.copy()
        structs = [field for field in state.fields if field.kind == "struct"]
        if not structs:
            return
        (outer,) = structs
        inner = data.draw(st.sampled_from(outer.fields))
        path, table = f"{outer.name}.{inner.name}", self.newest()
        name = self.free(data, outer.fields)
        if change == "add" and name:
            kind = data.draw(st.sampled_from(sorted(TYPES)))
            outer.fields.append(Field(self.next_id(), name, kind))
            table.add_column(f"{outer.name}.{name}", TYPES[kind])
        elif change == "drop" and len(outer.fields) > 1:
            outer.fields.remove(inner)
            table.drop_column(path)
        elif change == "rename" and name:
            inner.name = name
            table.rename_column(path, name)
        elif change == "widen" and inner.kind in WIDER:
            inner.kind = WIDER[inner.kind]
            table.change_type(path, inner.type)
        else:
            return
        self.landed(table, state)

    @rule(data=st.data())
    def evolve(self, data):
        options = [[], *([f.name] for f in self.now.plain)]
        options += [[f"bucket(2, {f.name})"] for f in self.now.plain]
        options += [
            [f"truncate(2, {f.name})", self.now.plain[0].name]
            for f in self.now.plain
            if f.kind in ("int", "long", "text")
        ]
        table = self.newest()
        before = table.version
        table.evolve_partitioning(data.draw(st.sampled_from(options)))
        if table.version > before:
            self.landed(table, self.now.copy())

    # Rows

    def drawn(self, data, state, most=4):
        """Rows as a user gives them and as the model holds them."""
        chosen = [f for f in state.fields if data.draw(st.booleans(), label=f.name)]
        chosen = chosen or state.fields[:1]
        given, held = [], []
        for _ in range(data.draw(st.integers(1, most))):
            row = {field.id: field.default for field in state.fields}
            row |= {field.id: self.drawn_value(data, field) for field in chosen}
            held.append(row)
            given.append({field.name: field.value(row[field.id]) for field in chosen})
        schema = pa.schema([(field.name, field.type) for field in chosen])
        return pa.Table.from_pylist(given, schema), held

    def drawn_value(self, data, field):
        if field.kind != "struct":
            return data.draw(st.sampled_from(VALUES[field.kind]))
        if data.draw(st.booleans()):
            return None
        return {inner.id: self.drawn_value(data, inner) for inner in field.fields}

    def drawn_filter(self, data, state):
        fields = list(state.plain)
        paths = [((field.name,), field.id, None, field.kind) for field in fields]
        for field in state.fields:
            for inner in field.fields:
                paths.append(((field.name, inner.name), field.id, inner.id, inner.kind))
        if not paths:
            return "TRUE", lambda row: True
        path, id, inside, kind = data.draw(st.sampled_from(paths), label="filter")
        value = data.draw(st.sampled_from(VALUES[kind]))

        def held(row):
            found = row.get(id)
            return found if inside is None or found is None else found.get(inside)

        name = ".".join(path)
        if value is None:
            return f"{name} IS NULL", lambda row: held(row) is None
        text = f"'{value}'" if isinstance(value, str) else repr(value)
        op = data.draw(st.sampled_from(sorted(FILTER_OPS)))
        if kind == "float" and value not in (0.5, -1.5):
            text = f"CAST({text} AS FLOAT)"
        compare = FILTER_OPS[op]
        return (
            f"{name} {op} {text}",
            lambda row: held(row) is not None and compare(held(row), value),
        )

    @rule(data=st.data(), number=st.integers(0, 1))
    def append(self, data, number):
        """The handle may be behind: then the rows fit the newest schema, or are refused."""
        table = self.tables[number]
        then = self.at[table.version]
        given, held = self.drawn(data, then)
        try:
            table.append(given)
        except ConflictError:
            assert then.shape != self.now.shape
            return
        state = self.now.copy()
        state.rows += held
        self.landed(table, state)

    @rule(data=st.data(), kind=st.sampled_from(sorted(TYPES)))
    def append_with_a_new_column(self, data, kind):
        name = self.free(data, self.now.fields)
        if name is None:
            return
        state = self.now.copy()
        state.fields.append(Field(self.next_id(), name, kind))
        value = data.draw(st.sampled_from(VALUES[kind]))
        held = {field.id: field.default for field in state.fields} | {self.highest: value}
        state.rows.append(held)
        table = self.newest()
        table.append(pa.table({name: pa.array([value], TYPES[kind])}), merge_schema=True)
        self.landed(table, state)

    @rule(data=st.data())
    def delete(self, data):
        state = self.now.copy()
        where, matches = self.drawn_filter(data, state)
        left = [row for row in state.rows if not matches(row)]
        table = self.newest()
        assert table.delete(where) == len(state.rows) - len(left)
        state.rows = left
        self.landed(table, state)

    @rule(data=st.data())
    def update(self, data):
        state = self.now.copy()
        if not state.plain:
            return
        where, matches = self.drawn_filter(data, state)
        field = data.draw(st.sampled_from(state.plain))
        value = data.draw(st.sampled_from(VALUES[field.kind]))
        text = "NULL" if value is None else f"'{value}'" if field.kind == "text" else repr(value)
        text = f"arrow_cast({text}, 'Float32')" if field.kind == "float" and value else text
        count = 0
        for row in state.rows:
            if matches(row):
                row[field.id] = value
                count += 1
        table = self.newest()
        assert table.update({field.name: text}, where) == count
        self.landed(table, state)

    @rule(data=st.data())
    def merge(self, data):
        state = self.now.copy()
        keys = [field for field in state.plain if field.kind in ("int", "long", "text")]
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        values = [value for value in VALUES[key.kind] if value is not None]
        chosen = data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True))
        source = [
            {field.id: field.default for field in state.fields} | {key.id: value}
            for value in chosen
        ]
        hits = [row for row in state.rows if row.get(key.id) in chosen]
        there = {row[key.id] for row in hits}
        if len(state.fields) == 1:
            # The source has all columns: each of its rows replaces those with its key.
            state.rows = [row for row in state.rows if row.get(key.id) not in chosen] + source
        else:
            # Rows that match keep their values in the columns that the source lacks.
            state.rows += [row for row in source if row[key.id] not in there]
        table = self.newest()
        counts = table.merge(pa.table({key.name: pa.array(chosen, key.type)}), [key.name])
        assert (counts.inserted, counts.updated) == (len(set(chosen) - there), len(hits))
        self.landed(table, state)

    @rule(data=st.data(), count=st.integers(2, 4), beside=st.booleans())
    def several_in_one_transaction(self, data, count, beside):
        """Rows and shape together; somebody else may add rows meanwhile."""
        table, state, steps = self.newest(), self.now.copy(), []
        with table.transaction() as tx:
            for _ in range(count):
                do, expect = self.drawn_step(data, state)
                do(tx)
                expect(state)
                steps.append(expect)
                assert order(tx.scan().to_arrow().to_pylist()) == order(state.seen())
            if beside:
                tx._transaction.reads.clear()  # what was read here is for the test alone
                given, held = self.drawn(data, self.now)
                other, theirs = phalanx.open(self.uri).append(given), self.now.copy()
                theirs.rows += held
                self.landed(other, theirs)
        state = self.now.copy()
        for expect in steps:
            expect(state)
        self.landed(table, state)

    def drawn_step(self, data, state):
        """A change: what is done to the table, and what to the model."""
        kind = data.draw(st.sampled_from(["append", "append", "add", "drop", "rename", "widen"]))
        field = data.draw(st.sampled_from(state.fields))
        id, name = field.id, self.free(data, state.fields)

        def found(model):
            return next(f for f in model.fields if f.id == id)

        if kind == "add" and name:
            new = Field(self.next_id(), name, "int", data.draw(st.sampled_from(VALUES["int"])))

            def add(model):
                model.fields.append(copy.deepcopy(new))
                for row in model.rows:
                    row[new.id] = new.default

            return lambda tx: tx.add_column(new.name, TYPES["int"], new.default), add
        if kind == "drop" and len(state.fields) > 1:
            path = field.name
            return (
                lambda tx: tx.drop_column(path),
                lambda model: model.fields.remove(found(model)),
            )
        if kind == "rename" and name:
            path = field.name
            return (
                lambda tx: tx.rename_column(path, name),
                lambda model: setattr(found(model), "name", name),
            )
        if kind == "widen" and field.kind in WIDER:
            path, wider = field.name, WIDER[field.kind]
            return (
                lambda tx: tx.change_type(path, TYPES[wider]),
                lambda model: setattr(found(model), "kind", wider),
            )
        given, held = self.drawn(data, state, most=2)
        return lambda tx: tx.append(given), lambda model: model.rows.extend(copy.deepcopy(held))

    # Files: no row changes, and there may be several versions, or none

    @rule(number=st.integers(0, 1), rows=st.sampled_from([None, 2]))
    def optimize(self, number, rows):
        table, before = self.tables[number], max(self.at)
        table.optimize(target_rows=rows)
        self.unchanged(table, before)

    @rule(number=st.integers(0, 1), step=st.sampled_from([None, 1, 3]))
    def rewrite(self, number, step):
        table, before = self.tables[number], max(self.at)
        report = table.rewrite(step_rows=step)
        assert (report.left, report.notes) == (0, [])
        assert set(table.partitions()["spec"].to_pylist()) <= {table.spec.id}
        self.unchanged(table, before)

    def unchanged(self, table, before):
        for version in range(before + 1, table.version + 1):
            self.at[version] = self.at[before].copy()

    # History

    @rule(number=st.integers(0, 1))
    def refresh(self, number):
        self.tables[number].refresh()

    @rule(data=st.data())
    def rollback(self, data):
        version = data.draw(st.sampled_from(sorted(self.at)))
        self.landed(self.newest().rollback(version), self.at[version].copy())

    @rule(data=st.data())
    def travel(self, data):
        version = data.draw(st.sampled_from(sorted(self.at)))
        self.same(phalanx.open(self.uri, version=version), self.at[version])

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def read(self, data):
        where, matches = self.drawn_filter(data, self.now)
        expected = [row for row in self.now.rows if matches(row)]
        table = phalanx.open(self.uri)
        assert order(table.scan(where=where).to_arrow().to_pylist()) == order(
            self.now.seen(expected)
        )
        assert table.count(where) == len(expected)
        names = data.draw(st.permutations([f.name for f in self.now.fields]))[:2]
        found = table.scan(names, where).to_arrow()
        assert found.schema.names == names
        assert order(found.to_pylist()) == order(
            [{name: row[name] for name in names} for row in self.now.seen(expected)]
        )

    @invariant()
    def it_holds_what_it_should(self):
        if self.tables:
            self.same(phalanx.open(self.uri), self.now)

    def same(self, table, state):
        assert table.schema == pa.schema([(field.name, field.type) for field in state.fields])
        assert order(table.scan().to_arrow().to_pylist()) == order(state.seen())
        assert table.count() == len(state.rows)
        head = table._snapshot.head
        assert [head.schema.column((f.name,)).field_id for f in state.fields] == [
            field.id for field in state.fields
        ]


SMALL = settings(max_examples=10, stateful_step_count=20, derandomize=True, phases=[Phase.generate])
LARGE = settings(max_examples=200, stateful_step_count=40)


@pytest.mark.parametrize("size", [SMALL, pytest.param(LARGE, marks=pytest.mark.soak)])
def test_a_table_is_what_plain_rows_would_be(size):
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    options = settings(
        size,
        deadline=None,
        suppress_health_check=slow,
        print_blob=True,
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(Machine, settings=options)
