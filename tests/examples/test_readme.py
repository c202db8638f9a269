"""The README's first program and the code in its table work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from redis_lock_decorators import Locks
from redis_lock_decorators.testing import LocalServer

README = Path(__file__).resolve().parents[2] / "README.rst"
#: What completes a literal of the table to a statement, by its first characters.
REST = {
    "@": "def charge(order_id, invoice_id, pk, source, target, self, sku): ...\n",
    "with ": "    pass\n",
}


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


def test_first_program_runs_unchanged(server, tmp_path):
    program = dedent(re.search(r"\.\. code-block:: python\n\n((?: {4}.*\n|\n)+)", text())[1])

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "REDIS_URL": server.url, "REDIS_LOCK_CONNECTION": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "one process at a time charges order 42\n", done.stderr


def test_code_in_the_table_is_valid(server):
    locks = Locks(client=server.client())
    names = {
        "RedisLock": locks.lock,
        "force_release": locks.force_release,
        "redis_lock": locks.redis_lock,
    }
    exec("@redis_lock('order:{order_id}')\ndef charge(order_id): ...\n", names)  # noqa: S102

    executed = [literal for literal in literals() if run(literal, names)]

    assert len(executed) >= 14, executed


def run(literal: str, names: dict[str, object]) -> bool:
    """Run a line of the table if it needs only this package; return whether it was run."""
    if not re.match(r"@?redis_lock\(|with RedisLock|(RedisLock|force_release|charge)\b", literal):
        return False
    rest = next((more for start, more in REST.items() if literal.startswith(start)), "")
    exec(f"{literal}\n{rest}", dict(names))  # noqa: S102
    return True


def literals() -> list[str]:
    """The literals in the right-hand column of the table."""
    table = text().partition("    - Write ...\n")[2].partition("\n\n")[0]
    cells = re.split(r"^  \* - .*$", table, flags=re.MULTILINE)
    return [literal for cell in cells for literal in re.findall(r"``(.+?)``", cell)]


def text() -> str:
    return README.read_text(encoding="utf-8")
