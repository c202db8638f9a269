"""Simulated transports for the request batcher, on an event loop in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from redis_lock_decorators._io.transport import (
    batch_sender,
    batcher,
    exchange_watch,
    single_tries,
)
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.exchange import Exchange
from support.virtual_loop import VirtualLoop

#: The modules of the batcher, and their files.
MODULES = (batch_sender, exchange_watch, batcher)
FILES = {module.__file__ for module in MODULES}


def use_clock(clock: Callable[[], float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the batcher read the time from a clock."""
    for module in (*MODULES, single_tries):
        monkeypatch.setattr(module, "monotonic", clock)


def limit_batches(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the most requests in a batch."""
    monkeypatch.setattr(batch_sender, "BATCH_SIZE", size)


class SlowTransport:
    """A server that answers each batch after some seconds, or not in time.

    Attributes:
        sent: the commands in the order in which they were sent.
    """

    may_resend = opens_connections = False

    def __init__(self, loop: VirtualLoop, seconds: float) -> None:
        self.loop, self.seconds = loop, seconds
        self.sent: list[Any] = []
        self.batcher: Any = None

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        self.sent += commands
        left = until - self.loop.now
        late = self.seconds > left
        await asyncio.sleep(max(0.0, left) if late else self.seconds)
        if late:
            raise self.no_reply()
        return list(commands)

    def no_reply(self) -> Exception:
        return TimeoutError("no reply")

    def close(self) -> None:
        pass

    async def drop_idle_connections(self) -> None:
        pass


class Connection:
    """A connection whose exchange can be ended."""

    _writer = SimpleNamespace(transport=SimpleNamespace(abort=lambda: None))


class HalfOpen(SlowTransport):
    """A server; the first connection returns no reply until it is closed, new connections do."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        first = not self.sent
        self.sent += commands
        if not first:
            await asyncio.sleep(0.01)
            return list(commands)
        closed = asyncio.Event()
        writer = self.writer(closed)
        self.batcher.under_way = Exchange(SimpleNamespace(_writer=writer), until)
        await closed.wait()
        self.batcher.under_way = None
        raise self.no_reply()

    def writer(self, closed: asyncio.Event) -> Any:
        return SimpleNamespace(transport=SimpleNamespace(abort=closed.set))


def results_of(transport: SlowTransport, count: int, seconds: float) -> list[Any]:
    """The replies or errors of ``count`` concurrent requests with ``seconds`` each."""

    async def ask() -> list[Any]:
        transport.batcher, until = RequestBatcher(), transport.loop.now + seconds
        requests = [
            transport.batcher.exchange(transport, (number,), until) for number in range(count)
        ]
        return await asyncio.gather(*requests, return_exceptions=True)

    return transport.loop.run_until_complete(ask())


def lose_wakeup(reply: Any) -> None:
    """Remove the callback that wakes the task waiting for a future.

    The exception of a signal handler has the same effect.
    """
    ((callback, _),) = reply._callbacks
    reply.remove_done_callback(callback)
