"""Generators and coroutines that hold a lock, and are collected in a reference cycle."""

from __future__ import annotations

import contextlib
import gc
import sys
import types
from collections.abc import Callable, Generator, Iterator
from typing import Any

#: A function of a lock; its generator holds the lock, and yields what it was given for it.
Holding = Callable[[Any], Generator[Any, None, None]]


def block(lock: Any) -> Generator[Any, None, None]:
    with lock as held:
        yield held


def lease_in_block(lock: Any) -> Generator[Any, None, None]:
    with lock.acquire() as lease:
        yield lease


def lease_by_hand(lock: Any) -> Generator[Any, None, None]:
    lease = lock.acquire()
    try:
        yield lease
    finally:
        lease.release()


def by_hand(lock: Any) -> Generator[Any, None, None]:
    """redis-py's lock, whose ``acquire`` returns True."""
    lock.acquire()
    try:
        yield None
    finally:
        lock.release()


def context_manager(lock: Any) -> Generator[Any, None, None]:
    @contextlib.contextmanager
    def entered() -> Iterator[Any]:
        with lock as held:
            yield held

    with entered() as held:
        yield held


def exit_stack(lock: Any) -> Generator[Any, None, None]:
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(lock)


def nested_generator(lock: Any) -> Generator[Any, None, None]:
    yield from block(lock)


def coroutine(lock: Any) -> Generator[Any, None, None]:
    """The steps of a coroutine; a task of it is collected the same way."""

    @types.coroutine
    def suspend(value: Any) -> Any:
        yield value

    async def hold() -> None:
        with lock as held:
            await suspend(held)

    return hold()  # type: ignore[return-value]


FORMS: list[Holding] = [block, context_manager, exit_stack, nested_generator, coroutine]
LEASE_FORMS: list[Holding] = [lease_in_block, lease_by_hand]


@contextlib.contextmanager
def no_unraisable() -> Iterator[None]:
    """Fail if a finalizer raises an exception."""
    before, ignored = sys.unraisablehook, []
    sys.unraisablehook = lambda failure: ignored.append(repr(failure.exc_value))
    try:
        yield
    finally:
        sys.unraisablehook = before
    assert ignored == []


def collect_in_cycle(generator: Any, *others: object) -> None:
    """Collect a suspended generator, which the caller no longer refers to, in a cycle.

    The generator is the only element of a list, from which it is removed.
    """
    cycle: list[Any] = [generator.pop(), *others]
    cycle.append(cycle)
    del cycle
    gc.collect()


def begun(generator: Any) -> tuple[list[Any], Any]:
    """Run a generator to its first yield; return it in a list, and what it yielded."""
    return [generator], generator.send(None)
