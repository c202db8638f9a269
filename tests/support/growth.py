"""Counts of the package's objects in this process and on its server, before and after many uses.

``ENDINGS`` are the ways in which a use can end; each is tested with all operations.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import redis
from redis.exceptions import LockError

from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._shared import settings
from support.fronts import LEGACY
from support.growth_operations import OPERATIONS, Operation, Use
from support.leftovers import PATIENCE

#: The package whose objects are counted.
OURS = "redis_lock_decorators"
#: This many more of a kind are no growth: pooled connections, deferred clean-up.
SLACK = 20
#: The number of concurrent uses.
CONCURRENT = 10
#: The expire of a lock that is not released, in seconds.
SHORT = 0.3

Ending = Callable[[Operation, Use], Awaitable[None]]

_numbers = itertools.count()


# Endings of a use


async def released(operation: Operation, use: Use) -> None:
    held = await operation.acquire(use)
    assert held is not None
    await operation.leave(use, held)


async def lost(operation: Operation, use: Use) -> None:
    held = await operation.acquire(use)
    use.direct.delete(use.key)
    with suppress(LockError):
        await operation.leave(use, held)


async def abandoned(operation: Operation, use: Use) -> None:
    assert await operation.acquire(replace(use, expire=SHORT)) is not None


async def expired(operation: Operation, use: Use) -> None:
    use = replace(use, expire=SHORT)
    held = await operation.acquire(use)
    use.direct.delete(use.key)
    await use.front.sleep(0.05)  # renewed leases are reported lost, others expire
    assert held is not None


async def timed_out(operation: Operation, use: Use) -> None:
    use.direct.set(use.key, "another", px=60_000)
    assert await operation.acquire(replace(use, wait=0.02)) is None
    use.direct.delete(use.key)


async def handed_off(operation: Operation, use: Use) -> None:
    found = await use.front.elsewhere(*[partial(released, operation, use)] * 3)
    assert found == [None] * 3, found


async def left_by_another(operation: Operation, use: Use) -> None:
    held = await operation.acquire(use)
    with suppress(LockError):
        (error,) = await use.front.elsewhere(partial(operation.leave, use, held))
        if error is not None:  # only its holder may release it, for example by its own token
            assert isinstance(error, LockError), error
            await operation.leave(use, held)


async def acquired_by_another(operation: Operation, use: Use) -> None:
    """A thread or task acquires it and ends."""
    short = replace(use, expire=SHORT)
    (held,) = await use.front.elsewhere(partial(operation.acquire, short))
    assert held is not None
    assert not isinstance(held, BaseException), held


async def client_gone(operation: Operation, use: Use) -> None:
    client = use.new_client()
    await released(operation, replace(use, client=client))
    if use.is_async:
        await client.aclose()


async def cancelled(operation: Operation, use: Use) -> None:
    use.direct.set(use.key, "another", px=60_000)
    waiter = asyncio.ensure_future(operation.acquire(use))
    await asyncio.sleep(0.005)
    waiter.cancel()
    assert isinstance((await asyncio.gather(waiter, return_exceptions=True))[0], BaseException)
    use.direct.delete(use.key)


async def cancelled_inside(operation: Operation, use: Use) -> None:
    async def work() -> None:
        held = await operation.acquire(use)
        try:
            await asyncio.sleep(10)
        finally:
            await operation.leave(use, held)

    worker = asyncio.ensure_future(work())
    await asyncio.sleep(0.01)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def _connected() -> None:
    """Wait until no connection is being opened or closed, which takes several steps."""
    await asyncio.sleep(0.01)
    while any("_outcome" in repr(task) for task in asyncio.all_tasks()):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)


async def loop_closed(operation: Operation, use: Use) -> None:
    """An event loop is closed while a lock is held, after its client was closed."""

    def run() -> None:
        loop = asyncio.new_event_loop()
        try:
            own = replace(use, client=use.new_client(), expire=SHORT)
            held = loop.run_until_complete(operation.acquire(own))
            loop.run_until_complete(own.client.aclose())
            loop.run_until_complete(_connected())
            del held
        finally:
            loop.close()

    await asyncio.to_thread(run)


ENDINGS: tuple[Ending, ...] = (
    *(released, lost, abandoned, expired, timed_out, handed_off),
    *(left_by_another, acquired_by_another, client_gone),
)
#: Endings that only tasks have.
TASK_ENDINGS: tuple[Ending, ...] = () if LEGACY else (cancelled, cancelled_inside, loop_closed)


# Counts


@contextmanager
def no_records() -> Iterator[None]:
    """Disable logging: pytest keeps every record, with its error and everything it refers to."""
    logger = logging.getLogger(OURS)
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False


def counted(direct: redis.Redis) -> Counter[str]:
    """The counts of our objects by type, and of threads, descriptors, connections and keys."""
    _empty_caches()
    gc.collect()
    found = Counter(
        f"{type(one).__module__}.{type(one).__qualname__}"
        for one in gc.get_objects()
        if str(type(one).__module__).startswith(OURS)
    )
    found["threads"] = threading.active_count()
    found["descriptors"] = len(os.listdir("/dev/fd"))
    found["connections at the server"] = len(direct.client_list())
    found["keys"] = sum(
        not one.endswith((b":fence", b":released")) for one in direct.scan_iter(count=1000)
    )
    return found


def _empty_caches() -> None:
    """Empty the bounded caches."""
    settings._checked.cache_clear()
    for client_state in [one for one in gc.get_objects() if type(one) is ClientState]:
        for place, cohort in list(client_state.cohorts.items()):
            if cohort.is_idle():
                client_state.cohorts.pop(place, None)


def grown(before: Counter[str], direct: redis.Redis) -> dict[str, int]:
    """The counts that grew by more than ``SLACK``."""
    found = counted(direct) - before
    return {kind: more for kind, more in found.items() if more > SLACK}


async def settled(front: Any, before: Counter[str], direct: redis.Redis) -> dict[str, int]:
    """The same, after waiting for the counts to settle."""
    end = time.monotonic() + PATIENCE
    while (found := grown(before, direct)) and time.monotonic() < end:
        await front.sleep(0.2)
    return found


async def _repeat(use: Use, endings: tuple[Ending, ...], count: int) -> None:
    """Use each operation ``count`` times with each ending, each time on a new lock."""
    for ending, (name, operation) in itertools.product(endings, OPERATIONS.items()):
        for first in range(0, count, CONCURRENT):
            numbers = range(first, min(count, first + CONCURRENT))
            own = [replace(use, name=f"{use.name}:{next(_numbers)}") for _ in numbers]
            found = await use.front.elsewhere(*[partial(ending, operation, one) for one in own])
            failures = [one for one in found if one is not None]
            assert failures == [], f"{name}, {ending.__name__}: {failures}"


async def assert_nothing_is_left(
    front: Any, server: Any, endings: tuple[Ending, ...], count: int
) -> None:
    """Check that ``count`` uses of each operation with each ending leave nothing behind.

    The counts are compared with those after a few uses of each.
    """
    direct = server.client()
    use = Use(front, front.client(server), server, direct, f"growth:{front.name}")
    with no_records():
        # After this everything that is created once, such as connections and threads, exists.
        await _repeat(use, endings, CONCURRENT)
        await front.sleep(2.0)
        before = counted(direct)

        await _repeat(use, endings, count)

        found = await settled(front, before, direct)
    uses = count * len(OPERATIONS) * len(endings)
    assert found == {}, f"left after {uses} uses: {found}"
