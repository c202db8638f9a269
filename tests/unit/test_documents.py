"""Documents that point to files name all of them."""

from __future__ import annotations

from pathlib import Path

DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"


def test_every_decision_is_in_the_index_with_a_unique_number() -> None:
    pages = sorted(page.name for page in DECISIONS.glob("[0-9]*.rst"))
    index = (DECISIONS / "README.rst").read_text()

    assert [page for page in pages if page not in index] == []
    assert len({page[:4] for page in pages}) == len(pages)
