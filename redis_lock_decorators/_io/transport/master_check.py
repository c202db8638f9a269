"""Asks Sentinel for the master while a client only waits.

A replaced master answers as a master until Sentinel demotes it, several seconds later. redis-py
asks the Sentinels only when it opens a connection. A waiter opens none: it would remain in the
queue of the replaced master, while the lock is released and acquired at the new one.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.clock import monotonic

#: Seconds between two questions to the Sentinels of one subscription's client.
INTERVAL = 2.0

#: Calls ``get_master_address`` of a pool; the pool drops its connections if the master is another.
Ask = Callable[[Any], Awaitable[object]]


class MasterCheck:
    """Has a client's Sentinel pool learn of a new master; does nothing for other pools.

    There is one question at a time, and none in the first seconds of a connection, which was
    opened by asking the Sentinels.
    """

    __slots__ = ("_ask", "_client", "_due")

    def __init__(self, client: Any, ask: Ask) -> None:
        self._client = client
        self._ask = ask
        self._due = monotonic() + INTERVAL

    async def ask_if_due(self) -> None:
        """Ask for the master if that is due; an error of the client means that nothing is known."""
        if monotonic() < self._due:
            return
        pool = getattr(self._client, "connection_pool", None)
        if not (getattr(pool, "is_master", False) and hasattr(pool, "get_master_address")):
            return
        self._due = math.inf
        try:
            await self._ask(pool)
        except Exception as error:
            if not client_errors.is_outcome(error):
                raise
        finally:
            self._due = monotonic() + INTERVAL
