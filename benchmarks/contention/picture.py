"""Charts as SVG. They have a light background of their own, so that they fit dark pages too.

They are narrow, so that their text can be read on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

WIDTH, LABELS, BAR, GAP, MARGIN = 520, 182, 18, 6, 14
#: Pixels: the width of a column of figures, the height of a line of text and of a chart.
FIGURES, LINE, CHART = 84, 18, 170
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #3d4450 }
.title, .own { font-weight: 600 }
.note { font-size: 11px }
.page { fill: #fbfbfc }
.ours { fill: #0b63c5 }
.other { fill: #8b949e }
.span { stroke: #8b949e; stroke-width: 3 }
.span.ours { stroke: #0b63c5 }
.grid { stroke: #d8dbe1 }
.curve { fill: none; stroke-width: 2 }
.open { fill: #fbfbfc; stroke-width: 2 }
.c0 { stroke: #0b63c5 }
.c1 { stroke: #b35900 }
.c2 { stroke: #555c68 }
"""
#: The curves of a chart differ in colour, dashes and marks.
DASHES = ("", "7 4", "2 3")
#: The greatest distance between two marks of an axis, as a share of its power of ten.
STEPS = (0.1, 0.2, 0.25, 0.5, 1)

Groups = dict[str, dict[str, float]]
#: Of each group and label: two values.
Spans = dict[str, dict[str, tuple[float, float]]]
#: Of each curve: points.
Curves = dict[str, list[tuple[float, float]]]


def bars(groups: Groups, ours: str, unit: str, note: str) -> str:
    """Horizontal bars in groups, each group with its own scale."""
    shapes: list[str] = []
    y = MARGIN + 12.0
    for title, values in groups.items():
        shapes.append(text(MARGIN, y, f"{title} ({unit})", "title"))
        y += 10
        scale = (WIDTH - LABELS - FIGURES) / max(*values.values(), 1)
        for label, value in values.items():
            length = max(1, value * scale)
            kind = "ours" if label == ours else "other"
            size = f'width="{length:.0f}" height="{BAR}" rx="2"'
            shapes += [
                name(label, y, ours),
                f'<rect class="{kind}" x="{LABELS}" y="{y:g}" {size}/>',
                text(LABELS + length + 6, y + BAR - 5, f"{value:,.0f}"),
            ]
            y += BAR + GAP
        y += 28
    return page(y - 16, shapes, note)


def spans(groups: Spans, ours: str, ends: tuple[str, str], unit: str, note: str) -> str:
    """From a first to a second value, in groups, on one logarithmic scale."""
    values = [value for rows in groups.values() for pair in rows.values() for value in pair]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    scale = (WIDTH - LABELS - FIGURES - MARGIN) / (high - low)
    y = MARGIN + 12.0
    shapes = [
        f'<circle class="other" cx="{MARGIN + 6}" cy="{y - 5:g}" r="5"/>',
        text(MARGIN + 18, y, ends[0]),
        f'<rect class="open c2" x="{MARGIN + 88}" y="{y - 10:g}" width="9" height="9"/>',
        text(MARGIN + 104, y, ends[1]),
        text(MARGIN + 186, y, f"in {unit}; each line is ten times the one before"),
    ]
    y += 2 * LINE
    for title, rows in groups.items():
        shapes.append(text(MARGIN, y, title, "title"))
        top, bottom = y + 6, y + 12 + (BAR + GAP) * len(rows)
        for power in range(low, high + 1):
            x = LABELS + (power - low) * scale
            shapes += [
                f'<path class="grid" d="M{x:.1f} {top:g}V{bottom:g}"/>',
                text(x, bottom + 12, f"{10.0**power:,g}", "note", "middle"),
            ]
        y += 10
        for label, pair in rows.items():
            one, two = (LABELS + (math.log10(value) - low) * scale for value in pair)
            kind, stroke = ("ours", "c0") if label == ours else ("other", "c2")
            middle = y + BAR / 2
            shapes += [
                name(label, y, ours),
                f'<path class="span {kind}" d="M{one:.1f} {middle:g}H{two:.1f}"/>',
                f'<circle class="{kind}" cx="{one:.1f}" cy="{middle:g}" r="5"/>',
                f'<rect class="open {stroke}" x="{two - 4.5:.1f}" y="{middle - 4.5:g}"'
                ' width="9" height="9"/>',
                text(WIDTH - MARGIN, y + BAR - 5, " – ".join(map(short, pair)), anchor="end"),
            ]
            y += BAR + GAP
        y += 42
    return page(y - 22, shapes, note)


def charts(panels: dict[str, Curves], unit: str, note: str) -> str:
    """Charts below each other, each with its own scale, over a quantity in a unit."""
    shapes: list[str] = []
    y = MARGIN + 12.0
    for title, curves in panels.items():
        shapes.append(text(MARGIN, y, title, "title"))
        shapes += chart(curves, y + 14, unit)
        y += CHART + 3 * LINE + 22
    return page(y - 18, shapes, note)


def chart(curves: Curves, top: float, unit: str) -> Iterator[str]:
    """One chart with its axes; each curve's name is at its end."""
    left, right, bottom = MARGIN + 36, WIDTH - 104, top + CHART
    widest = max(x for points in curves.values() for x, _ in points)
    highest, step = axis(max(y for points in curves.values() for _, y in points))
    across, up = (right - left) / widest, CHART / highest
    for number in range(round(highest / step) + 1):
        y = bottom - number * step * up
        yield f'<path class="grid" d="M{left} {y:.1f}H{right}"/>'
        yield text(left - 6, y + 4, f"{number * step:,g}", "note", "end")
    for x in sorted({x for points in curves.values() for x, _ in points}):
        yield text(left + x * across, bottom + 16, f"{x:,g}", "note", "middle")
    yield text((left + right) / 2, bottom + 32, unit, "note", "middle")
    for number, points in enumerate(curves.values()):
        found = [(left + x * across, bottom - y * up) for x, y in points]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in found)
        dash = f' stroke-dasharray="{DASHES[number]}"' if DASHES[number] else ""
        yield f'<path class="curve c{number}"{dash} d="M{path}"/>'
        yield from (mark(number, x, y) for x, y in found)
    yield from labels(curves, right + 10, lambda value: bottom - value * up)


def labels(curves: Curves, x: float, height: Callable[[float], float]) -> Iterator[str]:
    """The name and the last value of each curve, moved apart where they would overlap."""
    lowest = math.inf
    last = sorted((height(points[-1][1]), name) for name, points in curves.items())
    for y, label in reversed(last):
        lowest = y = min(y + 4, lowest - LINE)
        yield text(x, y, f"{label} {short(curves[label][-1][1])}")


def mark(number: int, x: float, y: float) -> str:
    """A point of a curve: a circle, a square, or a triangle."""
    if number == 0:
        return f'<circle class="open c0" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    if number == 1:
        return f'<rect class="open c1" x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"/>'
    return f'<path class="open c2" d="M{x - 4.5:.1f} {y + 3.5:.1f}h9l-4.5 -8z"/>'


def axis(most: float) -> tuple[float, float]:
    """The end of an axis, and the distance between its marks: six at most."""
    power = 10.0 ** math.ceil(math.log10(most))
    step = next(power * share for share in STEPS if most / (power * share) <= 5)
    return math.ceil(most / step) * step, step


def short(value: float) -> str:
    """A value with two digits at least, without more than are useful."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def name(label: str, y: float, ours: str) -> str:
    """The name of a row."""
    return text(LABELS - 8, y + BAR - 5, label, "own" if label == ours else "", "end")


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    """A line of text."""
    style = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:g}" y="{y:g}"{style}>{escape(words)}</text>'


def page(height: float, shapes: Sequence[str], note: str) -> str:
    """A picture with a background and, below, a note of some lines."""
    lines = note.split("\n")
    notes = [text(MARGIN, height + 14 * i, line, "note") for i, line in enumerate(lines, start=1)]
    total = round(height + 14 * len(lines) + MARGIN)
    paper = '<rect class="page" width="100%" height="100%" rx="8"/>'
    return document(WIDTH, total, STYLE, [paper, *shapes, *notes])


def document(width: int, height: int, style: str, shapes: list[str]) -> str:
    """A picture of these shapes; lengths are in pixels."""
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<style>{style}</style>",
            *shapes,
            "</svg>\n",
        ]
    )
