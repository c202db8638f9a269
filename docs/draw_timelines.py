"""Draw the timelines of docs/concepts from recordings: ``python docs/draw_timelines.py``.

Each ``docs/timelines/SCENE.txt``, which ``docs/timelines/record.py`` writes, gives ``SCENE.svg``:

    made: when and on what it was recorded
    rows: A, B, C
    0.800 A enters                 seconds, a row, an event
    1.150 A killed 1.652           the lock would remain in Redis for so many seconds

Events of a worker: waits, enters, leaves, notified (of a loss), killed, stopped, continues; of a
server: killed, promoted. ``end`` is the end of the recording.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).with_name("timelines")
#: Pixels: the picture, the names of rows, the margin, a row, its bar, a line of text.
WIDTH, LABELS, MARGIN, ROW, BAR, LINE = 520, 78, 14, 42, 20, 18
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #3d4450 }
.name { font-weight: 600 }
.note { font-size: 11px }
.page { fill: #fbfbfc }
.grid { stroke: #e1e4e9 }
.waits { stroke: #8b949e; stroke-width: 2 }
.inside { fill: #2f7d5b }
.absent { fill: url(#stripes); stroke: #2f7d5b }
.late { fill: none; stroke: #a33a1d; stroke-width: 2; stroke-dasharray: 4 3 }
.serves { fill: #b9c0ca }
.hand-over { stroke: #1f2430; fill: none }
.mark { fill: #1f2430; stroke: #fbfbfc }
.number { fill: #fff; font-size: 11px; font-weight: 600 }
"""
STRIPES = (
    '<defs><pattern id="stripes" width="7" height="7" patternUnits="userSpaceOnUse">'
    '<path d="M-1 8L8 -1M-4 4L4 -4M3 11L11 3" stroke="#2f7d5b" stroke-width="2"/></pattern></defs>'
)
#: What is said of events that have a mark.
WORDS = {
    "killed": "is killed",
    "stopped": "is stopped (SIGSTOP)",
    "continues": "runs again",
    "notified": "is notified of the loss",
    "promoted": "becomes the master",
    "enters": "enters",
}
NAMES = {"Master": "The master", "Replica": "The replica"}
FAILURES = ("killed", "stopped", "promoted")
LEGEND = (
    ("inside", "inside"),
    ("waits", "waits"),
    ("serves", "is the master"),
    ("absent", "killed or stopped; the lock is still in Redis"),
    ("late", "stopped; the lease has ended"),
)
#: Seconds: an entry so soon after an exit is a hand-over; marks so close to another share one.
HAND_OVER, TOGETHER = 0.05, 0.2


class Event(NamedTuple):
    """What happens at a time in seconds; ``remains`` is how long the lock remains in Redis."""

    at: float
    row: str
    what: str
    remains: float = 0.0


class Period(NamedTuple):
    """What a row shows from one time to another."""

    kind: str
    row: str
    begin: float
    end: float


class Mark(NamedTuple):
    """A numbered mark, and what it means."""

    at: float
    row: str
    words: str


class Scene(NamedTuple):
    """A recording."""

    made: str
    rows: list[str]
    events: list[Event]
    end: float


def parsed(text: str) -> Scene:
    """Read a recording."""
    made, rows, *lines = filter(None, text.splitlines())
    *found, last = (line.split() for line in lines)
    events = [Event(float(at), row, what, *map(float, more)) for at, row, what, *more in found]
    names = rows.removeprefix("rows: ").split(", ")
    return Scene(made.removeprefix("made: "), names, events, float(last[0]))


def periods(scene: Scene, row: str) -> Iterator[Period]:
    """What a row shows, one after the other."""
    kind = "serves" if row == "Master" else ""
    since = remains = lasted = 0.0
    for event in [e for e in scene.events if e.row == row] + [Event(scene.end, row, "end")]:
        if event.what == "notified":
            continue
        yield from _period(kind, row, since, event.at, remains)
        since, remains = event.at, event.remains
        lasted = event.at + remains if remains else lasted
        kind = {
            "waits": "waits",
            "enters": "inside",
            "killed": "" if row in NAMES else "killed",
            "stopped": "stopped",
            "continues": "late" if lasted < event.at else "inside",
            "promoted": "serves",
        }.get(event.what, "")


def _period(kind: str, row: str, begin: float, end: float, remains: float) -> Iterator[Period]:
    expiry = min(end, begin + remains)
    if kind in ("killed", "stopped"):
        yield Period("absent", row, begin, expiry)
    if kind == "stopped" and expiry < end:
        yield Period("late", row, expiry, end)
    elif kind in ("waits", "inside", "late", "serves") and end > 0:
        yield Period(kind, row, max(0.0, begin), end)


def marks(scene: Scene) -> list[Mark]:
    """The events that are explained: failures, reports, and the first entry after a failure."""
    found: list[Mark] = []
    failed = False
    for event in scene.events:
        failed = failed or event.what in FAILURES
        if event.what not in WORDS or (event.what == "enters" and not failed):
            continue
        if event.what == "enters":
            failed = False
        words, last = WORDS[event.what], found[-1] if found else None
        if last and last.row == event.row and event.at - last.at < TOGETHER:
            found[-1] = last._replace(words=f"{last.words} and {words}")
        else:
            found.append(Mark(event.at, event.row, f"{NAMES.get(event.row, event.row)} {words}"))
    return found


def hand_overs(events: list[Event]) -> Iterator[tuple[Event, Event]]:
    """Exits, and the entries of other workers that follow immediately."""
    for number, event in enumerate(events):
        for after in events[number + 1 :] if event.what == "leaves" else ():
            if after.what == "enters":
                if after.row != event.row and event.at > 0 and after.at - event.at < HAND_OVER:
                    yield event, after
                break


class Drawing:
    """The picture of a recording."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._scale = (WIDTH - LABELS - MARGIN) / scene.end
        self._bottom = MARGIN + ROW * len(scene.rows)

    def x(self, at: float) -> float:
        """Where a time is, from left to right."""
        return LABELS + at * self._scale

    def y(self, row: str) -> float:
        """The middle of a row."""
        return MARGIN + ROW * (self._scene.rows.index(row) + 0.5)

    def svg(self) -> str:
        """Return the picture, with a background of its own for pages in dark mode."""
        scene, found = self._scene, marks(self._scene)
        shapes = [*self._axis()]
        for row in scene.rows:
            shapes.append(text(MARGIN, self.y(row) + 5, row, "name"))
            shapes += map(self._bar, periods(scene, row))
        shapes += (self._arrow(*pair) for pair in hand_overs(scene.events))
        top = self._bottom + 50.0
        for number, mark in enumerate(found, start=1):
            shapes += numbered(number, self.x(mark.at), self.y(mark.row))
            shapes += numbered(number, MARGIN + 8, top - 4)
            shapes += [
                text(MARGIN + 60, top, f"{mark.at:.2f} s", anchor="end"),
                text(MARGIN + 72, top, mark.words),
            ]
            top += LINE + 2
        top += 6
        for kind, words in LEGEND:
            if any(p.kind == kind for row in scene.rows for p in periods(scene, row)):
                shapes += [bar(kind, MARGIN, top - 4, 36), text(MARGIN + 48, top, words)]
                top += LINE + 6
        shapes.append(text(MARGIN, top + 2, scene.made, "note"))
        return document(top + MARGIN, [STRIPES, *shapes])

    def _axis(self) -> Iterator[str]:
        for second in range(int(self._scene.end) + 1):
            x = self.x(second)
            yield f'<path class="grid" d="M{x:.1f} {MARGIN}V{self._bottom}"/>'
            yield text(x, self._bottom + 14, f"{second} s" if not second else str(second), "note")

    def _bar(self, period: Period) -> str:
        begin, end = self.x(period.begin), self.x(period.end)
        return bar(period.kind, begin, self.y(period.row), end - begin)

    def _arrow(self, event: Event, after: Event) -> str:
        x, start, end = self.x(after.at), self.y(event.row), self.y(after.row)
        way = 1 if end > start else -1
        start, end = start + way * BAR / 2, end - way * BAR / 2
        head = f"M{x - 3:.1f} {end - 6 * way:g}L{x:.1f} {end:g}L{x + 3:.1f} {end - 6 * way:g}"
        return f'<path class="hand-over" d="M{x:.1f} {start:g}V{end:g}{head}"/>'


def bar(kind: str, x: float, y: float, width: float) -> str:
    """A period, or a sample of it for the legend."""
    if kind == "waits":
        return f'<path class="waits" d="M{x:.1f} {y:g}h{width:.1f}"/>'
    size = f'width="{width:.1f}" height="{BAR}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="{y - BAR / 2:g}" {size} rx="2"/>'


def numbered(number: int, x: float, y: float) -> tuple[str, str]:
    """A mark with its number."""
    circle = f'<circle class="mark" cx="{x:.1f}" cy="{y:g}" r="8"/>'
    return circle, text(x, y + 4, str(number), "number", "middle")


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    """A line of text."""
    style = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.1f}" y="{y:g}"{style}>{escape(words)}</text>'


def document(height: float, shapes: list[str]) -> str:
    """A picture of these shapes."""
    size = f'width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<style>{STYLE}</style>",
        '<rect class="page" width="100%" height="100%" rx="8"/>',
        *shapes,
        "</svg>\n",
    ])  # fmt: skip


def draw(recording: str) -> str:
    """Return the SVG of a recording."""
    return Drawing(parsed(recording)).svg()


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.txt")):
        path.with_suffix(".svg").write_text(draw(path.read_text()))
