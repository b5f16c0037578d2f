"""Terms and predicates as SQL text."""

from typing import Any

import pyarrow as pa
import pytest

from phalanx.model.dialect import Dialect, to_sql
from phalanx.model.filters import bind
from phalanx.model.parser import parse
from phalanx.model.predicates import Column, restrict
from phalanx.model.schema import TableSchema
from phalanx.model.sets import ValueSet
from tests.model.conditions import bound


class Shouting(Dialect):
    """A dialect with its own names and constants."""

    def name(self, column: Column) -> str:
        return "!".join(part.upper() for part in column.path)

    def constant(self, key: Any, type: pa.DataType) -> str:
        return f"<{key} {type}>"


def test_dialects_spell_names_and_constants():
    predicate = bound("st.x IN (1, 3) AND s > 'a' AND i + 1 = 2")
    assert Shouting().predicate(predicate) == (
        "ST!X IN (<1 int32>, <3 int32>) AND S > <a string> AND (I + 1) = <2 int64>"
    )


@pytest.mark.parametrize("name", ["plain", "with space", 'quo"te', "null", "Case", "ünï", "1st"])
def test_names_read_back(name):
    schema = TableSchema.assign(pa.schema([(name, pa.int32())]))
    predicate = restrict(schema.column((name,)), pa.int32(), ValueSet(((1, 2),)))
    assert bind(parse(to_sql(predicate)), schema.column) == predicate
