"""The console sessions in docs/reference/command-line.rst are those of today's program."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")

FILE = Path(__file__).parents[2] / "docs" / "record.py"
spec = importlib.util.spec_from_file_location("record", FILE)
assert spec is not None
assert spec.loader is not None
record = importlib.util.module_from_spec(spec)
spec.loader.exec_module(record)

#: They take more than five seconds.
SLOW = ("bench",)


def test_page_has_every_session() -> None:
    assert list(record.sessions(record.PAGE.read_text("utf-8"))) == list(record.SESSIONS)


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOW)) for one in record.SESSIONS],
)
def test_recorded_session_has_the_shape_of_a_new_one(name: str) -> None:
    on_the_page = record.shape(record.sessions(record.PAGE.read_text("utf-8"))[name])
    now = record.shape(record.recorded(name))

    if name == "doctor":  # on a busy machine it may find more
        assert set(on_the_page) <= set(now)
    else:
        assert now == on_the_page
