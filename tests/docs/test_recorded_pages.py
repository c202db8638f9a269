"""The console sessions of the tutorial and the how-to pages are those of today's programs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")

DOCS = Path(__file__).resolve().parents[2] / "docs"
TUTORIAL = DOCS / "tutorial"
#: They take more than five seconds.
SLOW = ("demo", "who", "deploy")
NAMES = (
    *("demo", "server", "two processes", "a crash", "a loss", "asyncio", "fleet", "who"),
    *("cron", "deploy", "acl"),
)


@pytest.fixture(scope="module")
def record() -> Iterator[ModuleType]:
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module("record_pages")
    sys.path.remove(str(DOCS))


def on_the_pages(record: ModuleType) -> dict[str, str]:
    sessions: dict[str, str] = {}
    for page in record.pages():
        sessions |= record.sessions(page.read_text("utf-8"))
    return sessions


def test_pages_have_every_session(record: ModuleType) -> None:
    assert set(on_the_pages(record)) == set(record.SESSIONS) == set(NAMES)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOW)) for one in NAMES]
)
def test_recorded_session_has_the_words_of_a_new_one(record: ModuleType, name: str) -> None:
    then, now = on_the_pages(record)[name], record.recorded(name)

    assert set(record.shape(now)) == set(record.shape(then))


def test_every_program_is_on_a_page(record: ModuleType) -> None:
    text = "".join(page.read_text("utf-8") for page in record.pages())

    shown = {path.name for path in TUTORIAL.glob("*.py") if f"literalinclude:: {path.name}" in text}

    assert shown == {path.name for path in TUTORIAL.glob("*.py")}
