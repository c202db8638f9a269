"""The statements for PostgreSQL on the page of fences, on a real server."""

from __future__ import annotations

import re
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "fences.rst"
BLOCK = re.compile(r"(?m)^\.\. code-block:: sql\n\n((?:    .*\n|\n(?=    ))+)")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    pgserver = pytest.importorskip("pgserver", reason="pgserver is in the extra frameworks")
    server = pgserver.get_server(tmp_path / "data", cleanup_mode="stop")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def statements() -> tuple[str, str]:
    """The one that creates the table, and the one that writes."""
    (found,) = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    create, write, _ = (one.strip() for one in textwrap.dedent(found).split(";"))
    return create, write


def row(text: str, fence: int) -> dict[str, Any]:
    return {"id": 7, "text": text, "fence": fence}


def test_late_write_is_refused(url: str, statements: tuple[str, str]) -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is in the extra frameworks")
    create, write = statements
    first, second = 1_700_000_000_000_000, 1_700_000_000_000_001

    with psycopg.connect(url, autocommit=True) as database:
        database.execute(create)
        counts = [
            database.execute(write, row(text, fence)).rowcount
            for text, fence in [("draft", first), ("final", second), ("late", first)]
        ]
        kept = database.execute("SELECT text, fence FROM report").fetchall()

    assert counts == [1, 1, 0]
    assert kept == [("final", second)]


def test_write_waits_for_a_concurrent_one(url: str, statements: tuple[str, str]) -> None:
    psycopg = pytest.importorskip("psycopg", reason="psycopg is in the extra frameworks")
    create, write = statements
    counts: list[int] = []

    def write_late() -> None:
        with psycopg.connect(url, autocommit=True) as other:
            counts.append(other.execute(write, row("late", 1)).rowcount)

    with psycopg.connect(url) as database:
        database.execute(create)
        database.execute(write, row("draft", 1))
        database.commit()
        database.execute(write, row("final", 2))
        late = threading.Thread(target=write_late)
        late.start()
        late.join(0.2)
        waited = late.is_alive()
        database.commit()
        late.join()

    assert waited
    assert counts == [0]
