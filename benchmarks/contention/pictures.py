"""The pictures of docs/reference/benchmarks.rst, drawn from the tables in its text.

They can be drawn without a measurement: ``python benchmarks/contention/pictures.py``.
"""

from __future__ import annotations

import pathlib
import sys

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from contention import report
from contention.picture import Curves, bars, charts, spans

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "reference"
OURS, COHORT = "redis_lock_decorators", "the same, wait='cohort'"
#: The workloads that are drawn.
SHOWN = ("4 × 4 threads", "4 × 50 tasks", "2 × 4 threads, 2 ms further away")
#: Of the tables of held locks: the titles of the charts and the columns' names.
HELD = {"Memory (MiB)": "memory", "CPU (% of one core)": "CPU"}


def hand_overs_picture(page: str) -> str:
    """Hand-overs per second of each lock; cohorts would dwarf the others."""
    setting, tables = report.read(page)
    groups = {
        title: {row[""]: float(row["hand-overs/s"]) for row in tables[title] if row[""] != COHORT}
        for title in SHOWN
    }
    return bars(groups, OURS, "hand-overs per second", lines(setting))


def waiting_picture(page: str) -> str:
    """The median and the 99th percentile of the waits for each lock."""
    setting, tables = report.read(page)
    groups = {
        title: {row[""]: (float(row["wait p50"]), float(row["p99"])) for row in tables[title]}
        for title in SHOWN
    }
    return spans(groups, OURS, ("median", "99 of 100"), "ms", lines(setting))


def held_picture(page: str) -> str:
    """Memory and CPU over the number of held locks."""
    setting, tables = report.read(page, "held locks")
    rows = tables["held locks"]
    panels = {title: curves(rows, figure) for title, figure in HELD.items()}
    return charts(panels, "locks held by one process", lines(setting))


def curves(rows: list[dict[str, str]], figure: str) -> Curves:
    """The columns of a figure, by the name after the comma."""
    return {
        column.partition(", ")[2]: [
            (float(row["locks"].replace(",", "")), float(row[column].split()[0])) for row in rows
        ]
        for column in rows[0]
        if column.startswith(figure)
    }


def lines(setting: str) -> str:
    """What a page says above its tables, as lines below a picture."""
    return setting.replace("; ", "\n")


PICTURES = {
    "contended.svg": hand_overs_picture,
    "waiting.svg": waiting_picture,
    "held.svg": held_picture,
}

if __name__ == "__main__":
    text = (FOLDER / "benchmarks.rst").read_text(encoding="utf-8")
    for file, picture in PICTURES.items():
        (FOLDER / file).write_text(picture(text), encoding="utf-8")
