"""``with`` on a lock for tasks, ``async with`` on a lock for threads: errors with the remedy."""

import contextlib
import inspect
from typing import Any
from unittest.mock import create_autospec

import pytest

from redis_lock_decorators import Lease, RedisLock
from redis_lock_decorators.asyncio import Lease as AsyncLease
from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock


def run(body: Any) -> None:
    """Run a coroutine that never waits."""
    with contextlib.suppress(StopIteration):
        body.send(None)


async def enter_as_task(lock: Any) -> None:
    async with lock:
        pass


async def enter_stack_as_task(lock: Any) -> None:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(lock)


def test_async_with_on_the_lock_for_threads_names_the_other_module() -> None:
    with pytest.raises(TypeError, match=r"'async with': use RedisLock of .*\.asyncio$"):
        run(enter_as_task(RedisLock("x")))


def test_with_on_the_lock_for_tasks_names_the_other_statement() -> None:
    lock: Any = AsyncRedisLock("x")

    with pytest.raises(TypeError, match="does not support 'with': use 'async with', or"), lock:
        pass


def test_exit_stacks_refuse_the_wrong_kind() -> None:
    lock: Any = AsyncRedisLock("x")

    with pytest.raises((TypeError, AttributeError)), contextlib.ExitStack() as stack:
        stack.enter_context(lock)
    with pytest.raises((TypeError, AttributeError)):
        run(enter_stack_as_task(RedisLock("x")))


@pytest.mark.parametrize(
    ("kind", "own", "other"),
    [
        (RedisLock, contextlib.AbstractContextManager, contextlib.AbstractAsyncContextManager),
        (AsyncRedisLock, contextlib.AbstractAsyncContextManager, contextlib.AbstractContextManager),
    ],
)
def test_lock_is_a_context_manager_of_its_own_kind_only(kind: Any, own: Any, other: Any) -> None:
    assert isinstance(kind("x"), own)
    assert not isinstance(kind("x"), other)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [(RedisLock, ("__aenter__", "__aexit__")), (AsyncRedisLock, ("__enter__", "__exit__"))],
)
def test_methods_of_the_other_kind_are_missing(kind: Any, missing: tuple[str, ...]) -> None:
    for name in missing:
        assert not hasattr(kind, name)
        assert not hasattr(kind("x"), name)
        assert name not in dict(inspect.getmembers(kind("x")))
    assert create_autospec(kind)


def test_subclass_may_support_both_kinds() -> None:
    class Both(RedisLock):
        async def __aenter__(self) -> str:
            return "entered"

        async def __aexit__(self, *failure: object) -> None: ...

    run(enter_as_task(Both("x")))


@pytest.mark.parametrize("kind", [RedisLock, AsyncRedisLock])
def test_lock_as_a_decorator_names_the_decorator(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"by @redis_lock\(\"name\"\), or .* lock\.call\("):

        @kind("x")
        def work() -> None: ...


def test_lease_for_tasks_refuses_with() -> None:
    lease = object.__new__(AsyncLease)

    with pytest.raises(TypeError, match=r"of a RedisLock for asyncio .* use 'async with'$"), lease:  # type: ignore[attr-defined]
        pass
    assert not hasattr(lease, "__enter__")


def test_lease_for_threads_refuses_async_with() -> None:
    with pytest.raises(TypeError, match=r"of a RedisLock for threads .* use 'with', or"):
        run(enter_as_task(object.__new__(Lease)))
