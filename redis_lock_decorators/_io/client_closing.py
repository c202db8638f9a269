"""Close the clients that the package made for an event loop when that loop ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from redis_lock_decorators._io.background.supervised import background_tasks
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_clients import close_unused
from redis_lock_decorators._io.transport.batcher import RequestBatcher

#: Seconds to wait at the end of a loop for other tasks to release their leases.
PATIENCE = 1.0
#: Seconds between two checks whether they have.
POLL_INTERVAL = 0.01
#: The number of tasks that end the loop: the loop's own, and the one that runs ``close_clients``.
OWN_TASKS = 2


async def close_clients(clients: Iterable[tuple[Any, Any]]) -> None:
    """Close clients, each given with its state, or None if it was not used.

    First wait a little for held leases and running requests: tasks that end at the same time may
    still release. Connections that are in use even then remain open.
    """
    await background_tasks().unlisted_ended()
    found, last = list(clients), monotonic() + PATIENCE
    while monotonic() < last and any(
        client_state is not None and _is_used(client_state) for _, client_state in found
    ):
        if len(asyncio.all_tasks()) <= OWN_TASKS:  # no task is left that could release
            break
        await asyncio.sleep(POLL_INTERVAL)
    for client, _ in found:
        await close_unused(client)
    await asyncio.sleep(0)  # transports close in the next iteration of the loop


def _is_used(client_state: Any) -> bool:
    now, batcher = monotonic(), client_state.sender
    return _is_busy(batcher) or any(claim.is_live(now) for claim in client_state.held.values())


def _is_busy(batcher: RequestBatcher) -> bool:
    return any(one.is_busy for one in batcher.all())
