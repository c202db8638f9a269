"""The code of the pages for those who come from another library runs, and they are complete."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from redis_lock_decorators.compat import pottery, python_redis_lock

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGES = {"from-python-redis-lock": python_redis_lock, "from-pottery": pottery}


@pytest.mark.parametrize("page", PAGES)
def test_code_of_the_page_runs(page: str, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", server.url)
    text = (HOW_TO / f"{page}.rst").read_text("utf-8")
    blocks = re.findall(r"^\.\. code-block:: python\n\n((?: {4}.*\n|\n)+)", text, re.MULTILINE)

    variables: dict[str, Any] = {"__name__": "how_to"}
    for block in blocks:
        exec(compile(textwrap.dedent(block), page, "exec"), variables)  # noqa: S102

    assert len(blocks) >= 2


def test_backend_of_the_page_exists() -> None:
    pytest.importorskip("django_redis")
    text = (HOW_TO / "from-python-redis-lock.rst").read_text("utf-8")
    (backend,) = re.findall(r'"BACKEND": "([\w.]+)"', text)
    module, _, name = backend.rpartition(".")

    path = Path(__file__).parents[2].joinpath(*module.split(".")).with_suffix(".py")

    assert f"class {name}(" in path.read_text("utf-8")
