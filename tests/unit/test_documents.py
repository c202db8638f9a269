"""Documents that point to files name all of them, and none that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs" / "decisions"
FOLDERS = ("redis_lock_decorators", "tests", "docs", "benchmarks", "examples")
FILES = [path.as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]


def test_every_decision_is_in_the_index_with_a_unique_number() -> None:
    pages = sorted(page.name for page in DECISIONS.glob("[0-9]*.rst"))
    index = (DECISIONS / "README.rst").read_text()

    assert [page for page in pages if page not in index] == []
    assert len({page[:4] for page in pages}) == len(pages)


@pytest.mark.parametrize("name", ["CONTRIBUTING.rst", "docs/reference/glossary.rst"])
def test_every_file_that_is_named_exists(name: str) -> None:
    text = (ROOT / name).read_text()
    named = re.findall(r"``([\w/]+\.(?:py|lua))``", text)

    assert named
    assert [file for file in named if not any(path.endswith(f"/{file}") for path in FILES)] == []
