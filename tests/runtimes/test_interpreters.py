"""Ways to run Python: from a zip archive, without assertions, with all checks."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

import redis_lock_decorators

PACKAGE = pathlib.Path(redis_lock_decorators.__file__).parent
#: Uses every kind of lock, in threads and on an event loop, with waits, renewals and losses.
PROGRAM = pathlib.Path(__file__).parents[1] / "support" / "everyday.py"


def ran(
    port: int, *options: str, path: object = PACKAGE.parent, executable: str = sys.executable
) -> str:
    """The output of the program; fails unless it succeeds."""
    done = subprocess.run(
        [executable, *options, str(PROGRAM), str(port), f"everyday-{os.getpid()}"],
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The package in a zip file."""
    path = tmp_path_factory.mktemp("zip") / "program.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for file in PACKAGE.rglob("*"):
            if file.is_file() and file.suffix != ".pyc":
                packed.write(file, file.relative_to(PACKAGE.parent))
    return path


def test_package_works_from_a_zip_archive(server, archive):
    printed = ran(server.port, path=archive)

    assert f"imported from {archive}" in printed
    assert printed.endswith("all done\n")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["-X", "dev", "-W", "error"], id="with every check"),
        pytest.param(["-O"], id="without assertions"),
        pytest.param(["-OO"], id="without docstrings", marks=pytest.mark.slow),
    ],
)
def test_package_works_with_interpreter_options(server, options):
    assert ran(server.port, *options).endswith("all done\n")
