"""The pytest plugin, in test runs of users."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("redis.asyncio")
ROOT = pathlib.Path(__file__).resolve().parents[2]
PLUGIN = "redis_lock_decorators.testing.pytest_plugin"


def run_tests(folder: pathlib.Path, text: str) -> str:
    """The output of a test run on one file, which must succeed."""
    (folder / "test_users.py").write_text(text)
    environment = {**os.environ, "REDIS_URL": "redis://192.0.2.1", "PYTHONPATH": str(ROOT)}
    # It may be installed, or not: load it once.
    plugins = ("-p", "no:redis_lock_decorators", "-p", PLUGIN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-p", "no:cacheprovider", "-q", "--rootdir=."],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_code_of_the_how_to_page_runs(tmp_path: pathlib.Path) -> None:
    text = (ROOT / "docs" / "how-to" / "testing.rst").read_text()
    blocks = re.findall(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", text, re.MULTILINE)

    output = run_tests(tmp_path, "".join(map(textwrap.dedent, blocks)))

    assert "9 passed" in output


def test_each_test_has_a_double_of_its_own(tmp_path: pathlib.Path) -> None:
    test = """
        def test_{}(redis_locks):
            assert RedisLock("a", acquire_time=0).acquire() is not None
            redis_locks.keep_busy("a")
    """
    tests = textwrap.dedent(test.format("first") + test.format("second"))

    output = run_tests(tmp_path, f"from redis_lock_decorators import RedisLock\n{tests}")

    assert "2 passed" in output


def test_plugin_is_found_when_the_package_is_installed() -> None:
    text = (ROOT / "pyproject.toml").read_text()

    assert f'[project.entry-points.pytest11]\nredis_lock_decorators = "{PLUGIN}"\n' in text
