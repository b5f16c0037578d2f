"""Filters as pyarrow expressions, such as `pc.field("k") == "a"`, as terms of the model.

pyarrow shows no tree of an expression, only its pickled form: a record batch that holds the
constants, with the tree in the metadata of its schema, one entry for each node. The entries have
the same few keys, so they are read in the form of Arrow's C data interface, which keeps repeated
keys and their order.

A term means exactly what the expression means in pyarrow: NaN is greater than nothing, and `isin`
is never NULL. What has no term that does so is refused.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from phalanx.errors import InvalidInput
from phalanx.model.literals import FALSE, TRUE, Literal, literal_of
from phalanx.model.predicates import Call, Name, Term

#: The type of the column with a name; None if there is no such column.
TypeOf = Callable[[tuple[str, ...]], pa.DataType | None]

_COMPARISONS = {
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INFINITY = Literal("string", "inf")
#: The largest whole number up to which a double is exact.
_EXACT = 2**53


def term_of(expression: pc.Expression, type_of: TypeOf) -> Term:
    """The term that means what a pyarrow expression means.

    Raises InvalidInput if there is none.
    """
    return _TermBuilder(expression, type_of).term(_tree(expression))


def sql_term_of(expression: pc.Expression, type_of: TypeOf) -> Term:
    """The term that means what somebody meant in SQL who had it translated to pyarrow.

    DataFusion writes `x IN (…)` as `isin` and `f > 1` as a comparison, and means SQL: IN is NULL
    for NULL, and NaN is greater than every number. Raises InvalidInput if there is no such term.
    """
    return _TermBuilder(expression, type_of, is_sql=True).term(_tree(expression))


def weaker_term_of(expression: pc.Expression, type_of: TypeOf) -> Term:
    """A term that holds wherever a pyarrow expression does, and perhaps elsewhere.

    Parts of a conjunction that no term can express are left out.
    """
    return _TermBuilder(expression, type_of).weaker_term(_tree(expression))


def names_in(expression: pc.Expression) -> list[tuple[str, ...]]:
    """The columns that an expression reads, each once."""
    return list(dict.fromkeys(_names(_tree(expression))))


@dataclass(frozen=True)
class _Node:
    """A constant, a column or a call in an expression."""

    content: pa.Scalar | tuple[str, ...] | str
    args: tuple[_Node, ...] = ()
    options: Mapping[str, pa.Scalar] = field(default_factory=dict)


def _names(node: _Node) -> Iterator[tuple[str, ...]]:
    if isinstance(node.content, tuple):
        yield node.content
    for arg in node.args:
        yield from _names(arg)


def _tree(expression: pc.Expression) -> _Node:
    """The nodes of an expression. Raises InvalidInput if they cannot be read."""
    try:
        _, (buffer,) = expression.__reduce__()
        batch = pa.ipc.open_file(buffer).get_batch(0)
        entries = _entries(batch.schema)
        return _node(next(entries), entries, batch)
    except (pa.ArrowException, ValueError, TypeError, StopIteration) as error:
        raise InvalidInput(f"the filter {expression} cannot be read: {error}") from None


def _node(
    entry: tuple[str, str], entries: Iterator[tuple[str, str]], batch: pa.RecordBatch
) -> _Node:
    """The node that starts with an entry; those inside it follow."""
    key, value = entry
    match key:
        case "literal":
            return _Node(batch.column(int(value))[0])
        case "field_ref":
            return _Node((value,))
        case "nested_field_ref":
            return _Node(tuple(next(entries)[1] for _ in range(int(value))))
        case "call":
            args: list[_Node] = []
            options: dict[str, pa.Scalar] = {}
            for inner in entries:
                if inner[0] == "end":
                    return _Node(value, tuple(args), options)
                if inner[0] == "options":
                    scalar = batch.column(int(inner[1]))[0]
                    options = {name: scalar[name] for name in scalar.type.names}
                else:
                    args.append(_node(inner, entries, batch))
    raise ValueError(f"it has an unknown part, {key}")


class _Schema(ctypes.Structure):
    """The start of an ArrowSchema, in Arrow's C data interface."""

    _fields_ = [
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.POINTER(ctypes.c_char)),
    ]


def _entries(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """The metadata of a schema, in order, with repeated keys."""
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = ctypes.cast(pointer(capsule, b"arrow_schema"), ctypes.POINTER(_Schema))
    start = ctypes.cast(address.contents.metadata, ctypes.c_void_p).value
    if start is None:
        return
    offset = 0

    def number() -> int:
        nonlocal offset
        value = ctypes.c_int32.from_address(start + offset).value
        offset += 4
        return value

    def text() -> str:
        nonlocal offset
        size = number()
        value = ctypes.string_at(start + offset, size)
        offset += size
        return value.decode()

    for _ in range(number()):
        key = text()
        yield key, text()


class _TermBuilder:
    """Turns the nodes of an expression into terms."""

    def __init__(self, expression: pc.Expression, type_of: TypeOf, is_sql: bool = False) -> None:
        """With `is_sql`, the expression means the SQL that it was made of."""
        self._expression, self._type_of, self._is_sql = expression, type_of, is_sql

    def _refused(self, what: str) -> InvalidInput:
        return InvalidInput(
            f"the filter {self._expression} uses {what}, which cannot be used here: write it in SQL"
        )

    def weaker_term(self, node: _Node) -> Term:
        """A term that holds wherever a node does."""
        if node.content in ("and_kleene", "or_kleene") and len(node.args) == 2:
            args = tuple(self.weaker_term(arg) for arg in node.args)
            return Call(str(node.content).removesuffix("_kleene"), args)
        try:
            return self.term(node)
        except InvalidInput:
            return TRUE

    def term(self, node: _Node) -> Term:
        if isinstance(node.content, tuple):
            return Name(node.content)
        if not isinstance(node.content, str):
            return _exactly(node.content)
        if node.content == "if_else":
            return self._membership_or_null(node)
        return self._call(node.content, [self.term(arg) for arg in node.args], node.options)

    def _call(self, function: str, args: list[Term], options: Mapping[str, pa.Scalar]) -> Term:
        if function in _COMPARISONS and len(args) == 2:
            return self._comparison(_COMPARISONS[function], *args)
        match function, args:
            case "and_kleene" | "or_kleene", [_, _]:
                return Call(function.removesuffix("_kleene"), tuple(args))
            case "invert", [inner]:
                return Call("not", (inner,))
            case "is_valid", [inner]:
                return Call("not", (Call("is_null", (inner,)),))
            case "is_null", [inner]:
                absent = Call("is_null", (inner,))
                if not options["nan_is_null"].as_py() or not self._is_float(inner):
                    return absent
                return Call("or", (absent, Call(">", (inner, _INFINITY))))
            case "is_nan", [inner] if self._is_float(inner):
                return Call(">", (inner, _INFINITY))
            case "is_in", [inner]:
                return self._membership(inner, options)
            case "starts_with" | "ends_with" | "match_substring", [inner]:
                return self._like(function, inner, options)
        raise self._refused(f"{function}()")

    def _comparison(self, op: str, left: Term, right: Term) -> Term:
        if isinstance(left, Literal):
            left, right, op = right, left, _FLIPPED[op]
        if isinstance(left, Literal):
            raise self._refused("a comparison of constants")
        if not isinstance(right, Literal):
            if not self._is_sql and (self._is_float(left) or self._is_float(right)):
                raise self._refused("a comparison of floating-point columns")
            return Call(op, (left, right))
        if _is_nan(right) and not self._is_sql:
            raise self._refused("NaN as a constant")
        if self._is_float(left):
            if not self._holds(left, right):
                raise self._refused(f"the constant {right.value}, which the column cannot hold")
            return Call(op, (left, right)) if self._is_sql else _float_comparison(op, left, right)
        if isinstance(right.value, Decimal) and abs(right.value) > _EXACT:
            raise self._refused(f"the constant {right.value}, which is not exact")
        return Call(op, (left, right))

    def _membership(self, inner: Term, options: Mapping[str, pa.Scalar]) -> Term:
        """`isin`, which finds NULL like any other value, and is never NULL itself."""
        if options["null_matching_behavior"].as_py() != 0:
            raise self._refused("isin() with NULL that does not match")
        wanted = options["value_set"].type.value_type
        if not _is_same_kind(wanted, self._type(inner)):
            raise self._refused(f"isin() with values of type {wanted}")
        values = [_exactly(value) for value in options["value_set"].values]
        if self._is_sql:
            return Call("in", (inner, *values)) if values else FALSE
        known = tuple(value for value in values if value.kind != "null")
        tests: list[Term] = []
        if self._is_float(inner):
            # There -0.0 is not 0.0, unlike in comparisons, and NaN is NaN.
            if any(_is_nan(value) or value.value == 0 for value in known):
                raise self._refused("isin() with NaN or zero")
            tests = [self._comparison("=", inner, value) for value in known]
        elif known:
            tests = [Call("in", (inner, *known))]
        if len(known) < len(values):
            tests.append(Call("is_null", (inner,)))
        if not tests:
            return FALSE
        term = tests[0] if len(tests) == 1 else Call("or", tuple(tests))
        return Call("is_true", (term,))

    def _membership_or_null(self, node: _Node) -> Term:
        """`if_else(is_valid(x), is_in(x, …), NULL)`: what IN means in SQL, as DuckDB writes it."""
        match node.args:
            case (
                _Node("is_valid", (_Node(tuple() as name),)),
                _Node("is_in", (_Node(tuple() as same),), options),
                _Node(pa.Scalar() as otherwise),
            ) if name == same and not otherwise.is_valid:
                test = self._membership(Name(name), options)
                if isinstance(test, Call) and test.function == "is_true":
                    (inner,) = test.args
                    if isinstance(inner, Call) and inner.function in ("in", "="):
                        return inner
        raise self._refused("if_else()")

    def _like(self, function: str, inner: Term, options: Mapping[str, pa.Scalar]) -> Term:
        if options["ignore_case"].as_py():
            raise self._refused(f"{function}() that ignores case")
        pattern = options["pattern"].as_py()
        pattern = pattern.decode() if isinstance(pattern, bytes) else pattern
        for special in ("\\", "%", "_"):
            pattern = pattern.replace(special, "\\" + special)
        pattern = pattern if function == "starts_with" else "%" + pattern
        pattern = pattern if function == "ends_with" else pattern + "%"
        return Call("like", (inner, Literal("string", pattern)))

    def _type(self, term: Term) -> pa.DataType | None:
        return self._type_of(term.path) if isinstance(term, Name) else None

    def _is_float(self, term: Term) -> bool:
        type = self._type(term)
        return type is not None and pa.types.is_floating(type)

    def _holds(self, column: Term, constant: Literal) -> bool:
        """Whether a floating-point column can hold a constant: if not, SQL rounds it."""
        if constant.kind != "number":
            return True
        stored = pa.scalar(float(constant.value), pa.float64()).cast(self._type(column))
        return bool(Decimal(stored.cast(pa.float64()).as_py()) == constant.value)


def _float_comparison(op: str, left: Term, right: Literal) -> Term:
    """A comparison with a constant in which NaN is neither equal nor in any order.

    For the model NaN is equal to itself and greater than everything else.
    """
    if op in (">", ">="):
        return Call("and", (Call(op, (left, right)), Call("<=", (left, _INFINITY))))
    return Call(op, (left, right))


def _is_same_kind(one: pa.DataType, other: pa.DataType | None) -> bool:
    """Whether pyarrow compares values of two types without changing any."""
    t = pa.types
    kinds = (
        t.is_integer,
        t.is_floating,
        t.is_decimal,
        lambda type: t.is_string(type) or t.is_large_string(type),
        lambda type: t.is_binary(type) or t.is_large_binary(type),
    )
    if other is None or t.is_null(one) or one == other:
        return True
    return any(kind(one) and kind(other) for kind in kinds)


def _exactly(scalar: pa.Scalar) -> Literal:
    """A constant; that of a float is its exact value, which its shortest spelling only rounds."""
    literal = literal_of(scalar)
    if isinstance(literal.value, float):
        return Literal("number", Decimal(literal.value))
    return literal


def _is_nan(literal: Literal) -> bool:
    return literal == Literal("string", "nan")
