"""The ports of the flows to an in-memory server, for threads and for tasks."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Any

from redis.exceptions import TimeoutError as TimedOut

from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._io.closed_loops import call_on
from redis_lock_decorators.testing.fake.server import TOGETHER, SimulatedServer
from redis_lock_decorators.testing.fake.virtual_time import VirtualTime


class Exchanges:
    """The requests of all ports of a double; the server answers immediately.

    Attributes:
        stalled_until: renewals get no answer before this time.
        loop: not used; each port has its own.
    """

    loop: Any = None

    def __init__(self, time: VirtualTime, server: SimulatedServer) -> None:
        self.time, self.server = time, server
        self.stalled_until = -math.inf

    def send(self, command: tuple[Any, ...], sending: Sending | None = None) -> Any:
        """Run a command, or raise the server's error."""
        with self.time.lock:
            if sending is not None:
                sending()
            return self.server.run(command)


class NoTransport:
    """What an asyncio port knows of its connections: there are none."""

    may_resend = False

    def close(self) -> None:
        """Do nothing: there are no connections."""

    async def drop_idle_connections(self) -> None:
        """Do nothing: there are no connections."""


class FakeWakeup:
    """A waiting thread; signals arrive from any thread."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._signals: deque[Signal] = deque()

    def notify(self, signal: Signal) -> None:
        self._signals.append(signal)
        self._time.wake()

    async def wait(self, seconds: float) -> Signal | None:
        self._time.wait(self._time.now + seconds, lambda: len(self._signals) > 0)
        return self._signals.popleft() if self._signals else None


class FakeWatch:
    """WATCH with GET, and MULTI with EXEC."""

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges
        self._seen: dict[bytes, int] = {}

    async def __aenter__(self) -> FakeWatch:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        pass

    async def holder(self, key: bytes) -> Any:
        return self._exchanges.send(("WATCH", key, self._seen))

    async def execute(
        self, *commands: tuple[Any, ...], sending: Sending | None = None
    ) -> list[Any] | None:
        found: list[Any] | None = self._exchanges.send(("EXEC", self._seen, *commands), sending)
        return found


class FakeSubscription:
    """A subscription of an event loop to a channel."""

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._channel = ""

    async def send(self, name: str, *arguments: str) -> None:
        if name == "SUBSCRIBE":
            (self._channel,) = arguments
            with self._exchanges.time.lock:
                known = self._exchanges.server.subscribers.setdefault(self._channel, [])
                known.append(self._on_message)
            self._arrived.put_nowait([b"subscribe", self._channel.encode(), 1])
        elif name == "INFO":
            self._arrived.put_nowait(f"run_id:{self._exchanges.server.run_id}\r\n".encode())
        else:
            self._arrived.put_nowait([b"pong", arguments[0].encode()])

    async def receive(self, handle: Any) -> None:
        while (message := await self._arrived.get()) is not None:
            handle(message)

    async def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        with self._exchanges.time.lock:
            known = self._exchanges.server.subscribers.get(self._channel, [])
            if self._on_message in known:
                known.remove(self._on_message)
        self._arrived.put_nowait(None)

    def _on_message(self, text: str) -> None:
        message = [b"message", self._channel.encode(), text.encode()]
        call_on(self._loop, self._arrived.put_nowait, message)


class FakeBlockingPort(BlockingPort):
    """A blocking client as the flows see it, in virtual time."""

    def __init__(self, client: Any, client_state: Any) -> None:
        super().__init__(client, client_state)
        self.exchanges: Exchanges = client_state.sender
        self.may_resend = False

    def now(self) -> float:
        return self.exchanges.time.now

    def place(self) -> str:
        return "the in-memory server"

    async def sleep(self, seconds: float) -> None:
        self.exchanges.time.wait(self.now() + seconds)

    async def send(self, *command: Any, until: float, sending: Sending | None = None) -> Any:
        return self.exchanges.send(command, sending)

    send_urgent = send

    async def send_together(
        self, *commands: tuple[Any, ...], until: float, sending: Sending | None = None
    ) -> list[Any]:
        found: list[Any] = self.exchanges.send((TOGETHER, *commands), sending)
        return found

    def wakeup(self) -> Any:
        return FakeWakeup(self.exchanges.time)

    async def drop_idle_connections(self) -> None:
        """Do nothing: there are no connections."""

    def watch(self, until: float) -> FakeWatch:
        return FakeWatch(self.exchanges)


class FakeAsyncioPort(AsyncioPort):
    """An asyncio client as the flows see it, on an event loop in virtual time."""

    def __init__(self, client: Any, client_state: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.exchanges: Exchanges = client_state.sender
        none: Any = NoTransport()
        super().__init__(client, client_state, none)
        self.loop = loop

    def now(self) -> float:
        return self.exchanges.time.now

    def place(self) -> str:
        return "the in-memory server"

    async def send(self, *command: Any, until: float, sending: Sending | None = None) -> Any:
        await asyncio.sleep(0)  # as over a network, other tasks run
        return self.exchanges.send(command, sending)

    send_urgent = send

    async def send_renewal(self, *command: Any, until: float) -> Any:
        stalled = self.exchanges.stalled_until
        if self.now() < stalled:
            await self.sleep(min(stalled, until) - self.now())
            if until <= stalled:
                raise TimedOut("the renewal is stalled")
        return await self.send(*command, until=until)

    async def send_together(
        self, *commands: tuple[Any, ...], until: float, sending: Sending | None = None
    ) -> list[Any]:
        found: list[Any] = await self.send(TOGETHER, *commands, until=until, sending=sending)
        return found

    def withdraw(
        self, identifier: str, error: BaseException, sending: Sending | None = None
    ) -> None:
        """Nothing is queued."""

    def late_reply(self, sending: Sending) -> None:
        return None

    async def subscription(self, key: bytes) -> FakeSubscription:
        return FakeSubscription(self.exchanges)

    async def drop_idle_connections(self) -> None:
        """Do nothing: there are no connections."""

    def watch(self, until: float) -> FakeWatch:
        return FakeWatch(self.exchanges)
