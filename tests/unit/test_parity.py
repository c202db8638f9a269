"""The blocking and the asyncio API have the same names, signatures and docstrings."""

from __future__ import annotations

import inspect

import pytest

import redis_lock_decorators
import redis_lock_decorators.asyncio
from redis_lock_decorators.asyncio.lock import Lock

BLOCKING, ASYNC = redis_lock_decorators, redis_lock_decorators.asyncio
#: The methods of locks and leases that send requests.
AWAITED = ("acquire", "release", "extend", "reacquire", "owned", "locked", "owner")
AWAITED += ("force_release", "call")
TWINS = {"__enter__": "__aenter__", "__exit__": "__aexit__"}


def public(kind: type) -> list[str]:
    own = [name for name in dir(kind) if not name.startswith("_")]
    return own + [name for name in TWINS if hasattr(kind, name)]


def summary(thing: object) -> str:
    """The first line of a docstring, with "task" for "thread"."""
    return (inspect.getdoc(thing) or "").partition("\n")[0].replace("thread", "task")


@pytest.mark.parametrize("name", ASYNC.__all__)
def test_every_async_name_has_a_blocking_twin(name: str) -> None:
    blocking, twin = getattr(BLOCKING, name), getattr(ASYNC, name)

    assert summary(blocking) == summary(twin)
    assert list(inspect.signature(blocking).parameters) == list(inspect.signature(twin).parameters)


@pytest.mark.parametrize("kind", ["RedisLock", "Lease"])
def test_every_method_has_its_twin(kind: str) -> None:
    blocking, twin = getattr(BLOCKING, kind), getattr(ASYNC, kind)

    assert {TWINS.get(name, name) for name in public(blocking)} == {
        name for name in dir(twin) if not name.startswith("_") or name in TWINS.values()
    }
    for name in public(blocking):
        ours, theirs = getattr(blocking, name), getattr(twin, TWINS.get(name, name))
        assert summary(ours) == summary(theirs)
        if inspect.isfunction(ours):
            parameters = inspect.signature(ours).parameters.values()
            twins = inspect.signature(theirs).parameters.values()
            assert [(p.name, p.kind, p.default) for p in parameters] == [
                (p.name, p.kind, p.default) for p in twins
            ]


def test_locks_have_the_same_options() -> None:
    blocking = inspect.signature(BLOCKING.RedisLock).parameters
    twin = inspect.signature(ASYNC.RedisLock).parameters

    assert blocking == twin


@pytest.mark.parametrize(
    "kind", [ASYNC.RedisLock, ASYNC.Lease, Lock], ids=lambda kind: kind.__name__
)
def test_awaited_methods_are_coroutine_functions(kind: type) -> None:
    """Of a class and of an object, for programs that check before they await."""
    names = ["__aenter__", "__aexit__"] + [name for name in AWAITED if hasattr(kind, name)]
    assert len(names) > 3

    instance = object.__new__(kind)
    for name in names:
        assert inspect.iscoroutinefunction(getattr(kind, name)), name
        assert inspect.iscoroutinefunction(getattr(instance, name)), name
