"""The timelines of docs/concepts are drawn from recordings of real servers."""

from __future__ import annotations

import itertools
import pathlib
import runpy
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import pytest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
RECORDINGS = sorted((DOCS / "timelines").glob("*.txt"))
drawing = runpy.run_path(str(DOCS / "draw_timelines.py"))
#: Seconds between an event and its record.
DELAY = 0.1


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_picture_is_drawn_from_its_recording(path):
    picture = path.with_suffix(".svg").read_text()
    assert picture == drawing["draw"](path.read_text()), "run python docs/draw_timelines.py"
    ElementTree.fromstring(picture)  # noqa: S314 - our own


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_picture_is_on_a_page(path):
    pages = "".join(page.read_text() for page in (DOCS / "concepts").glob("*.rst"))
    assert f"timelines/{path.stem}.svg" in pages


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_one_worker_at_a_time_is_inside(path):
    check(drawing["parsed"](path.read_text()))


def test_periods_of_a_worker_that_is_stopped():
    scene = drawing["parsed"](
        "made: today\nrows: A, B\n-1 A waits\n0.5 A enters\n1 A stopped 1.5\n4 A continues\n"
        "4.1 A leaves\n4.2 A notified\n4.3 A waits\n5 end\n"
    )
    assert [tuple(period) for period in drawing["periods"](scene, "A")] == [
        ("waits", "A", 0, 0.5),
        ("inside", "A", 0.5, 1),
        ("absent", "A", 1, 2.5),
        ("late", "A", 2.5, 4),
        ("late", "A", 4, 4.1),
        ("waits", "A", 4.3, 5),
    ]


def test_mark_of_two_events():
    scene = drawing["parsed"](
        "made: today\nrows: A, B\n0.5 A enters\n1 A stopped 1.5\n3 B enters\n4 A continues\n"
        "4.1 A notified\n4.2 B leaves\n4.3 A enters\n5 end\n"
    )
    assert [tuple(mark) for mark in drawing["marks"](scene)] == [
        (1, "A", "A is stopped (SIGSTOP)"),
        (3, "B", "B enters"),
        (4, "A", "A runs again and is notified of the loss"),
    ]


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", ["killed", "stopped", "failover"])
def test_scene_can_be_recorded_anew(name, tmp_path):
    program = DOCS / "timelines" / "record.py"
    command = [sys.executable, program, name, "--folder", tmp_path]
    subprocess.run(command, check=True, timeout=180)

    text = (tmp_path / f"{name}.txt").read_text()
    check(drawing["parsed"](text))
    ElementTree.fromstring(drawing["draw"](text))  # noqa: S314 - our own


def check(scene: Any) -> None:
    """Turns do not overlap, and a worker that is killed or stopped keeps its lock no longer."""
    found = sorted(
        (period.begin, period.end)
        for row in scene.rows
        for period in drawing["periods"](scene, row)
        if period.kind in ("inside", "absent")
    )
    for (_, end), (begin, _) in itertools.pairwise(found):
        assert begin >= end - DELAY
    events = [(event.row, event.what) for event in scene.events]
    if ("A", "stopped") in events:
        assert ("A", "notified") in events[events.index(("A", "continues")) :]
    if ("A", "killed") in events:
        assert events[-1][0] != "A"
    if ("Master", "killed") in events:
        after = events[events.index(("Master", "killed")) :]
        assert ("Replica", "promoted") in after
        assert "enters" in [what for _, what in after]
