"""The code of the how-to pages for task queues runs, line by line in one module."""

from __future__ import annotations

import re
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest
from support.fronts import LEGACY

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
#: The pages and the packages that they need.
NEEDED = {
    "apscheduler": ("apscheduler",),
    "celery": ("celery",),
    "dramatiq": ("dramatiq",),
    "rq": ("rq",),
    "taskiq": ("taskiq", "taskiq_redis"),
}

pytestmark = pytest.mark.skipif(LEGACY, reason="the frameworks need a newer redis-py")


@pytest.mark.parametrize("page", NEEDED)
def test_code_of_the_page_runs(page: str, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDED[page]:
        pytest.importorskip(package)
    monkeypatch.setenv("REDIS_URL", server.url)
    text = (HOW_TO / f"{page}.rst").read_text()
    blocks = re.findall(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", text, re.MULTILINE)

    module = types.ModuleType(f"how_to_{page}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks:
        exec(compile(textwrap.dedent(block), page, "exec"), vars(module))  # noqa: S102

    assert blocks
