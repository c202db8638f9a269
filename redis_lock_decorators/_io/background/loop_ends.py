"""Clients that were made for an event loop are closed when it ends: nobody else knows them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_clients import close_unused
from redis_lock_decorators._io.transport.batcher import RequestBatcher

#: Seconds for which leases that are held at the end of a loop may be let go yet, by others who are
#: ended with it.
PATIENCE = 1.0
#: Seconds between two looks whether they were.
LOOK = 0.01
#: The tasks of the end itself: the loop's, and ours.
OWN_TASKS = 2


def at_end(close: Callable[[], Awaitable[None]]) -> object:
    """Have ``close`` awaited when the running event loop ends; keep what this returns until then.

    Loops tell nobody that they end but async generators that were begun on them and not finished.
    ``asyncio.run`` and all who call ``loop.shutdown_asyncgens`` do so. A loop that is closed
    without that has nothing closed, as before.
    """
    generator = _until_end(asyncio.get_running_loop(), close)
    with suppress(StopIteration):  # it has run to its first stop, without the loop
        generator.asend(None).send(None)
    return generator


async def close_clients(clients: Iterable[tuple[Any, Any]]) -> None:
    """Close clients, each given with what is known of it; None if it was not used.

    What is held or under way is waited for a little, for others may be ended at the same time that
    let go yet. What is in use even then stays open.
    """
    found, last = list(clients), monotonic() + PATIENCE
    while monotonic() < last and any(
        client_state is not None and _is_used(client_state) for _, client_state in found
    ):
        if len(asyncio.all_tasks()) <= OWN_TASKS:  # nobody is left to let go
            break
        await asyncio.sleep(LOOK)
    for client, client_state in found:
        if client_state is not None:
            await client_state.sender.return_connections()
        await close_unused(client)
    await asyncio.sleep(0)  # transports are closed by the next step of the loop


def _is_used(client_state: Any) -> bool:
    now, batcher = monotonic(), client_state.sender
    return _is_busy(batcher) or any(claim.is_live(now) for claim in client_state.held.values())


def _is_busy(batcher: RequestBatcher) -> bool:
    return any(one.is_busy for one in batcher.all())


async def _until_end(
    loop: asyncio.AbstractEventLoop, close: Callable[[], Awaitable[None]]
) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        if _is_running(loop):  # else it is collected, after a loop that was closed
            with suppress(Exception):
                await close()


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
