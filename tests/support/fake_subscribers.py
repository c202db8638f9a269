"""A subscriber on an event loop that runs its callbacks on request."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any

from redis_lock_decorators._flow.queue.subscriber import Subscriber
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter
from support.fake_wakeup import FakeWakeup
from support.simulation import SimulatedPort


class Subscription:
    """A subscribed connection on which nothing is sent."""

    async def send(self, *command: Any) -> None:
        pass

    async def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


class FakeLoop:
    """An event loop that runs callbacks when ``run_until`` is called.

    Attributes:
        started: the time, name and ``key`` argument of each started coroutine.
    """

    def __init__(self) -> None:
        self.time = 1000.0
        self.wakes_at = math.inf
        self.wanted: set[Any] = set()
        self.started: list[tuple[float, str, Any]] = []
        self.answer: Callable[[list[Any]], None]
        self._calls: list[Callable[[], object]] = []

    def now(self) -> float:
        return self.time

    def random(self) -> float:
        return 0.5

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> None:
        arguments = work.cr_frame.f_locals
        self.started.append((self.time, work.cr_code.co_name, arguments.get("key")))
        work.close()
        if work.cr_code.co_name == "send":  # a PING, which the server answers
            self.call(lambda: self.answer([b"pong", repr(self.time).encode()]))

    def port(self, port: Any) -> Any:
        return port

    def call(self, function: Callable[[], object]) -> None:
        self._calls.append(function)

    def timer(self, call: Callable[[], None]) -> FakeLoop:
        self.wake_at = call
        return self

    def set(self, when: float) -> None:
        self.wakes_at = min(self.wakes_at, when)

    def stop_if_idle(self) -> None:
        pass

    def run_until(self, until: float) -> None:
        """Run the callbacks and timers that are due by ``until``."""
        while self._calls or self.wakes_at <= until:
            while self._calls:
                self._calls.pop(0)()
            if self.wakes_at <= until:
                self.time, self.wakes_at = max(self.time, self.wakes_at), math.inf
                self.wake_at()
        self.time = until


def new_subscriber(*, is_open: bool = True) -> tuple[FakeLoop, Subscriber]:
    """A subscriber; an open one has a waiter that remains."""
    lease_loop = FakeLoop()
    subscriber = Subscriber(lease_loop, SimulatedPort(), "channel", b"z", lambda _: None)  # type: ignore[arg-type]
    lease_loop.answer = subscriber._on_message
    if is_open:
        subscriber.join(new_waiter("z"))
        lease_loop._calls.clear()
        subscriber._is_alive = subscriber._session.has_info = True
        subscriber.is_open, subscriber._subscription = True, Subscription()  # type: ignore[assignment]
        subscriber._timer = lease_loop.timer(subscriber.tick)
        subscriber._last_used = lease_loop.time
        subscriber._session.begin(lease_loop.time, round_trip=0.0)
        subscriber._wake_in_time()
    return lease_loop, subscriber


def new_waiter(name: str, identifier: str | None = None) -> QueuedWaiter:
    """A waiter with an entry in the queue."""
    waiter = QueuedWaiter(name.encode(), identifier or f"identifier of {name}", FakeWakeup())  # type: ignore[arg-type]
    waiter.queue_entry = f"channel|{waiter.identifier}|2500"
    return waiter
