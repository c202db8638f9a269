"""The public API changes only on purpose: ``support/public_api.txt`` lists all of it.

After an intended change: ``PUBLIC_API=write pytest tests/unit/test_public_api.py``.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

LIST = Path(__file__).parent.parent / "support" / "public_api.txt"
MODULES = (
    *("redis_lock_decorators", "redis_lock_decorators.asyncio"),
    *("redis_lock_decorators.lock", "redis_lock_decorators.asyncio.lock"),
    *("redis_lock_decorators.diagnosis", "redis_lock_decorators.inspection"),
    *("redis_lock_decorators.events", "redis_lock_decorators.testing"),
    "redis_lock_decorators.testing.fake",
    "redis_lock_decorators.compat.pottery",
    "redis_lock_decorators.compat.python_redis_lock",
    "redis_lock_decorators.instrumentation.opentelemetry",
    "redis_lock_decorators.instrumentation.prometheus",
)
#: Modules and what they need, which is not installed in each environment.
INTEGRATIONS = {
    f"redis_lock_decorators.contrib.{name}": name
    for name in (
        *("apscheduler", "celery", "django", "dramatiq", "fastapi", "flask"),
        *("rq", "starlette", "taskiq"),
    )
}
MISSING = tuple(name for name, needed in INTEGRATIONS.items() if find_spec(needed) is None)
MODULES += tuple(name for name in INTEGRATIONS if name not in MISSING)


def lines() -> Iterator[str]:
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in sorted(module.__all__):
            yield from described(f"{module_name}.{name}", getattr(module, name))


def described(path: str, thing: object) -> Iterator[str]:
    """One line for a public object and for each of its members."""
    if not inspect.isclass(thing):
        yield path + (signature(thing) if callable(thing) else "")
        return
    yield f"{path}{constructor(thing)}"
    for name in sorted(dir(thing)):
        if name.startswith("_") or hasattr(OSError, name) or is_of_a_framework(thing, name):
            continue
        member = inspect.getattr_static(thing, name)
        member = getattr(member, "__func__", member)
        yield f"{path}.{name}" + (signature(member) if callable(member) else "")


def signature(function: Callable[..., object]) -> str:
    return str(inspect.signature(function)).replace("pathlib._local.", "pathlib.")  # Python 3.13


def is_of_a_framework(kind: type, name: str) -> bool:
    """Whether an integration inherits this member: each version of the framework has others."""
    owner = next(base for base in kind.__mro__ if name in vars(base))
    return owner.__module__.partition(".")[0] in INTEGRATIONS.values()


def constructor(kind: type) -> str:
    if issubclass(kind, enum.Enum):  # each Python has another one
        return ""
    try:
        return signature(kind)
    except ValueError:  # a builtin has no signature
        return ""


def test_public_names_and_signatures_are_those_on_the_list() -> None:
    now = list(lines())
    if os.environ.get("PUBLIC_API") == "write":
        LIST.write_text("\n".join(now) + "\n")

    listed = [
        line
        for line in LIST.read_text().splitlines()
        if not line.startswith(tuple(f"{name}." for name in MISSING))
    ]

    assert sorted(set(listed) - set(now)) == [], "missing or changed"
    assert sorted(set(now) - set(listed)) == [], "new, or changed"


@pytest.mark.parametrize("module_name", MODULES)
def test_everything_public_is_documented(module_name: str) -> None:
    module = importlib.import_module(module_name)

    assert module.__doc__
    assert [name for name in module.__all__ if not inspect.getdoc(getattr(module, name))] == []
