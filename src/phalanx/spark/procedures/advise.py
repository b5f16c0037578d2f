"""`CALL <catalog>.system.advise(…)`: advice on partitions, with what to do as statements."""

from __future__ import annotations

import re
from typing import Any

from phalanx.spark.procedures.base import (
    REPORT,
    TABLE,
    Invocation,
    Procedure,
    Rows,
    register,
    report,
)
from phalanx.table.advise import Action


@register
class AdviseProcedure(Procedure):
    """Says what could be better about partitions."""

    name = "advise"
    description = (
        "Say which partitions are too small, too large or skewed, and what would be better."
    )
    parameters = (TABLE,)
    result = REPORT

    def call(self, invocation: Invocation) -> Rows:
        advice = invocation.open().advise()
        return report(advice.text(lambda action: statement(action, invocation)))


def statement(action: Action, invocation: Invocation) -> str:
    """The CALL that does what advice says; a call in Python where SQL has no words for it."""
    lists = [value for value in action.arguments.values() if isinstance(value, list)]
    if not all(isinstance(entry, str) for entries in lists for entry in entries):
        return f"{action}  -- in Python: SQL cannot name a field that is an expression"
    arguments = {TABLE.name: invocation[TABLE.name], **action.arguments}
    listed = ", ".join(f"{name} => {_literal(value)}" for name, value in arguments.items())
    return f"CALL {_quoted(invocation.catalog)}.system.{action.verb}({listed})"


def _literal(value: Any) -> str:
    text = ", ".join(value) if isinstance(value, list) else str(value)
    return "'{}'".format(text.replace("\\", "\\\\").replace("'", "\\'"))


def _quoted(name: str) -> str:
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return name
    return "`{}`".format(name.replace("`", "``"))
