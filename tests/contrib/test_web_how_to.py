"""The code of the how-to texts is that of the examples, which tests run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The examples that a page shows.
PAGES = {
    "django": ("django_counter.py",),
    "fastapi": ("fastapi_counter.py", "starlette_counter.py"),
    "flask": ("flask_counter.py",),
}
_BLOCK = re.compile(r"^\.\. code-block:: python\n\n((?: {4}.*\n|\n)+)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_page_shows_parts_of_its_examples(page):
    text = (ROOT / "docs" / "how-to" / f"{page}.rst").read_text()
    code = "".join((ROOT / "examples" / "web" / name).read_text() for name in PAGES[page])

    parts = [
        part for block in _BLOCK.findall(text) for part in re.split(r"\n{2,}", block.strip("\n"))
    ]

    assert parts
    assert [part for part in parts if unindented(part) not in unindented(code)] == []


def unindented(code: str) -> str:
    return "\n".join(line.strip() for line in code.splitlines())
