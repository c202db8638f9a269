"""Draw the sequence diagrams of docs/concepts from text: ``python docs/draw_sequences.py``.

Each file ``docs/diagrams/NAME.txt`` gives ``NAME.svg``. Its lines, from top to bottom:

    actors: Process A, Redis, Process B    the columns; the first line
    Process A -> Redis: text               a request or message; --> for a reply, -x if it is lost
    holds Process A                        from here on it is inside the lock: a wide bar
    ends Process A                         until here
    note Redis: text                       a box; / begins a new line in it
    ... text                               time passes
"""

from __future__ import annotations

import pathlib
import re
from html import escape

FOLDER = pathlib.Path(__file__).with_name("diagrams")
#: Pixels: between two actors, beside the first and last, of a line of text, of a character.
COLUMN, SIDE, LINE, CHARACTER = 250, 120, 17, 6.6
PAPER, INK, GREY, BAR, BOX = "#fbfbfc", "#1f2430", "#7a8190", "#2f7d5b", "#eef0f4"
ARROW = re.compile(r"(?P<source>.+?) (?P<kind>->|-->|-x) (?P<target>.+?): (?P<text>.+)")


class Drawing:
    """A diagram, line by line.

    Args:
        actors: the names of the columns.
    """

    def __init__(self, actors: list[str]) -> None:
        self.x = {actor: SIDE + COLUMN * number for number, actor in enumerate(actors)}
        self.width = 2 * SIDE + COLUMN * (len(actors) - 1)
        self.y = 54.0
        self.bars: list[str] = []
        self.parts: list[str] = []
        self._since: dict[str, float] = {}
        for actor in actors:
            self.box(actor, self.x[actor], 14, [actor], "bold")

    def line(self, text: str) -> None:
        """Draw one line of the file."""
        if text.startswith("holds "):
            self._since[text[6:]] = self.y
        elif text.startswith("ends "):
            self.bar(text[5:])
        elif text.startswith("... "):
            self.y += 8
            self.text(text[4:], self.width / 2, self.y + 12, GREY, halo=PAPER)
            self.y += 30
        elif text.startswith("note "):
            actor, words = text[5:].split(": ", 1)
            lines = words.split(" / ")
            self.box(actor, self.x[actor], self.y, lines)
            self.y += LINE * len(lines) + 18
        elif match := ARROW.fullmatch(text):
            self.arrow(*match.group("source", "kind", "target", "text"))
        else:
            raise ValueError(f"no line of a diagram: {text}")

    def arrow(self, source: str, kind: str, target: str, text: str) -> None:
        """Draw an arrow with its text above it."""
        start, end = self.x[source], self.x[target]
        way = 1 if end > start else -1
        dash = ' stroke-dasharray="5 4"' if kind == "-->" else ""
        tip = start + (end - start) * 0.6 if kind == "-x" else end - 5 * way
        self.text(text, (start + end) / 2, self.y + 10, halo=PAPER)
        y = self.y + 18
        self.parts.append(f'<path d="M{start + 5 * way:g} {y:g}H{tip:g}" stroke="{INK}"{dash}/>')
        if kind == "-x":
            head = f"M{tip - 5:g} {y - 5:g}l10 10m0 -10l-10 10"
        else:
            head = f"M{tip - 7 * way:g} {y - 4:g}L{tip:g} {y:g}L{tip - 7 * way:g} {y + 4:g}"
        self.parts.append(f'<path d="{head}" stroke="{INK}" fill="none"/>')
        self.y += 34

    def bar(self, actor: str) -> None:
        """End the time in which an actor is inside the lock."""
        top = self._since.pop(actor)
        size = f'y="{top:g}" width="10" height="{self.y - top:g}"'
        self.bars.append(f'<rect x="{self.x[actor] - 5:g}" {size} rx="3" fill="{BAR}"/>')

    def box(self, actor: str, x: float, top: float, lines: list[str], weight: str = "") -> None:
        """Draw a box with text around a column."""
        width = max(map(len, lines)) * (CHARACTER + bool(weight)) + 16
        size = f'width="{width:g}" height="{LINE * len(lines) + 8:g}"'
        frame = f'rx="4" fill="{BOX}" stroke="{GREY}"'
        self.parts.append(f'<rect x="{x - width / 2:g}" y="{top:g}" {size} {frame}/>')
        for number, text in enumerate(lines):
            self.text(text, x, top + LINE * number + 16, weight=weight)

    def text(
        self, text: str, x: float, y: float, fill: str = INK, *, halo: str = "", weight: str = ""
    ) -> None:
        """Draw a line of text, with a halo where it may cross other lines."""
        style = f' font-weight="{weight}"' if weight else ""
        if halo:
            style += f' stroke="{halo}" stroke-width="5" paint-order="stroke"'
        place = f'x="{x:g}" y="{y:g}" text-anchor="middle" fill="{fill}"'
        self.parts.append(f"<text {place}{style}>{escape(text)}</text>")

    def svg(self) -> str:
        """Return the picture, with a background of its own for pages in dark mode."""
        for actor in list(self._since):
            self.bar(actor)
        height = self.y + 14
        line = f'V{height - 8:g}" stroke="{GREY}" stroke-dasharray="2 3"/>'
        lines = [f'<path d="M{x:g} 40{line}' for x in self.x.values()]
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {height:g}"'
            f' width="{self.width:g}" font-family="sans-serif" font-size="12.5">',
            f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
            *lines, *self.bars, *self.parts, "</svg>\n",
        ])  # fmt: skip


def draw(text: str) -> str:
    """Return the SVG of a diagram's text."""
    first, *lines = filter(None, map(str.strip, text.splitlines()))
    drawing = Drawing(first.removeprefix("actors: ").split(", "))
    for line in lines:
        drawing.line(line)
    return drawing.svg()


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.txt")):
        path.with_suffix(".svg").write_text(draw(path.read_text()))
