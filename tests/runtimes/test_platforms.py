"""Locks work with the functions that Python has on Windows; what does not says so."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

import redis_lock_decorators
from redis_lock_decorators.testing import LocalServer

Write = Callable[[str], pathlib.Path]
SUPPORT = pathlib.Path(__file__).parents[1] / "support"
LIKE_WINDOWS = SUPPORT / "like_windows.py"
EVERY_MODULE = """
import importlib, pkgutil, redis_lock_decorators as package
for found in pkgutil.walk_packages(package.__path__, "redis_lock_decorators."):
    if ".contrib" not in found.name and not found.name.endswith(("__main__", "django_cache")):
        importlib.import_module(found.name)
print("imported")
"""
COMMAND = "from redis_lock_decorators.cli import main; main(prog_name='redis-lock')"
LOCAL_SERVER = """
from redis_lock_decorators.testing import LocalServer
LocalServer().start()
"""


def ran(
    program: pathlib.Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with what Windows has."""
    path = str(pathlib.Path(redis_lock_decorators.__file__).parents[1])
    return subprocess.run(
        [sys.executable, str(LIKE_WINDOWS), str(program), *arguments],
        env={**os.environ, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.fixture
def written(tmp_path: pathlib.Path) -> Write:
    """Write a program."""

    def write(text: str) -> pathlib.Path:
        path = tmp_path / "program.py"
        path.write_text(text)
        return path

    return write


def test_locks_of_every_kind_work(server: LocalServer) -> None:
    done = ran(SUPPORT / "everyday.py", str(server.port), f"windows-{os.getpid()}")

    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert done.stdout.endswith("all done\n")


def test_every_module_is_imported(written: Write) -> None:
    pytest.importorskip("click")

    done = ran(written(EVERY_MODULE))

    assert (done.returncode, done.stdout) == (0, "imported\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["ls", "on:no:platform"], 0, "no lock is held"),
        (["show", "x"], 1, "free"),
        (["run", "x", "--", "echo"], 2, "run needs a POSIX system"),
    ],
)
def test_commands_work_or_say_what_they_need(
    server: LocalServer, written: Write, arguments: list[str], code: int, text: str
) -> None:
    pytest.importorskip("click")

    done = ran(written(COMMAND), *arguments, REDIS_URL=server.url)

    assert done.returncode == code, done.stderr
    assert text in done.stdout + done.stderr


def test_a_local_server_says_what_it_needs(written: Write) -> None:
    done = ran(written(LOCAL_SERVER))

    assert "ServerFailed: local servers need a POSIX system" in done.stderr
