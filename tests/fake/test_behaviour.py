"""The double behaves like a server: it passes the tests of the behaviour."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("redis.asyncio")
TESTS = pathlib.Path(__file__).resolve().parents[1]
#: At least so many tests must pass.
MANY = 550


def test_behaviour_is_that_of_a_server() -> None:
    command = (sys.executable, "-m", "pytest", "tests/behaviour", "--servers", "fake", "-q")
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--timeout", "60", "--tb", "short"],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= MANY
