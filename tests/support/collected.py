"""Generators and coroutines that hold a lock, and are collected in a reference cycle."""

from __future__ import annotations

import contextlib
import gc
import sys
import types
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import Any

#: What a generator does before it releases its lock.
CleanUp = Callable[[], object]
#: A function of a lock; its generator holds the lock, and yields what it was given for it.
Holding = Callable[[Any, CleanUp], Generator[Any, None, None]]
AsyncHolding = Callable[[Any, CleanUp], AsyncGenerator[Any, None]]


def block(lock: Any, clean_up: CleanUp) -> Generator[Any, None, None]:
    with lock as held:
        try:
            yield held
        finally:
            clean_up()


def lease_in_block(lock: Any, clean_up: CleanUp) -> Generator[Any, None, None]:
    yield from block(lock.acquire(), clean_up)


def lease_by_hand(lock: Any, clean_up: CleanUp) -> Generator[Any, None, None]:
    lease = lock.acquire()
    try:
        yield lease
    finally:
        clean_up()
        lease.release()


def by_hand(lock: Any, clean_up: CleanUp) -> Generator[Any, None, None]:
    """redis-py's lock, whose ``acquire`` returns True."""
    lock.acquire()
    try:
        yield None
    finally:
        clean_up()
        lock.release()


def context_manager(lock: Any, clean_up: CleanUp) -> Generator[Any, None, None]:
    with contextlib.contextmanager(block)(lock, clean_up) as held:
        yield held


def exit_stack(lock: Any, clean_up: CleanUp) -> Generator[Any, None, None]:
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(lock)
        stack.callback(clean_up)
        yield held


def nested_generator(lock: Any, clean_up: CleanUp) -> Generator[Any, None, None]:
    yield from block(lock, clean_up)


def coroutine(lock: Any, clean_up: CleanUp) -> Generator[Any, None, None]:
    """The steps of a coroutine; a task of it is collected the same way."""

    @types.coroutine
    def suspend(value: Any) -> Any:
        yield value

    async def hold() -> None:
        with lock as held:
            try:
                await suspend(held)
            finally:
                clean_up()

    return hold()  # type: ignore[return-value]


async def async_block(lock: Any, clean_up: CleanUp) -> AsyncGenerator[Any, None]:
    async with lock as held:
        try:
            yield held
        finally:
            clean_up()


async def async_lease_in_block(lock: Any, clean_up: CleanUp) -> AsyncGenerator[Any, None]:
    async with await lock.acquire() as lease:
        try:
            yield lease
        finally:
            clean_up()


async def async_lease_by_hand(lock: Any, clean_up: CleanUp) -> AsyncGenerator[Any, None]:
    lease = await lock.acquire()
    try:
        yield lease
    finally:
        clean_up()
        await lease.release()


async def async_context_manager(lock: Any, clean_up: CleanUp) -> AsyncIterator[Any]:
    async with contextlib.asynccontextmanager(async_block)(lock, clean_up) as held:
        yield held


async def async_exit_stack(lock: Any, clean_up: CleanUp) -> AsyncGenerator[Any, None]:
    async with contextlib.AsyncExitStack() as stack:
        held = await stack.enter_async_context(lock)
        stack.callback(clean_up)
        yield held


FORMS: list[Holding] = [block, context_manager, exit_stack, nested_generator, coroutine]
LEASE_FORMS: list[Holding] = [lease_in_block, lease_by_hand]
ASYNC_FORMS: list[Any] = [
    *(async_block, async_context_manager, async_exit_stack),
    *(async_lease_in_block, async_lease_by_hand),
]


def begun(generator: Any) -> tuple[list[Any], Any]:
    """Run a generator to its first yield; return it in a list, and what it yielded."""
    return [generator], generator.send(None)


def collect_in_cycle(generator: list[Any], *others: object) -> None:
    """Collect a suspended generator in a cycle; it is removed from its list."""
    cycle: list[Any] = [generator.pop(), *others]
    cycle.append(cycle)
    del cycle
    gc.collect()


@contextlib.contextmanager
def no_unraisable() -> Iterator[None]:
    """Fail if a finalizer raises an exception."""
    ignored: list[str] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda failure: ignored.append(repr(failure.exc_value))
    try:
        yield
    finally:
        sys.unraisablehook = before
    assert ignored == []


@contextlib.contextmanager
def finalized_generators() -> Iterator[list[Any]]:
    """Collect the async generators that an event loop would close, when they are collected."""
    found: list[Any] = []
    before = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(finalizer=found.append)
    try:
        yield found
    finally:
        sys.set_asyncgen_hooks(*before)
