"""The port of asyncio code: flows are awaited."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Coroutine, Iterator, MutableMapping
from typing import Any

from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.world import failures
from redis_lock_decorators.world.carriers import ClientCarrier, PoolCarrier
from redis_lock_decorators.world.clients import Facts
from redis_lock_decorators.world.courier import Carrier, Courier

log = logging.getLogger("redis_lock_decorators")

#: Work that goes on though the task that began it was cancelled: the loop holds tasks weakly.
_unfinished: set[asyncio.Future[object]] = set()


class AsyncioPort:
    """An asyncio client as the flows see it, on the running event loop."""

    __slots__ = (
        "_carrier",
        "_courier",
        "client",
        "held",
        "resends",
        "serials",
        "slotted",
        "transacts",
    )

    now = staticmethod(time.monotonic)
    random = staticmethod(random.random)
    is_unknown = staticmethod(failures.is_unknown)
    lacks = staticmethod(failures.lacks)

    def __init__(self, client: Any, facts: Facts[Courier]) -> None:
        self.client = client
        self.held: MutableMapping[bytes, Claim] = facts.held
        self.serials: Iterator[int] = facts.serials
        self.slotted = facts.slotted
        self.transacts = not facts.slotted
        self._courier = facts.lane
        self._carrier: Carrier
        if facts.is_untouched(client):
            self._carrier = _own_carrier(client, facts)
            self.resends = False
        else:
            self._carrier = ClientCarrier(client)
            self.resends = True

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def send(self, *command: Any, until: float) -> Coroutine[Any, Any, Any]:
        return self._courier.exchange(self._carrier, command, until)

    async def distrust(self) -> None:
        disconnect = getattr(self.client, "disconnect_connection_pools", None)
        if disconnect is not None:
            await disconnect()
        elif not self.slotted:
            await self.client.connection_pool.disconnect(inuse_connections=False)

    async def shield(self, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        _unfinished.add(task)
        task.add_done_callback(_finish)
        await asyncio.wait([task])

    def watch(self) -> WatchedPipeline:
        return WatchedPipeline(self.client.pipeline())


class WatchedPipeline:
    """A pipeline that watches one key."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline

    async def __aenter__(self) -> WatchedPipeline:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._pipeline.reset()

    async def holder(self, key: bytes) -> Any:
        await self._pipeline.watch(key)
        return await self._pipeline.get(key)

    async def execute(self, *command: Any) -> bool:
        self._pipeline.multi()
        self._pipeline.execute_command(*command)
        try:
            await self._pipeline.execute()
        except Exception as error:
            if type(error).__name__ != "WatchError":
                raise
            return False
        return True


def _own_carrier(client: Any, facts: Facts[Courier]) -> PoolCarrier:
    courier, pool = facts.lane, client.connection_pool
    carrier: PoolCarrier | None = courier.carrier
    if carrier is None or carrier.pool is not pool:
        carrier = courier.carrier = PoolCarrier(courier, pool, facts.named)
    return carrier


def _finish(task: asyncio.Future[object]) -> None:
    _unfinished.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.info("could not tidy up a lock: %s: %s", type(error).__name__, error)
