"""The panels of a Grafana dashboard as SVG, at the places that the dashboard gives them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from html import escape
from typing import Any, NamedTuple

#: Pixels of a column and a row of the dashboard's grid, and between two panels.
COLUMN, ROW, GAP = 50, 33, 8
WIDTH = 24 * COLUMN
#: Pixels around the curves of a panel: left, right, below and above them.
LEFT, RIGHT, BELOW, ABOVE = 62, 16, 26, 38
#: Pixels of a line of a legend, and about those of a character.
LINE, CHARACTER = 18, 6.9
COLOURS = ("#3274d9", "#e0752d", "#299c46", "#a352cc", "#c9a000", "#d6404c", "#1f9e9e", "#8b8fa3")
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #57606a }
.title { font-weight: 600; font-size: 13px; fill: #24292f }
.note { font-size: 13px }
.number { font-size: 40px; font-weight: 600; fill: #299c46 }
.page { fill: #f6f8fa }
.panel { fill: #ffffff; stroke: #d0d7de }
.grid { stroke: #d0d7de; stroke-width: 0.6 }
.line { fill: none; stroke-width: 1.4; stroke-linecap: round; stroke-linejoin: round }
@media (prefers-color-scheme: dark) {
text { fill: #adbac7 }
.title { fill: #e6edf3 }
.page { fill: #0d1117 }
.panel { fill: #161b22; stroke: #373e47 }
.grid { stroke: #373e47 }
}
"""

#: Points in seconds and in the unit of the panel, by the name of the series.
Series = dict[str, list[tuple[float, float]]]


class Area(NamedTuple):
    """A rectangle, in pixels."""

    x: float
    y: float
    width: float
    height: float


def area(panel: dict[str, Any]) -> Area:
    """Where a panel of the dashboard is drawn."""
    place = panel["gridPos"]
    return Area(
        place["x"] * COLUMN + GAP / 2,
        place["y"] * ROW + GAP / 2,
        place["w"] * COLUMN - GAP,
        place["h"] * ROW - GAP,
    )


def height(panels: list[dict[str, Any]]) -> int:
    """Pixels from the top of the first panel to the bottom of the last one."""
    rows: int = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    return rows * ROW


def drawn(panel: dict[str, Any], series: Series, seconds: float) -> list[str]:
    """The shapes of a panel; its time axis ends after ``seconds``."""
    place, unit = area(panel), panel["fieldConfig"]["defaults"]["unit"]
    frame = (
        f'<rect class="panel" x="{place.x:g}" y="{place.y:g}" width="{place.width:g}" '
        f'height="{place.height:g}" rx="3"/>'
    )
    title = text(place.x + 12, place.y + 22, panel["title"], "title")
    if panel["type"] == "stat":
        return [frame, title, _number(place, series, unit)]
    return [frame, title, *_curves(place, series, seconds, unit)]


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    """A line of text."""
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def _number(place: Area, series: Series, unit: str) -> str:
    (points,) = series.values()
    x, y = place.x + place.width / 2, place.y + place.height / 2 + 26
    return text(x, y, _shown(points[-1][1], unit, points[-1][1]), "number", "middle")


def _curves(place: Area, series: Series, seconds: float, unit: str) -> Iterator[str]:
    legend = list(_legend(series, place.width - 24))
    plot = Area(
        place.x + LEFT,
        place.y + ABOVE,
        place.width - LEFT - RIGHT,
        place.height - ABOVE - BELOW - LINE * len(legend) - 4,
    )
    values = [value for points in series.values() for _, value in points if not math.isnan(value)]
    steps = _steps(max(values), 4) if any(values) else [0.0, 1.0]
    top, bottom = steps[-1], plot.y + plot.height

    def across(second: float) -> float:
        return plot.x + plot.width * second / seconds

    def up(value: float) -> float:
        return bottom - plot.height * value / top

    for step in steps:
        yield _rule(plot.x, up(step), plot.x + plot.width, up(step))
        yield text(plot.x - 8, up(step) + 4, _shown(step, unit, top), anchor="end")
    for second in _steps(seconds, 6):
        if second <= seconds:
            yield _rule(across(second), plot.y, across(second), bottom)
            yield text(across(second), bottom + 17, f"{second:g} s", anchor="middle")
    colours = dict(zip(series, itertools.cycle(COLOURS), strict=False))
    for name, points in series.items():
        path = _path([(across(second), up(value)) for second, value in points])
        yield f'<path class="line" stroke="{colours[name]}" d="{path}"/>'
    for number, line in enumerate(legend):
        y = bottom + BELOW + 15 + LINE * number
        for x, name in line:
            yield (
                f'<rect x="{place.x + 12 + x:.1f}" y="{y - 6:.1f}" width="14" height="4" rx="1" '
                f'fill="{colours[name]}"/>'
            )
            yield text(place.x + 12 + x + 20, y, name)


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _path(points: list[tuple[float, float]]) -> str:
    """A line through the points, with a gap where there is no number."""
    found, begins = [], True
    for x, y in points:
        if not math.isnan(y):
            # A point between two gaps is a line of no length, whose ends are round.
            found.append(f"M{x:.1f} {y:.1f}h0" if begins else f"L{x:.1f} {y:.1f}")
        begins = math.isnan(y)
    return "".join(found)


def _legend(series: Series, width: float) -> Iterator[list[tuple[float, str]]]:
    """The lines of the legend: names, and where they begin."""
    line: list[tuple[float, str]] = []
    x = 0.0
    for name in series:
        needed = len(name) * CHARACTER + 20
        if line and x + needed > width:
            yield line
            line, x = [], 0.0
        line.append((x, name))
        x += needed + 14
    yield line


def _steps(top: float, most: int) -> list[float]:
    """Round numbers from 0 to ``top`` or more, in ``most`` steps at most."""
    power = 10.0 ** math.floor(math.log10(top / most))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor * most >= top)
    return [round(step * number, 10) for number in range(math.ceil(top / step - 1e-9) + 1)]


def _shown(value: float, unit: str, top: float) -> str:
    match unit:
        case "s" if top < 1:
            return f"{round(value * 1000, 6):g} ms"
        case "s":
            return f"{value:g} s"
        case "percentunit":
            return f"{round(value * 100, 6):g} %"
        case "ops":
            return f"{value:g}/s"
        case _:
            return f"{value:g}"
