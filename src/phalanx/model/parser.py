"""SQL text to terms: the WHERE language of `scan`, `count`, `delete` and the rest.

It is the part of SQL that Lance can filter by: comparisons, `<=>`, BETWEEN, [NOT] IN,
IS [NOT] NULL / TRUE / FALSE / DISTINCT FROM, [NOT] LIKE, AND / OR / NOT, arithmetic, `||`, CAST,
EXTRACT and any DataFusion function. Names may be quoted with " or `.

The parser is ours, and not DataFusion's, for these reasons:

* Literals stay as they were written until a column's type says what they mean. DataFusion makes a
  long decimal a double, and forgets whether a timestamp had an offset.
* Names are looked up in the table's schema, in any case where that is unambiguous. DataFusion turns
  names without quotes into lower case.
* What needs more than one row, such as a subquery, is not in the grammar.
* An error says at which position of the text it is.
* A filter of operators and constants never loads DataFusion, which takes a fresh process 60 ms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from phalanx.errors import InvalidInput
from phalanx.model.calendar import UNITS
from phalanx.model.dialect import RESERVED
from phalanx.model.literals import (
    FALSE,
    NULL,
    TRUE,
    Literal,
    parse_date,
    parse_number,
    parse_time,
    parse_timestamp,
)
from phalanx.model.predicates import Call, Name, Term

_TOKEN = re.compile(
    r"""(?:
      (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z_]))
    | (?P<binary>[xX]'[^']*')
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+"|`(?:[^`]|``)+`)
    | (?P<word>[^\W\d]\w*)
    | (?P<parameter>\?|:[^\W\d]\w*)
    | (?P<op><=>|<>|!=|<=|>=|==|\|\||[-+*/%=<>(),.])
    )""",
    re.VERBOSE | re.DOTALL,
)

#: Blanks and comments to the end of a line, and where other comments start and end: they nest.
_BLANK = re.compile(r"(?:\s|--[^\n]*)*")
_COMMENT = re.compile(r"/\*|\*/")

#: A constant, or several for IN.
Values = Literal | tuple[Literal, ...]
#: Constants for `?`, in order, or for `:name`, by name.
Parameters = Sequence[Values] | Mapping[str, Values]

#: Other names of types, by the names that Lance knows.
_TYPES = {"VARCHAR": "STRING", "TEXT": "STRING", "CHAR": "STRING", "CHARACTER VARYING": "STRING"}

#: Functions that SQL also writes without parentheses.
_BARE = ("CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME")


def parse(text: str, params: Parameters = ()) -> Term:
    """The term that `text` spells, with constants for `?`, in order, or for `:name`, by name.

    Raises InvalidInput with the position of the first token that does not fit.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"a filter is SQL text, not {type(text).__name__}")
    try:
        return _Parser(text, params).whole()
    except RecursionError:
        raise InvalidInput("cannot parse the filter: it is nested too deeply") from None


class _Parser:
    def __init__(self, text: str, params: Parameters) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.position = 0
        self.params = params
        #: How many constants in order have been used.
        self.used = 0
        #: The names of those that have been used by name.
        self.names: set[str] = set()

    # Reading tokens

    def fail(self, expected: str) -> InvalidInput:
        kind, shown, at = self.tokens[self.position]
        token = "the end" if kind == "end" else f"{shown!r} at position {at + 1}"
        return InvalidInput(
            f"cannot parse the filter {self.text!r}: expected {expected}, found {token}"
        )

    def peek(self, *words: str) -> bool:
        kind, value, _ = self.tokens[self.position]
        return kind in ("word", "op") and value.upper() in words

    def take(self, *words: str) -> str | None:
        if self.peek(*words):
            value = self.tokens[self.position][1]
            self.position += 1
            return value.upper()
        return None

    def expect(self, word: str) -> None:
        if not self.take(word):
            raise self.fail(word)

    def string(self) -> str:
        kind, value, _ = self.tokens[self.position]
        if kind != "string":
            raise self.fail("a quoted string")
        self.position += 1
        return value

    # Grammar, loosest binding first

    def whole(self) -> Term:
        term = self.disjunction()
        if self.tokens[self.position][0] != "end":
            raise self.fail("the end or an operator")
        if not isinstance(self.params, Mapping) and self.used < len(self.params):
            raise InvalidInput(
                f"the filter {self.text!r} has {self.used} ? for {len(self.params)} params"
            )
        surplus = (
            sorted(self.params.keys() - self.names) if isinstance(self.params, Mapping) else []
        )
        if surplus:
            raise InvalidInput(f"the filter {self.text!r} has no :{surplus[0]}: see params")
        return term

    def disjunction(self) -> Term:
        terms = [self.conjunction()]
        while self.take("OR"):
            terms.append(self.conjunction())
        return terms[0] if len(terms) == 1 else Call("or", tuple(terms))

    def conjunction(self) -> Term:
        terms = [self.negation()]
        while self.take("AND"):
            terms.append(self.negation())
        return terms[0] if len(terms) == 1 else Call("and", tuple(terms))

    def negation(self) -> Term:
        if self.take("NOT"):
            return Call("not", (self.negation(),))
        return self.comparison()

    def comparison(self) -> Term:
        left = self.sum()
        while True:
            if op := self.take("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"):
                op = {"==": "=", "!=": "<>"}.get(op, op)
                left = Call(op, (left, self.sum()))
            elif self.take("IS"):
                left = self.is_what(left)
            elif self.peek("NOT", "IN", "LIKE", "ILIKE", "BETWEEN"):
                negated = bool(self.take("NOT"))
                test = self.postfix(left)
                left = Call("not", (test,)) if negated else test
            else:
                return left

    def is_what(self, left: Term) -> Term:
        negated = bool(self.take("NOT"))
        if self.take("NULL", "UNKNOWN"):
            test = Call("is_null", (left,))
        elif self.take("TRUE"):
            test = Call("is_true", (left,))
        elif self.take("FALSE"):
            test = Call("is_false", (left,))
        elif self.take("DISTINCT"):
            self.expect("FROM")
            test = Call("<=>", (left, self.sum()))
            negated = not negated
        else:
            raise self.fail("NULL, TRUE, FALSE or DISTINCT FROM")
        return Call("not", (test,)) if negated else test

    def postfix(self, left: Term) -> Term:
        if self.take("IN"):
            items = self.items()
            return Call("in", (left, *items)) if items else FALSE
        if self.take("BETWEEN"):
            low = self.sum()
            self.expect("AND")
            high = self.sum()
            return Call("and", (Call(">=", (left, low)), Call("<=", (left, high))))
        if op := self.take("LIKE", "ILIKE"):
            pattern = self.sum()
            if self.take("ESCAPE"):
                pattern = _with_backslash(pattern, self.string())
            return Call(op.lower(), (left, pattern))
        raise self.fail("IN, LIKE or BETWEEN")

    def items(self) -> list[Term]:
        """What IN looks for: values in parentheses, each of which may be a list, or one list."""
        kind, name, _ = self.tokens[self.position]
        if kind == "parameter":
            self.position += 1
            values = self.values(name)
            if isinstance(values, Literal):
                raise InvalidInput(
                    f"the filter {self.text!r} has one value for {name}: write IN ({name})"
                )
            return list(values)
        self.expect("(")
        items = self.item()
        while self.take(","):
            items += self.item()
        self.expect(")")
        return items

    def item(self) -> list[Term]:
        kind, name, _ = self.tokens[self.position]
        # A parameter may begin an expression, such as `? + 1`. Only a list stands for itself.
        if kind == "parameter" and isinstance(values := self.values(name), tuple):
            self.position += 1
            return list(values)
        if kind == "parameter" and name == "?":
            self.used -= 1
        return [self.disjunction()]

    def sum(self) -> Term:
        left = self.product()
        while op := self.take("+", "-", "||"):
            left = Call(op, (left, self.product()))
        return left

    def product(self) -> Term:
        left = self.sign()
        while op := self.take("*", "/", "%"):
            left = Call(op, (left, self.sign()))
        return left

    def sign(self) -> Term:
        if self.take("-"):
            inner = self.sign()
            if isinstance(inner, Literal) and inner.kind == "number":
                number = inner.value  # Python rounds a Decimal that is negated with `-`.
                negative = -number if isinstance(number, int) else number.copy_negate()
                return Literal("number", negative)
            return Call("negate", (inner,))
        if self.take("+"):
            return self.sign()
        return self.primary()

    def primary(self) -> Term:
        kind, value, _ = self.tokens[self.position]
        if kind == "end":
            raise self.fail("a column, a value or a function")
        if kind == "op":
            if self.take("("):
                inner = self.disjunction()
                self.expect(")")
                return inner
            raise self.fail("a column, a value or a function")
        self.position += 1
        if kind == "number":
            return Literal("number", parse_number(value))
        if kind == "string":
            return Literal("string", value)
        if kind == "binary":
            return self.binary(value)
        if kind == "parameter":
            return self.parameter(value)
        if kind == "word":
            term = self.keyword(value.upper())
            if term is not None:
                return term
            if value.upper() in RESERVED:
                self.position -= 1
                raise self.fail("a column, a value or a function")
            if self.peek("("):
                return self.call(value.lower())
        path = [value]
        while self.take("."):
            kind, value, _ = self.tokens[self.position]
            if kind not in ("word", "quoted"):
                raise self.fail("a field name")
            self.position += 1
            path.append(value)
        return Name(tuple(path))

    def parameter(self, name: str) -> Literal:
        """The constant for `?` or `:name`."""
        values = self.values(name)
        if not isinstance(values, Literal):
            raise InvalidInput(
                f"the filter {self.text!r} has a list of values for {name}: write IN {name}"
            )
        return values

    def values(self, name: str) -> Values:
        """The constant for `?` or `:name`, or several."""
        if isinstance(self.params, Mapping):
            if name[1:] in self.params:
                self.names.add(name[1:])
                return self.params[name[1:]]
        elif name == "?" and self.used < len(self.params):
            self.used += 1
            return self.params[self.used - 1]
        raise InvalidInput(f"the filter {self.text!r} has no value for {name}: see params")

    def keyword(self, word: str) -> Term | None:
        """A constant or construct that starts with a word, or None if it is a name."""
        match word:
            case "TRUE":
                return TRUE
            case "FALSE":
                return FALSE
            case "NULL":
                return NULL
        next_kind = self.tokens[self.position][0]
        if next_kind == "string":
            match word:
                case "DATE":
                    return parse_date(self.string())
                case "TIMESTAMP":
                    return _midnight(parse_timestamp(self.string()))
                case "TIME":
                    return parse_time(self.string())
                case "INTERVAL":
                    return Literal("interval", self.string())
        if word in _BARE:
            if self.take("("):
                self.expect(")")
            return Call(word.lower(), ())
        if word == "CAST" and self.peek("("):
            self.expect("(")
            inner = self.disjunction()
            self.expect("AS")
            target = self.type_name()
            self.expect(")")
            return Call(f"cast:{target}", (inner,))
        if word == "EXTRACT" and self.peek("("):
            self.expect("(")
            kind, part, _ = self.tokens[self.position]
            if kind not in ("word", "string"):
                raise self.fail("a part of a date, such as YEAR")
            self.position += 1
            self.expect("FROM")
            inner = self.disjunction()
            self.expect(")")
            return Call("date_part", (Literal("string", part.lower()), inner))
        return None

    def type_name(self) -> str:
        kind, value, _ = self.tokens[self.position]
        if kind != "word":
            raise self.fail("a type")
        self.position += 1
        name = value.upper()
        while self.tokens[self.position][0] == "word":
            name += " " + self.tokens[self.position][1].upper()
            self.position += 1
        if self.take("("):
            numbers = [self.integer()]
            while self.take(","):
                numbers.append(self.integer())
            self.expect(")")
            if name not in _TYPES:  # VARCHAR(10) is VARCHAR: nothing is cut off
                name += f"({', '.join(numbers)})"
        return _TYPES.get(name, name)

    def integer(self) -> str:
        kind, value, _ = self.tokens[self.position]
        if kind != "number" or not value.isdigit():
            raise self.fail("a whole number")
        self.position += 1
        return value

    def call(self, function: str) -> Term:
        self.expect("(")
        args: list[Term] = []
        if not self.take(")"):
            args.append(self.disjunction())
            while self.take(","):
                args.append(self.disjunction())
            self.expect(")")
        if function in UNITS and len(args) == 1:  # year(ts), as Spark and others write it
            return Call("date_part", (Literal("string", function), args[0]))
        unit = args[0] if args and function in ("date_part", "date_trunc") else None
        if isinstance(unit, Literal) and unit.kind == "string":
            args[0] = Literal("string", unit.value.lower())
        return Call(function, tuple(args))

    def binary(self, text: str) -> Literal:
        try:
            return Literal("binary", bytes.fromhex(text[2:-1]))
        except ValueError:
            self.position -= 1
            raise self.fail("hexadecimal digits in X'…'") from None


def _after_blanks(text: str, position: int) -> int:
    """The first position from here on that is neither blank nor in a comment."""
    depth = 0
    while True:
        if not depth:
            blank = _BLANK.match(text, position)
            position = position if blank is None else blank.end()
            if not text.startswith("/*", position):
                return position
        mark = _COMMENT.search(text, position)
        if mark is None:
            raise InvalidInput(f"cannot parse the filter {text!r}: a comment has no end")
        depth += 1 if mark.group() == "/*" else -1
        position = mark.end()


def _tokens(text: str) -> list[tuple[str, str, int]]:
    tokens = []
    end = len(text.rstrip())
    position = _after_blanks(text, 0)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match or match.lastgroup is None:
            raise InvalidInput(
                f"cannot parse the filter {text!r}: unexpected {text[position]!r} at position "
                f"{position + 1}"
            )
        kind = match.lastgroup
        value = match.group(kind)
        if kind == "string":
            value = value[1:-1].replace("''", "'")
        elif kind == "quoted":
            quote = value[0]
            value = value[1:-1].replace(quote * 2, quote)
        tokens.append((kind, value, match.start(kind)))
        position = _after_blanks(text, match.end())
    tokens.append(("end", "", end))
    return tokens


def _midnight(literal: Literal) -> Literal:
    """A date that was written as a timestamp, at midnight."""
    if literal.kind == "date":
        return Literal("timestamp", literal.value * 86_400 * 1_000_000_000)
    return literal


def _with_backslash(pattern: Term, escape: str) -> Term:
    """A LIKE pattern with its escape character replaced by the backslash that Lance uses."""
    if not (isinstance(pattern, Literal) and pattern.kind == "string" and len(escape) == 1):
        raise InvalidInput("LIKE … ESCAPE needs a constant pattern and one escape character")
    if escape == "\\":
        return pattern
    escaped, position = "", 0
    text = pattern.value
    while position < len(text):
        char = text[position]
        if char == escape and position + 1 < len(text):
            position += 1
            escaped += "\\" + text[position]
        else:
            escaped += "\\\\" if char == "\\" else char
        position += 1
    return Literal("string", escaped)
