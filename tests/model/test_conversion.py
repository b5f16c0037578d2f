"""Values of a type as those of another, fields matched by id."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.model import evolution
from phalanx.model.conversion import Unfit, conversion
from phalanx.model.schema import TableSchema
from tests.model.nested import KINDS, expected, random_change, random_type, random_value

POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])


def schema_of(type):
    return TableSchema.assign(pa.schema([("c", type)]))


def converted(array, have, want):
    """An array of one schema's column as the other's."""
    have, want = have.tagged.field("c").type, want.tagged.field("c").type
    convert = conversion(have, want)
    return array if convert is None else convert(array)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_values_are_those_that_python_finds(random):
    kinds = (*KINDS, "fixed_size_list")
    have = schema_of(random_type(random, 4, kinds))
    want, next_id = have, max(have.field_ids) + 1
    for _ in range(random.randint(1, 5)):
        changed, next_id = random_change(random, want, next_id, kinds)
        if changed.tagged.names == ["c"] and changed.id_set & {0}:
            want = changed
    types = [schema.arrow.field("c").type for schema in (have, want)]
    values = [random_value(random, types[0]) for _ in range(random.randint(0, 6))]
    array = pa.array(values, types[0])
    start = random.randint(0, len(values))
    for part in (array, array.slice(start), pa.concat_arrays([array, array]).slice(start)):
        after = converted(part, have, want)
        after.validate(full=True)
        assert after.type.equals(types[1])
        own, wanted = (schema.tagged.field("c").type for schema in (have, want))
        assert after.to_pylist() == [expected(value, own, wanted) for value in part.to_pylist()]


@pytest.mark.parametrize(
    ("type", "path"),
    [
        (pa.list_(POINT), "c.element"),
        (pa.large_list(POINT), "c.element"),
        (pa.list_(POINT, 1), "c.element"),
        (pa.map_(pa.string(), POINT), "c.value"),
        (pa.list_(pa.list_(POINT)), "c.element.element"),
    ],
)
class TestInside:
    @staticmethod
    def around(type, value):
        """A value of a type that holds one struct."""
        if pa.types.is_struct(type):
            return value
        if pa.types.is_map(type):
            return [("k", value)]
        return [TestInside.around(type.value_type, value)]

    def seen(self, type, value, want):
        have = schema_of(type)
        array = pa.array([self.around(type, value), None, self.around(type, None)], type)
        after = converted(array, have, want)
        after.validate(full=True)
        assert after[1:].to_pylist() == [None, self.around(type, None)]
        return after[0].as_py()

    def test_a_field_that_is_dropped_and_added_again_is_new(self, type, path):
        want = evolution.drop_column(schema_of(type), f"{path}.x")
        want = evolution.add_column(want, f"{path}.x", pa.int32(), 99)
        value = self.seen(type, {"x": 1, "y": "a"}, want)
        assert value == self.around(type, {"y": "a", "x": None})

    def test_nothing_is_left_of_a_struct(self, type, path):
        want = evolution.add_column(schema_of(type), f"{path}.z", pa.int32(), 99)
        for name in ("x", "y"):
            want = evolution.drop_column(want, f"{path}.{name}")
        assert self.seen(type, {"x": 1, "y": "a"}, want) == self.around(type, {"z": None})

    def test_a_comment_converts_nothing(self, type, path):
        have = schema_of(type)
        want = evolution.describe_column(have, f"{path}.x", {"comment": "a number"})
        assert have != want
        assert conversion(*(s.tagged.field("c").type for s in (have, want))) is None

    def test_a_type_that_does_not_fit(self, type, path):
        have = evolution.change_type(schema_of(type), f"{path}.x", pa.int64())
        with pytest.raises(Unfit) as unfit:
            conversion(*(s.tagged.field("c").type for s in (have, schema_of(type))))
        assert ["c", *unfit.value.path] == [*path.split("."), "x"]


def test_a_list_with_ids_of_its_own_is_matched_by_type():
    have = TableSchema.numbered(pa.schema([("c", pa.list_(POINT))]), [0, 7, 8, 9])
    want = TableSchema.numbered(pa.schema([("c", pa.list_(POINT))]), [0, 1, 2, 3])
    array = pa.array([[{"x": 1, "y": "a"}]], pa.list_(POINT))
    assert converted(array, have, want).equals(array)
    with pytest.raises(Unfit):
        converted(array, have, evolution.drop_column(want, "c.element.x"))


def test_null_lists_that_have_values():
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 3], pa.int32()),
        pa.array([{"x": n, "y": None} for n in range(3)], POINT),
        mask=pa.array([True, False]),
    )
    have = schema_of(pa.list_(POINT))
    want = evolution.drop_column(have, "c.element.y")
    for part in (lists, lists[1:]):
        after = converted(part, have, want)
        after.validate(full=True)
        assert after[-1].as_py() == [{"x": 1}, {"x": 2}]
    assert converted(lists, have, want)[0].as_py() is None
