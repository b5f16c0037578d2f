"""Random nested types, random changes of them, and what values are after the changes."""

from decimal import Decimal

import pyarrow as pa

from phalanx.errors import InvalidInput
from phalanx.model import evolution
from phalanx.model.schema import field_id

LEAVES = (pa.int32(), pa.string(), pa.float32(), pa.decimal128(5, 2))
WIDER = {
    pa.int32(): pa.int64(),
    pa.float32(): pa.float64(),
    pa.decimal128(5, 2): pa.decimal128(9, 2),
}
KINDS = ("struct", "list", "large_list", "map")


def random_type(random, depth, kinds=KINDS):
    """A type, of at most that depth."""
    if depth == 0 or random.random() < 0.15:
        return random.choice(LEAVES)
    kind = random.choice(kinds)
    if kind == "struct":
        return _struct(random, depth, kinds)
    inner = _struct(random, depth - 1, kinds) if random.random() < 0.7 else None
    item = inner or random_type(random, depth - 1, kinds)
    if kind == "list":
        return pa.list_(item)
    if kind == "large_list":
        return pa.large_list(item)
    if kind == "fixed_size_list":
        # What is inside one has ids only if its elements are structs.
        return pa.list_(inner or random.choice(LEAVES), random.randint(1, 3))
    key = random.choice([pa.string(), pa.struct([("k", pa.int32()), ("j", pa.string())])])
    return pa.map_(key, item)


def _struct(random, depth, kinds):
    names = random.sample("abcdef", random.randint(1, 3))
    return pa.struct([(name, random_type(random, max(0, depth - 1), kinds)) for name in names])


def random_value(random, type, can_be_null=True):
    """A value of a type as Python has it."""
    t = pa.types
    if can_be_null and random.random() < 0.2:
        return None
    if t.is_struct(type):
        return {field.name: random_value(random, field.type) for field in type}
    if t.is_map(type):
        size = random.choice([0, 1, 1, 3])
        keys = [random_value(random, type.key_type, False) for _ in range(size)]
        return [(key, random_value(random, type.item_type)) for key in keys]
    if t.is_fixed_size_list(type):
        return [random_value(random, type.value_type) for _ in range(type.list_size)]
    if t.is_list(type) or t.is_large_list(type):
        size = random.choice([0, 1, 1, 3])
        return [random_value(random, type.value_type) for _ in range(size)]
    number = random.randint(-9, 9)
    if t.is_string(type):
        return f"t{number}"
    return number / 2 if t.is_floating(type) else Decimal(number) if t.is_decimal(type) else number


def random_change(random, schema, next_id, kinds=KINDS):
    """The schema after a change that it allows, and the next id; most of them inside of structs."""
    for _ in range(20):
        place = random.choice(list(schema.places))
        try:
            changed = _changed(random, schema, place, next_id, kinds)
        except InvalidInput:
            continue
        return changed, max(next_id, *changed.field_ids) + 1
    return schema, next_id


def _changed(random, schema, place, next_id, kinds):
    name = random.choice("abcdef")
    match random.choice(["add", "again", "drop", "rename", "move", "widen", "nullable"]):
        case "add":
            type = random_type(random, random.randint(0, 2), kinds)
            first = random.random() < 0.5
            return evolution.add_column(schema, (*place.path, name), type, next_id, first=first)
        case "again":
            dropped = evolution.drop_column(schema, place.path)
            return evolution.add_column(dropped, place.path, place.type, next_id)
        case "drop":
            return evolution.drop_column(schema, place.path)
        case "rename":
            return evolution.rename_column(schema, place.path, name)
        case "move":
            return evolution.move_column(schema, place.path, first=True)
        case "widen" if place.type in WIDER:
            return evolution.change_type(schema, place.path, WIDER[place.type])
        case _:
            return evolution.make_nullable(schema, place.path)


def expected(value, have, want):
    """A value of one type, with ids inside, as one of another: field by field, in Python."""
    t = pa.types
    if value is None:
        return None
    if t.is_struct(want):
        own = {field_id(field): field for field in have}
        return {
            field.name: expected(value[own[id].name], own[id].type, field.type)
            if id in own
            else None
            for field in want
            for id in [field_id(field)]
        }
    if t.is_map(want):
        return [
            (
                expected(key, have.key_type, want.key_type),
                expected(item, have.item_type, want.item_type),
            )
            for key, item in value
        ]
    if isinstance(value, list):
        return [expected(item, have.value_type, want.value_type) for item in value]
    return value
