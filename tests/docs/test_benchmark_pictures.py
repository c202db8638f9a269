"""The pictures of docs/reference/benchmarks.rst show the figures of its tables."""

from __future__ import annotations

import importlib
import pathlib
import subprocess
import sys
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference"


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("contention.pictures")


@pytest.mark.parametrize("name", ["contended.svg", "waiting.svg", "held.svg"])
def test_picture_is_drawn_from_the_page(pictures, name):
    page = (FOLDER / "benchmarks.rst").read_text(encoding="utf-8")
    picture = (FOLDER / name).read_text(encoding="utf-8")

    assert picture == pictures.PICTURES[name](page), "run benchmarks/contention/pictures.py"
    ElementTree.fromstring(picture)  # noqa: S314 - our own
    assert f".. image:: {name}" in page


def test_tables_are_read_as_they_are_written(pictures, tmp_path):
    report = pictures.report
    page = tmp_path / "page.rst"
    page.write_text("Before\n\n.. x begin\n.. x end\n\nAfter\n", encoding="utf-8")
    table = report.markup("4 × 4 threads", [("ours", "1", "2")], ("", "rate", "ratio"))

    report.put(page, f"On a machine.\n\n{table}\nA sentence.", "x")

    text = page.read_text(encoding="utf-8")
    row = {"": "ours", "rate": "1", "ratio": "2"}
    assert report.read(text, "x") == ("On a machine", {"4 × 4 threads": [row]})
    assert text.startswith("Before\n")
    assert "A sentence.\n\n.. x end\n" in text
    assert text.endswith("After\n")


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_held_locks_are_measured(pictures, tmp_path):
    page = tmp_path / "benchmarks.rst"
    page.write_text(".. held locks begin\n.. held locks end\n", encoding="utf-8")
    program = ROOT / "benchmarks" / "held_many.py"

    command = [sys.executable, program, "--most", "100", "--write", tmp_path]
    subprocess.run(command, check=True, timeout=180)

    _, tables = pictures.report.read(page.read_text(encoding="utf-8"), "held locks")
    assert [row["locks"] for row in tables["held locks"]] == ["10", "25", "50", "75", "100"]
    ElementTree.parse(tmp_path / "held.svg")  # noqa: S314 - our own
