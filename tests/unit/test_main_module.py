"""The main module of a program has one name in each of its processes."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
import multiprocessing
import sys

from redis_lock_decorators import redis_lock
from redis_lock_decorators._rules.callables import full_name


class Model:
    class Field:
        pass

    def __call__(self):
        pass


class Shown:
    def __str__(self):
        return f"shown with {Model}"


def wrapped(function):
    def wrapper(*args):
        return function(*args)

    wrapper.__module__, wrapper.__qualname__ = function.__module__, function.__qualname__
    wrapper.__wrapped__ = function
    return wrapper


@redis_lock("{function}")
def named():
    pass


@redis_lock
def bare():
    pass


@redis_lock("{function}")
@wrapped
def borrowed():
    pass


@redis_lock
def first(value):
    pass


@redis_lock("{value!r:_>40}")
def formatted(value):
    pass


called = redis_lock("{function}")(Model())


def names():
    locks = [
        *(one.lock_for() for one in (named, bare, borrowed, called)),
        *(first.lock_for(value) for value in (Model, Model.Field, [Model], list[Model], Shown())),
        *(formatted.lock_for(value) for value in (Model, [Model])),
    ]
    return [lock._names[0] for lock in locks]


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(names())
    else:
        with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
            print(pool.apply(names))
"""


def names_of(home: Path, *command: str) -> list[str]:
    """Return the lock names that a program prints."""
    ran = subprocess.run(
        [sys.executable, *command], cwd=home, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    names: list[str] = ast.literal_eval(ran.stdout)
    return names


@pytest.fixture
def home(tmp_path: Path) -> Path:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "job.py").write_text(JOB)
    (tmp_path / "script.py").write_text(JOB)
    return tmp_path


def expected(module: str) -> list[str]:
    shown = [f"<class '{module}.Model'>", f"[<class '{module}.Model'>]"]
    return [
        *(f"{module}.{name}" for name in ("named", "bare", "borrowed", "Model")),
        *(shown[0], f"<class '{module}.Model.Field'>", shown[1], f"list[{module}.Model]"),
        f"shown with {shown[0]}",
        *(text.rjust(40, "_") for text in shown),
    ]


@pytest.mark.parametrize("start", [[], ["spawn"], ["forkserver"], ["fork"]], ids=str)
def test_script_and_its_children_use_the_same_names(home: Path, start: list[str]) -> None:
    assert names_of(home, "script.py", *start) == expected("__main__")


@pytest.mark.parametrize("start", [[], ["spawn"], ["forkserver"], ["fork"]], ids=str)
def test_module_that_is_run_has_the_names_of_the_imported_one(home: Path, start: list[str]) -> None:
    assert names_of(home, "-m", "shop.job", *start) == expected("shop.job")


def test_imported_module_has_its_own_name(home: Path) -> None:
    program = "from shop.job import names; print(names())"

    assert names_of(home, "-c", program) == expected("shop.job")


def test_profiler_that_runs_a_script_does_not_lend_it_its_name(home: Path) -> None:
    program = "import runpy; runpy.run_path('script.py', run_name='__main__')"
    runner = home / "profiler.py"
    runner.write_text(program)

    assert names_of(home, "-m", "profiler") == expected("__main__")
