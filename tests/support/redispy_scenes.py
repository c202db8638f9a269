"""Objects of the replacement of redis-py's ``Lock``, shared by threads or tasks."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import redis

import redis_lock_decorators.asyncio.lock
from redis_lock_decorators import lock
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._shared.redispy_tokens import TokenHold
from support.lease_loops import ready_loop
from support.simulation import Clock, SimulatedPort, SimulatedServer

KEY = b"a"


class Threads:
    kind: Any = lock.Lock
    client = redis.Redis()
    enter, exit = "__enter__", "__exit__"

    @staticmethod
    async def do(work: Any) -> Any:
        return work() if callable(work) else work

    @staticmethod
    def block(one: Any) -> Any:
        @contextlib.contextmanager
        def block() -> Any:
            with one:
                yield

        return block()


class Tasks:
    kind: Any = redis_lock_decorators.asyncio.lock.Lock
    client = redis.asyncio.Redis()
    enter, exit = "__aenter__", "__aexit__"

    @staticmethod
    async def do(work: Any) -> Any:
        return await (work() if callable(work) else work)

    @staticmethod
    def block(one: Any) -> Any:
        @contextlib.asynccontextmanager
        async def block() -> Any:
            async with one:
                yield

        return block()


class Scene:
    """A lock object that several threads or tasks share, on a simulated server."""

    def __init__(self, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = api
        self.do = api.do
        self.server = SimulatedServer(Clock(monotonic()))
        port = SimulatedPort(self.server)
        port.renewer = SimpleNamespace(add=lambda watch: None, remove=lambda watch: None)
        port.lease_loop = ready_loop()
        monkeypatch.setattr(api.kind, "_port", lambda self: port)
        self.patch = monkeypatch.setattr
        self.lock = self.make()

    def make(self, **options: Any) -> Any:
        given = {"timeout": 10, "thread_local": False, **options}
        return self.api.kind(self.api.client, KEY, **given)

    def holder(self) -> object:
        return self.server.value(KEY)

    def is_inside(self, hold: TokenHold | None) -> bool:
        """Whether the hold has the lock in Redis, and is in the slot of the lock object."""
        assert hold is not None
        assert self.lock.local._slot().hold is hold
        return self.holder() is not None and hold.claim.state is not ENDED

    async def acquire(self) -> TokenHold:
        """Acquire through the same lock object, as another thread or task."""
        assert await self.do(self.lock.acquire())
        hold: TokenHold = self.lock.local._slot().hold
        return hold

    async def enter(self, block: Any) -> None:
        await self.do(getattr(block, self.api.enter)())

    async def leave(self, block: Any) -> None:
        await self.do(getattr(block, self.api.exit)(None, None, None))

    def done(self, result: Any = None) -> Any:
        """Return what a method that does nothing returns."""
        return result if self.api.enter == "__enter__" else asyncio.sleep(0, result)

    def free(self) -> None:
        """Let the lock expire."""
        self.server.clock.now += 11


def run(test: Any) -> None:
    asyncio.run(test())


def own_api(api: Any, **methods: Any) -> Any:
    """Return the scene of a subclass with its own methods."""
    return type("Own", (api,), {"kind": type("Own", (api.kind,), methods)})


def running(scene: Scene) -> Any:
    """Return the running thread or task, in the form of ``TokenHold.by``."""
    return scene.lock._running()
