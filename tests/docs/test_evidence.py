"""docs/concepts/comparison.rst says of locks of other libraries what they do."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "evidence"
MODULES = {
    "redis_py": "redis",
    "python_redis_lock": "redis_lock",
    "python_redis_lock_renewed": "redis_lock",
    "pottery": "pottery",
    "this_package": "redis_lock_decorators",
}
#: The situations that take no more than a second or two.
QUICK = ["loss", "lost_release", "reentrancy", "fence"]

pytestmark = pytest.mark.timeout(300)


def measured(name: str, *situations: str) -> list[str]:
    pytest.importorskip(MODULES[name])
    command = [sys.executable, str(FOLDER / "measure.py"), name, *situations]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=250)
    return done.stdout.splitlines()


def recorded(name: str) -> list[str]:
    return (FOLDER / f"{name}.txt").read_text().splitlines()


@pytest.mark.parametrize("name", MODULES)
def test_short_situations(name):
    lines = [line for line in recorded(name) if line.partition(":")[0] in QUICK]

    assert measured(name, *QUICK) == lines


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_all_situations(name):
    assert measured(name) == recorded(name)
