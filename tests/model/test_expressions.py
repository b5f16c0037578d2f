"""Custom expressions against the six requirements of the specification."""

import pyarrow as pa
import pytest

from phalanx.errors import InvalidInput
from phalanx.model.expressions import check, evaluate, evaluate_custom, fold, type_of
from phalanx.model.literals import NULL, Literal
from phalanx.model.parser import parse
from phalanx.model.predicates import Column, resolve_names

INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()
TS = pa.timestamp("us")
DECIMAL = pa.decimal128(5, 2)
NEW_YORK = pa.timestamp("us", "America/New_York")


@pytest.mark.parametrize(
    ("sql", "types", "result"),
    [
        ("upper(col0)", [TEXT], TEXT),
        ("date_trunc('week', col0)", [TS], TS),
        ("date_trunc('week', col0)", [NEW_YORK], NEW_YORK),
        ("date_trunc('month', col0)", [pa.date32()], pa.timestamp("ns")),
        ("date_part('year', col0)", [TS], INT),
        ("cast(col0 as date)", [TS], pa.date32()),
        ("col0 % 7", [INT], LONG),
        ("abs(col0) % 10", [LONG], LONG),
        ("col0 > 5", [INT], pa.bool_()),
        ("concat(col0, col1)", [TEXT, LONG], TEXT),
        ("coalesce(col0, 'none')", [TEXT], TEXT),
        ("CASE WHEN col0 < 10 THEN 'few' ELSE 'many' END", [LONG], TEXT),
        ("floor(col0)", [pa.float64()], pa.float64()),
        ("floor(col0)", [pa.float32()], pa.float32()),
        # A double stays a double.
        ("cast(col0 as varchar)", [pa.float64()], TEXT),
        ("cast(col0 as varchar)", [DECIMAL], TEXT),
        ("cast(col0 as int)", [TEXT], INT),
        ("col0 / 4", [pa.uint64()], pa.decimal128(24, 4)),
        ("substr(col0, 1, 2)", [pa.large_string()], TEXT),
        ("col0['x']", [pa.struct([("x", INT)])], INT),
        ("cardinality(col0)", [pa.list_(INT)], pa.uint64()),
        ("col0 + INTERVAL '1 day'", [pa.date32()], pa.date32()),
        ("upper(col0)", [pa.dictionary(INT, TEXT)], TEXT),
    ],
    ids=str,
)
def test_accepted(sql, types, result):
    checked = check(sql, tuple(types))
    assert checked in (result, pa.large_string() if result == TEXT else result)
    values = evaluate_custom(sql, [pa.nulls(2, type) for type in types])
    assert values.type == checked


VOLATILE = "is volatile, and a row must always come to the same partition"
ONE_ROW = "a partition expression looks at one row, so it has no aggregate, window or subquery"
PROMOTED = "it gives another value when col0 is promoted from"


@pytest.mark.parametrize(
    ("sql", "type", "reason"),
    [
        # 1 and 2: deterministic and stateless.
        ("now()", TS, f"now() {VOLATILE}"),
        ("current_timestamp", TS, f"now() {VOLATILE}"),
        ("current_date", TS, f"current_date() {VOLATILE}"),
        ("current_time()", TS, f"current_time() {VOLATILE}"),
        ("random()", INT, f"random() {VOLATILE}"),
        ("uuid()", INT, f"uuid() {VOLATILE}"),
        ("version()", INT, f"version() {VOLATILE}"),
        ("col0 + cast(random() * 5 as int)", INT, f"random() {VOLATILE}"),
        ("CASE WHEN random() > 0.5 THEN col0 ELSE 0 END", INT, f"random() {VOLATILE}"),
        ("col0 BETWEEN 1 AND random()", INT, f"random() {VOLATILE}"),
        ("col0 IN (1, cast(random() as int))", INT, f"random() {VOLATILE}"),
        ("upper(concat(col0, cast(now() as varchar)))", TEXT, f"now() {VOLATILE}"),
        ("sum(col0)", INT, ONE_ROW),
        ("count(*)", INT, ONE_ROW),
        ("max(col0) OVER ()", INT, ONE_ROW),
        ("row_number() OVER ()", INT, ONE_ROW),
        ("(SELECT 1)", INT, ONE_ROW),
        ("col0 IN (SELECT 1)", INT, ONE_ROW),
        ("EXISTS (SELECT 1)", INT, ONE_ROW),
        ("coalesce(col0, (SELECT 1))", INT, ONE_ROW),
        ("unnest(col0)", pa.list_(INT), ONE_ROW),
        # 3: resistant to promotion.
        ("arrow_typeof(col0)", INT, f"{PROMOTED} int32 to int64"),
        ("col0 + col0", INT, f"{PROMOTED} int32 to int64"),
        ("col0 + col0", LONG, f"{PROMOTED} int32 to int64"),
        ("col0 * col0", pa.int8(), f"{PROMOTED} int8 to int16"),
        ("arrow_typeof(col0)", pa.uint32(), f"{PROMOTED} uint32 to int64"),
        ("sqrt(abs(col0))", pa.float32(), f"{PROMOTED} float to double"),
        ("CAST(col0 * 10 AS BIGINT)", pa.float32(), f"{PROMOTED} float to double"),
        ("CAST(col0 AS VARCHAR)", pa.float32(), f"{PROMOTED} float to double"),
        ("arrow_typeof(col0)", DECIMAL, f"{PROMOTED} decimal128(5, 2) to decimal128(6, 2)"),
        # 4: only the source columns.
        ("col1", INT, "No field named col1."),
        ("price * 2", INT, "No field named price."),
        # Not an expression at all.
        ("col0 +", INT, "Expected: an expression, found: EOF"),
        ("", INT, "Expected: an expression, found: EOF"),
        ("nope(col0)", INT, "Invalid function 'nope'."),
        ("upper(col0, 1, 2)", TEXT, "'upper' expects 1 arguments but received 3"),
    ],
)
def test_refused(sql, type, reason):
    with pytest.raises(InvalidInput) as error:
        check(sql, (type,))
    message = str(error.value)
    assert message.startswith(f"the expression {sql!r} cannot be used: ")
    assert reason in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("sql", "given"),
    [
        ("make_array(col0)", "list<item: int32>"),
        ("struct(col0)", "struct<c0: int32>"),
        ("NULL", "null"),
    ],
)
def test_wrong_result_types(sql, given):
    with pytest.raises(InvalidInput) as error:
        check(sql, (INT,))
    assert (
        str(error.value)
        == f"the expression {sql!r} gives {given}, which cannot be the type of a partition value"
    )


@pytest.mark.parametrize(
    ("sql", "value"),
    [("upper(col0)", None), ("coalesce(col0, 'none')", "none"), ("col0 IS NULL", True)],
)
def test_null_is_what_the_expression_says(sql, value):
    assert evaluate_custom(sql, [pa.nulls(1, TEXT)]).to_pylist() == [value]


def test_rows_keep_their_order():
    numbers = pa.array(range(50_000))
    assert evaluate_custom("col0 + 1", [numbers]).to_pylist() == list(range(1, 50_001))


def test_a_value_that_fails():
    with pytest.raises(InvalidInput) as error:
        evaluate_custom("10 / col0", [pa.array([1, 0])])
    assert str(error.value) == (
        "cannot evaluate the expression '10 / col0': Arrow error: Divide by zero error"
    )


# Terms ------------------------------------------------------------------------------------------

COLUMNS = {
    ("a",): Column(("a",), 3, INT),
    ("s",): Column(("s",), 4, TEXT),
    ("st", "x"): Column(("st", "x"), 5, pa.float64()),
    ("ts",): Column(("ts",), 6, TS),
}


def term(text: str):
    return resolve_names(parse(text), COLUMNS.__getitem__)


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("a", INT),
        ("a + 1", LONG),
        ("a / 2", LONG),
        ("a / 2.0", pa.float64()),
        ("a / 2.", pa.float64()),
        ("a / 1e2", pa.float64()),
        ("upper(s)", TEXT),
        ("st.x * 2", pa.float64()),
        ("date_part('year', ts)", INT),
        ("a > 5 AND s LIKE 'x%' OR NOT (a IN (1, 2)) OR s IS NULL", pa.bool_()),
        ("ts > TIMESTAMP '9999-01-01'", pa.bool_()),
        ("-a", INT),
        ("s || 'x'", TEXT),
        ("CAST(a AS DECIMAL(10, 2))", pa.decimal128(10, 2)),
    ],
)
def test_type_of(text, type):
    assert type_of(term(text)) == type


def test_evaluate():
    columns = {3: pa.array([1, None, 3], INT), 4: pa.array(["x", "y", None])}
    assert evaluate(term("a * 2"), columns, 3).to_pylist() == [2, None, 6]
    assert evaluate(term("concat(s, 'z')"), columns, 3).to_pylist() == ["xz", "yz", "z"]
    with pytest.raises(InvalidInput) as error:
        evaluate(term("nope(a)"), columns, 3)
    assert str(error.value) == "cannot evaluate nope(a): Invalid function 'nope'."


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("1 + 1", Literal("number", 2)),
        ("1 / 2.0", Literal("number", 0.5)),
        ("upper('x')", Literal("string", "X")),
        ("NULL", NULL),
        ("1 > NULL", NULL),
        ("DATE '1970-01-01' + INTERVAL '1 day'", Literal("date", 1)),
        ("TIMESTAMP '1970-01-01' + INTERVAL '1 hour'", Literal("timestamp", 3_600 * 10**9)),
        ("CAST('1970-01-01T00:00:01Z' AS TIMESTAMP)", Literal("timestamp", 10**9)),
        ("arrow_cast('NaN', 'Float64')", Literal("string", "nan")),
        ("X'00'", Literal("binary", b"\0")),
        ("1 = 1", Literal("boolean", True)),
    ],
)
def test_fold(text, literal):
    assert fold(term(text)) == literal


class TestChecked:
    """What an update stores is what was meant, or it is refused."""

    @staticmethod
    def _both(sql, type, values):
        term = resolve_names(parse(sql), lambda path: Column(path, 1, type))
        array = pa.array(values, type)
        loose = evaluate(term, {1: array}, len(values))
        strict = evaluate(term, {1: array}, len(values), checked=True)
        assert strict.type == loose.type
        return strict.to_pylist(), loose.to_pylist()

    @pytest.mark.parametrize(
        "sql",
        ["a + 1", "1 - a", "a * 3", "-a", "-(-a)", "a * a - 2 * (a + 1)", "a + NULL", "a / 2 * 2"],
    )
    @pytest.mark.parametrize("type", [LONG, INT, pa.int8()], ids=str)
    def test_numbers_that_fit_are_the_same(self, sql, type):
        checked, loose = self._both(sql, type, [0, 1, -9, None])
        assert checked == loose

    @pytest.mark.parametrize("type", [pa.uint64(), pa.dictionary(INT, LONG)], ids=str)
    def test_also_those_without_a_sign(self, type):
        checked, loose = self._both("a * a + a - 1", type, [0, 1, 9, None])
        assert checked == loose

    @pytest.mark.parametrize("sql", ["a + 0.5", "a * 1e300", "a || 'x'", "coalesce(a, 1)", "a / 3"])
    def test_other_calculations_are_as_before(self, sql):
        checked, loose = self._both(sql, LONG, [2**63 - 1, None, -(2**63)])
        assert checked == loose

    def test_up_to_the_last_number(self):
        top = 2**63 - 1
        assert self._both("a + 1", LONG, [top - 1, None])[0] == [top, None]
        assert self._both("a - 1", LONG, [1 - top])[0] == [-top]
        assert self._both("-a", LONG, [top])[0] == [-top]
        assert self._both("a * 2", LONG, [-(2**62)])[0] == [-(2**63)]

    @pytest.mark.parametrize(
        ("sql", "type", "value"),
        [
            ("a + 1", LONG, 2**63 - 1),
            ("a - 1", LONG, -(2**63)),
            ("0 - a", LONG, -(2**63)),
            ("-a", LONG, -(2**63)),
            ("a * 2", LONG, 2**62),
            ("a * a", LONG, -(2**63)),
            ("a + 1 - 1", LONG, 2**63 - 1),
            ("a + a", INT, 2**31 - 1),
            ("a * a", pa.int8(), 100),
            ("-a", pa.int8(), -128),
            ("a + a", pa.uint64(), 2**64 - 1),
            ("a * a", pa.uint64(), 2**64 - 1),
        ],
    )
    def test_what_does_not_fit_is_refused(self, sql, type, value):
        term = resolve_names(parse(sql), lambda path: Column(path, 1, type))
        with pytest.raises(InvalidInput, match=r"cannot evaluate .*(?i:out of range|overflow)"):
            evaluate(term, {1: pa.array([value, None], type)}, 2, checked=True)

    def test_dates_are_no_numbers(self):
        checked, loose = self._both("a - a", pa.date32(), [20_000, None])
        assert checked == loose == [0, None]
