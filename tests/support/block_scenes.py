"""Blocks of locks in threads and tasks, on simulated servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ClassVar

import pytest
import redis

import redis_lock_decorators.asyncio.lease
import redis_lock_decorators.asyncio.redislock
import redis_lock_decorators.lease
from redis_lock_decorators import redislock
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._shared.lease_base import claim_for
from support.simulation import Clock, SimulatedPort, SimulatedServer


class Blocking:
    """Blocks of threads."""

    module: Any = redislock
    leases: Any = redis_lock_decorators.lease
    client = redis.Redis()
    enter, exit = "__enter__", "__exit__"
    options: ClassVar[Any] = {"auto_renew": False}

    @staticmethod
    async def do(work: Any) -> Any:
        return work

    @staticmethod
    @contextlib.asynccontextmanager
    async def held(lock: Any) -> Any:
        with lock as lease:
            yield lease

    @staticmethod
    @contextlib.asynccontextmanager
    async def stack() -> Any:
        with contextlib.ExitStack() as stack:
            yield stack, stack.enter_context, stack.close

    @staticmethod
    def dependency(lock: Any) -> Any:
        @contextlib.contextmanager
        def block() -> Iterator[Any]:
            with lock as lease:
                yield lease

        return block()


class Asyncio:
    """Blocks of tasks."""

    module: Any = redis_lock_decorators.asyncio.redislock
    leases: Any = redis_lock_decorators.asyncio.lease
    client = redis.asyncio.Redis()
    enter, exit = "__aenter__", "__aexit__"
    options: ClassVar[Any] = {"auto_renew": False, "cancel_on_lost": False}

    @staticmethod
    async def do(work: Awaitable[Any]) -> Any:
        return await work

    @staticmethod
    @contextlib.asynccontextmanager
    async def held(lock: Any) -> Any:
        async with lock as lease:
            yield lease

    @staticmethod
    @contextlib.asynccontextmanager
    async def stack() -> Any:
        async with contextlib.AsyncExitStack() as stack:
            yield stack, stack.enter_async_context, stack.aclose

    @staticmethod
    def dependency(lock: Any) -> Any:
        @contextlib.asynccontextmanager
        async def block() -> Any:
            async with lock as lease:
                yield lease

        return block()


APIS = [Blocking, Asyncio]


class Scene:
    """A lock of threads or tasks. Each lease has a separate server, where the lock is free."""

    def __init__(self, api: Any, kind: Any = None) -> None:
        self.api = api
        self.do = api.do
        self.lock = (kind or api.module.RedisLock)("a", client=api.client, **api.options)

    async def enter(self) -> Any:
        """Call the first method directly."""
        return await self.do(getattr(self.lock, self.api.enter)())

    async def leave(self, *failure: object) -> Any:
        """Call the exit directly."""
        return await self.do(getattr(self.lock, self.api.exit)(*(failure or (None,) * 3)))

    async def lost(self) -> Any:
        """Return the lost lease of a block that was entered by a direct call."""
        return lose(await self.enter())


def lose(lease: Any) -> Any:
    lease._claim.lost_reason = "test"
    return lease


def is_inside(lease: Any) -> bool:
    """Whether a lease is held, and in Redis."""
    held = lease._port.server.value(lease._claim.keys[0]) is not None
    return held and lease._claim.state is not ENDED and not lease.lost


def use_separate_servers(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each lease a separate server, so that the lock is always free."""

    def unheld(config: Any, lock_names: tuple[str, ...], owner: object = None) -> Any:
        port: Any = SimulatedPort(SimulatedServer(Clock(monotonic())))
        with contextlib.suppress(RuntimeError):  # a coroutine run by hand
            port.loop = asyncio.get_running_loop()
        claim = claim_for(lock_names, config.options, owner or api.leases.running())
        return api.leases.Lease(claim, port, config.options)

    monkeypatch.setattr(api.module, "unheld", unheld)


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())
