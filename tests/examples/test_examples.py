"""The examples run and print what their docstrings say."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
NUMBERED = sorted(EXAMPLES.glob("[0-9][0-9]_*.py"))
NEEDED = {
    "06_django_style": "django",
    "07_flask_style": "flask",
    "09_cluster": "redis.cluster",  # not in redis-py 3.5
    "10_starlette_style": "starlette",
    "11_lock_class": "redis.asyncio",  # the same
    "12_fencing": "sqlalchemy",
    "13_celery": "celery",
    "18_apscheduler": "apscheduler",
    "15_rq": "rq",
    "16_dramatiq": "dramatiq",
    "17_taskiq": "taskiq_redis",
}
#: Their processes take several seconds.
SLOW = ("13_celery", "18_apscheduler", "15_rq", "16_dramatiq", "17_taskiq")
EXPECTED = "Prints, among others::"
COLUMNS = ("logins", "logouts", "expected", "counted", "lost", "seconds", "per second")

numbered = pytest.mark.parametrize("example", NUMBERED, ids=lambda path: path.stem)


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(path, marks=pytest.mark.slow if path.stem in SLOW else (), id=path.stem)
        for path in NUMBERED
    ],
)
def test_example_prints_what_its_docstring_says(example, tmp_path):
    skip_if_it_cannot_run(example)

    printed = run(example, cwd=tmp_path).splitlines()

    assert [line for line in expected(example) if not is_printed(line, printed)] == []


def test_examples_do_nothing_when_imported(tmp_path):
    paths = [str(example) for example in NUMBERED if can_run(example)]

    printed = run("-c", f"import runpy; [runpy.run_path(path) for path in {paths}]", cwd=tmp_path)

    assert printed == ""


@numbered
def test_example_is_in_the_table(example):
    table = (EXAMPLES / "README.rst").read_text()

    assert f"``python examples/{example.name}``" in table


def test_demo_loses_updates_only_without_the_lock(tmp_path):
    scenes = rows(run("-m", "redis_lock_decorators", "demo", cwd=tmp_path))

    bare, locked, killed = (
        scenes[name] for name in ("without lock", "with @redis_lock", "with a kill")
    )
    assert bare["lost"] > 0
    assert locked["lost"] == killed["lost"] == 0
    assert (locked["logins"], locked["logouts"]) == (bare["logins"], bare["logouts"])
    assert locked["counted"] == locked["expected"] == locked["logins"] - locked["logouts"]
    assert killed["counted"] == killed["expected"] == killed["logins"] - killed["logouts"]
    assert killed["seconds"] >= 2


def run(*arguments, cwd):
    """The output of a Python process; fails unless its exit status is 0."""
    removed = {"REDIS_URL", "REDIS_LOCK_CONNECTION"}  # the examples start their own servers
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def skip_if_it_cannot_run(example):
    if needed := NEEDED.get(example.stem):
        pytest.importorskip(needed)


def can_run(example):
    try:
        skip_if_it_cannot_run(example)
    except pytest.skip.Exception:
        return False
    return True


def expected(example):
    """The lines of the docstring's last part; "..." at the end of a line matches any text."""
    docstring = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8")))
    lines = [line.strip() for line in docstring.partition(EXPECTED)[2].splitlines()]
    assert any(lines), f"{example.name} has no part {EXPECTED!r}"
    return [line for line in lines if line]


def is_printed(line, printed):
    if line.endswith("..."):
        return any(found.startswith(line.removesuffix("...")) for found in printed)
    return line in printed


def rows(printed):
    """The demo's table, by scene and by column."""
    lines = [(line[:16].strip(), line[16:].split()) for line in printed.splitlines()]
    return {
        scene: dict(zip(COLUMNS, map(float, numbers), strict=True))
        for scene, numbers in lines
        if scene and len(numbers) == len(COLUMNS)
    }
