"""A chart of seconds in several systems, as SVG: one group of bars for each line of a table.

Bars are relative to the first system, so that lines of milliseconds and of seconds fit side by
side; those that are too long are cut off, with their figure at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import cycle

COLORS = ("#3f51b5", "#90a4ae", "#ef6c00", "#ffb74d", "#26a69a")
#: Where bars begin, how long one is that is as long as the first, how often that at most.
LEFT, UNIT, MOST = 200, 110, 4.5
BAR, GAP, TOP, RIGHT = 11, 12, 64, 62


def chart(title: str, results: Mapping[str, Mapping[str, float]]) -> str:
    """The chart of what systems took, by system and line. The first has every line."""
    first = next(iter(results))
    colors = dict(zip(results, cycle(COLORS), strict=False))
    shapes = [_text(24, 26, title, 'font-size="14" fill="#1a237e"')]
    for at, name in enumerate(results):
        shapes += [_bar(24 + 140 * at, 40, 10, colors[name]), _text(40 + 140 * at, 49, name)]
    height = TOP
    for line, base in results[first].items():
        systems = [name for name in results if line in results[name]]
        middle = height + len(systems) * BAR / 2 + 4
        shapes.append(_text(LEFT - 12, middle, line, 'text-anchor="end"'))
        for name in systems:
            ratio = results[name][line] / base
            width = min(ratio, MOST) * UNIT
            shapes.append(_bar(LEFT, height, width, colors[name]))
            shapes.append(
                _text(LEFT + width + 5, height + BAR - 3, f"{ratio:.2f}", 'font-size="9"')
            )
            height += BAR
        height += GAP
    line = f'M{LEFT + UNIT} {TOP - 6} V{height - 6}" stroke="#cfd8dc" stroke-dasharray="3 3'
    size = f"{LEFT + MOST * UNIT + RIGHT:g} {height}"
    described = f"Time relative to {first}, line by line; shorter bars are faster."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img" '
            'aria-labelledby="t d" font-family="ui-sans-serif, system-ui, sans-serif" '
            'font-size="12" fill="#37474f">',
            f'<title id="t">{escape(title)}</title>',
            f'<desc id="d">{escape(described)}</desc>',
            '<rect width="100%" height="100%" rx="10" fill="#ffffff"/>',
            f'<path d="{line}"/>',
            *shapes,
            "</svg>\n",
        ]
    )


def _bar(x: float, y: float, width: float, color: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{BAR - 2}" fill="{color}"/>'


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def markdown(results: Mapping[str, Mapping[str, float]]) -> str:
    """The same as a table, with the smallest figure of a line in bold."""
    lines = [f"| | {' | '.join(results)} |", "|---" * (len(results) + 1) + "|"]
    for line in next(iter(results.values())):
        figures = [of.get(line) for of in results.values()]
        best = min(figure for figure in figures if figure is not None)
        cells = [
            "-" if figure is None else f"**{figure:.2f}**" if figure == best else f"{figure:.2f}"
            for figure in figures
        ]
        lines.append(f"| {line} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
