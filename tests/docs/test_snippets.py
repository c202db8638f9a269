"""The Python code of all pages runs, from the first block of a page to the last."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import snippets
from support.fronts import LEGACY

from redis_lock_decorators.testing import LocalServer

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {
    page.relative_to(DOCS).with_suffix("").as_posix(): page
    for page in sorted(DOCS.rglob("*.rst"))
    if "_build" not in page.parts and snippets.blocks(page)
}
#: Pages whose code another test runs, as it needs a framework or is made of tests.
ELSEWHERE = {
    **dict.fromkeys(
        [f"how-to/{name}" for name in ("apscheduler", "celery", "dramatiq", "rq", "taskiq")],
        "tests/contrib/test_how_to_jobs.py",
    ),
    **dict.fromkeys(
        [f"how-to/{name}" for name in ("django", "fastapi", "flask")],
        "tests/contrib/test_web_how_to.py",
    ),
    "how-to/monitoring": "tests/integration/test_monitoring.py",
    "how-to/testing": "tests/fake/test_plugin.py",
}
#: What a page needs that is not installed with each version of redis-py.
NEEDED: dict[str, str] = {}
#: A session that is recorded by a program, and one that is not.
CONSOLE = re.compile(
    r"(?P<recorded>^\.\. recorded: .+\n\n)?^\.\. code-block:: console\n\n"
    r"(?P<text>(?: {4}.*\n|\n)+)",
    re.MULTILINE,
)

pytestmark = pytest.mark.skipif(LEGACY, reason="the pages are for a newer redis-py")


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


@pytest.mark.parametrize("name", sorted(set(PAGES) - set(ELSEWHERE)))
def test_code_of_the_page_runs(name: str, server: LocalServer, tmp_path: Path) -> None:
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    with server.client() as client:
        client.flushall()
    done = subprocess.run(
        [sys.executable, "-W", "error", snippets.__file__, str(PAGES[name])],
        cwd=tmp_path,
        env={
            **os.environ,
            "REDIS_URL": server.url,
            "REDIS_LOCK_CONNECTION": "",
            "PYTHONIOENCODING": "utf-8",
        },
        capture_output=True,
        encoding="utf-8",
        timeout=30,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ELSEWHERE)
def test_another_test_runs_the_code_of_the_page(name: str) -> None:
    test = (ROOT / ELSEWHERE[name]).read_text("utf-8")

    assert name in PAGES
    assert name.rpartition("/")[2] in test


def test_output_of_commands_is_recorded() -> None:
    by_hand = [
        f"{page.relative_to(DOCS)}: {line}"
        for page in DOCS.rglob("*.rst")
        for found in CONSOLE.finditer(page.read_text("utf-8"))
        for line in found["text"].splitlines()
        if not found["recorded"] and line.strip() and not line.strip().startswith(("$", "#", ">"))
    ]

    assert by_hand == []
