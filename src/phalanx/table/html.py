"""Tables and plans as HTML, for notebooks. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from phalanx.table.format import count_text, size_text

if TYPE_CHECKING:
    from phalanx.table.plan import Plan
    from phalanx.transaction.snapshot import Snapshot

#: How many leaves of a plan are shown.
_SHOWN = 10


def table_html(snapshot: Snapshot) -> str:
    """A table: where it is, how it is partitioned, how large it is, and its columns."""
    head, leaves = snapshot.head, snapshot.leaves
    counts, sizes = leaves.row_counts, leaves.byte_counts
    rows = "an unknown number of rows"
    if not (counts < 0).any():
        rows = count_text(int(counts.sum()), "row")
    size = size_text(int(sizes[sizes > 0].sum()))
    fields = ", ".join(head.spec.spell(head.schema)) or "nothing"
    title = f"<b>{escape(snapshot.location.uri)}</b>, version {head.sequence}"
    facts = f"partitioned by {escape(fields)}; {rows}, {size} in {count_text(len(leaves), 'leaf')}"
    columns = (
        (field.name, str(field.type), "" if field.nullable else "NOT NULL")
        for field in head.schema.arrow
    )
    return f"<p>{title}<br>{facts}</p>{_table(('column', 'type', ''), columns)}"


def plan_html(plan: Plan) -> str:
    """A plan: how many leaves are read and why, and the first of them."""
    text = plan.explain().split("\n    ")[0]
    leaves = (
        (
            plan.short_name_of(leaf.row),
            "?" if leaf.rows is None else f"{leaf.rows:,}",
            leaf.residual or "",
        )
        for leaf in plan.first_leaves(_SHOWN)
    )
    more = plan.selected - _SHOWN
    rest = f"<p>… and {more:,} more</p>" if more > 0 else ""
    return f"<pre>{escape(text)}</pre>{_table(('partition', 'rows', 'filter'), leaves)}{rest}"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
