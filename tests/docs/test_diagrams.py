"""The pictures of docs/concepts are those that the program draws from their texts."""

from __future__ import annotations

import pathlib
import runpy
from xml.etree import ElementTree

import pytest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
TEXTS = sorted((DOCS / "diagrams").glob("*.txt"))
draw = runpy.run_path(str(DOCS / "draw_sequences.py"))["draw"]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_picture_is_drawn_from_its_text(path):
    picture = path.with_suffix(".svg").read_text()
    assert picture == draw(path.read_text()), "run python docs/draw_sequences.py"
    ElementTree.fromstring(picture)  # noqa: S314 - our own


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_picture_is_on_a_page(path):
    pages = "".join(page.read_text() for page in (DOCS / "concepts").glob("*.rst"))
    assert f"diagrams/{path.stem}.svg" in pages


def test_wrong_line_is_refused():
    with pytest.raises(ValueError, match="no line of a diagram: A sends B"):
        draw("actors: A, B\nA sends B")
