"""The results as text for a terminal and as tables for the documentation."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable

#: The figures of one lock, by name.
Found = dict[str, float]
HEADER = (
    "",
    "turns/s",
    "from–to",
    "ratio",
    "hand-overs/s",
    "ratio",
    "Jain",
    "fewest–most turns",
    "wait p50",
    "p99",
    "max, ms",
    "requests",
    "commands",
    "server CPU",
    "client CPU",
    "ratio",
    "per hand-over",
    "ratio",
    "connections",
)
#: Of the tables in the page: the markers around them, and a row.
BEGIN, END = ".. {} begin\n", ".. {} end\n"
CELLS = re.compile(r'"(.*?)"')


def rows(found: dict[str, Found], base: str) -> list[tuple[str, ...]]:
    """One row for each lock, with ratios to ``base``."""
    return [row(title, one, found[base]) for title, one in found.items()]


def row(title: str, found: Found, base: Found) -> tuple[str, ...]:
    return (
        title,
        f"{found['turns']:.0f}",
        f"{found['slowest']:.0f}–{found['fastest']:.0f}",
        ratio(found["turns"], base["turns"]),
        f"{found['changes']:.0f}",
        ratio(found["changes"], base["changes"]),
        f"{found['jain']:.3f}",
        f"{found['fewest']:.0f}–{found['most']:.0f}",
        *(f"{found[wait]:.1f}" for wait in ("p50", "p99", "max")),
        f"{found['reads']:.1f}",
        f"{found['commands']:.1f}",
        f"{found['cpu']:.2f}",
        f"{found['client cpu']:.2f}",
        ratio(found["client cpu"], base["client cpu"]),
        f"{found['client cpu each']:.2f}",
        ratio(found["client cpu each"], base["client cpu each"]),
        f"{found['connections']:.0f}",
    )


def ratio(value: float, base: float) -> str:
    return f"{value / base:.2f}" if base else "–"


def plain(title: str, table: Iterable[tuple[str, ...]], header: tuple[str, ...] = HEADER) -> str:
    """A table for a terminal."""
    lines = [(title, *header[1:]), *table]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    widths[0] = max(widths[0], 44)
    return "\n".join(
        line[0].ljust(widths[0])
        + "".join(f"  {cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True))
        for line in lines
    )


def markup(title: str, table: Iterable[tuple[str, ...]], header: tuple[str, ...] = HEADER) -> str:
    """The same for the documentation."""
    lines = [f".. csv-table:: {title}", "   :header: " + csv(header), ""]
    return "\n".join([*lines, *("   " + csv(cells) for cells in table), ""])


def csv(cells: Iterable[str]) -> str:
    return ", ".join(f'"{cell}"' for cell in cells)


def put(page: pathlib.Path, tables: str, what: str = "the tables") -> None:
    """Replace the tables of a page."""
    begin, end = BEGIN.format(what), END.format(what)
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    page.write_text(f"{before}{begin}\n{tables.rstrip()}\n\n{end}{after}", encoding="utf-8")


def read(page: str, what: str = "the tables") -> tuple[str, dict[str, list[dict[str, str]]]]:
    """The line above the tables in a page's text; the rows of each table, by its title.

    Of columns with the same name, the first counts.
    """
    text = page.partition(BEGIN.format(what))[2].partition(END.format(what))[0]
    setting, *tables = text.strip().split(".. csv-table:: ")
    found = {}
    for table in tables:
        title, *lines = table.splitlines()
        header, *cells = filter(None, map(CELLS.findall, lines))
        found[title] = [{column: row[header.index(column)] for column in header} for row in cells]
    return setting.strip().removesuffix("."), found
