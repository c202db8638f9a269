"""Processes that wait in queues of a simulated server, each with its event loop in virtual time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import NoPermissionError
from redis.exceptions import TimeoutError as TimedOut

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.queue.cohort import Cohort
from redis_lock_decorators._flow.queue.cohorts import Cohorts
from redis_lock_decorators._flow.queue.reachability import Reachability
from redis_lock_decorators._flow.queue.subscriber import Subscriber
from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._flow.wait_strategies import WaitStrategy
from redis_lock_decorators._io.client_state import ClientState
from support.simulated_loop import BackgroundPort, Resume, SimulatedLoop, _Suspend
from support.simulation import SimulatedPort, SimulatedServer, new_claim


class QueueLoop(SimulatedLoop):
    """The loop of a process that waits in queues.

    Attributes:
        failures: the errors of coroutines in the background.
    """

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.wanted: set[Any] = set()
        self.failures: list[BaseException] = []
        self.sleep = self.pause

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> Any:
        async def record_failure() -> None:
            try:
                await work
            except (Exception, KeyboardInterrupt) as error:
                self.failures.append(error)

        return super().start(record_failure(), ended)

    def timer(self, function: Callable[[], None]) -> QueueTimer:
        return QueueTimer(self, function)

    def port(self, port: Any) -> Any:
        return port

    def stop_if_idle(self) -> None:
        pass


class QueueTimer:
    """Calls a function at the earliest of the times it was set to."""

    def __init__(self, lease_loop: QueueLoop, function: Callable[[], None]) -> None:
        self._lease_loop, self._function, self._when = lease_loop, function, math.inf

    def set(self, when: float) -> None:
        if when < self._when:
            self._when = when
            self._lease_loop._at(when, lambda: self._go(when))

    def _go(self, when: float) -> None:
        if when == self._when:
            self._when = math.inf
            self._function()


class QueueWaiter:
    """Waits for signals; ``error``, once set, is raised where it waits."""

    def __init__(self, lease_loop: QueueLoop) -> None:
        self._lease_loop = lease_loop
        self._signals: deque[Signal] = deque()
        self._resume: Resume | None = None
        self.error: BaseException | None = None

    def notify(self, signal: Signal) -> None:
        self._signals.append(signal)
        self._wake()

    def interrupt(self, error: BaseException) -> None:
        self.error = error
        self._wake()

    async def wait(self, seconds: float) -> Signal | None:
        if not self._signals:
            await _Suspend(lambda resume: self._sleep(resume, seconds))
        if self.error is not None:
            raise self.error
        return self._signals.popleft() if self._signals else None

    def _sleep(self, resume: Resume, seconds: float) -> None:
        self._resume = resume
        if seconds < math.inf:
            self._lease_loop._at(self._lease_loop.clock.now + seconds, lambda: self._end(resume))

    def _wake(self) -> None:
        if self._resume is not None:
            resume = self._resume
            self._lease_loop._at(self._lease_loop.clock.now, lambda: self._end(resume))

    def _end(self, resume: Resume) -> None:
        if self._resume is resume:
            self._resume = None
            resume()


class QueueSubscription:
    """A subscribed connection; messages take half the latency, plus ``late`` seconds.

    Attributes:
        is_silent: it is half open: no data is transferred any more, without an error.
        hangs_at: the command whose sending never ends, or "close", which takes a minute.
    """

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._messages: deque[Any] = deque()
        self._resume: Resume | None = None
        self._channel: str | None = None
        self._arrived = 0.0
        self.late = 0.0
        self.is_silent = False
        self.hangs_at = process.hangs_at
        process.hangs_at = ""

    async def send(self, *command: Any) -> None:
        if command[0] == self.hangs_at:
            self.is_silent = True
            if self._channel is None:  # otherwise another task waits for messages
                await _Suspend(self._await)
        if self.is_silent:
            return
        if command[0] == "SUBSCRIBE":
            self._channel = command[1]
            self._process.server.subscribers.setdefault(command[1], []).append(self._on_message)
            self._arrive([b"subscribe", command[1].encode(), 1])
        elif command[0] == "INFO":
            run_id = self._process.server.run_id
            refused = NoPermissionError("no INFO")
            self._arrive(refused if run_id is None else f"run_id:{run_id}\r\n".encode())
        else:
            self._arrive([b"pong", command[1].encode()])

    async def receive(self, notify: Callable[[Any], None]) -> None:
        while True:
            while not self._messages:
                await _Suspend(self._await)
            message = self._messages.popleft()
            if isinstance(message, Disconnected):
                raise message
            notify(message)

    async def close(self) -> None:
        if self.hangs_at == "close":
            clock = self._process.port.clock
            clock.at(clock.now + 60, self.cut)
        else:
            self.cut()

    def abort(self) -> None:
        self.cut()

    def cut(self) -> None:
        """The connection breaks, for both sides."""
        subscribers = self._process.server.subscribers.get(self._channel or "", [])
        if self._on_message in subscribers:
            subscribers.remove(self._on_message)
        self._messages.append(Disconnected("the subscription was cut"))
        self._wake()

    def _on_message(self, message: str | bytes) -> None:
        if not self.is_silent:
            data = message.encode() if isinstance(message, str) else message
            self._arrive([b"message", (self._channel or "").encode(), data])

    def _arrive(self, message: Any) -> None:
        port = self._process.port
        self._arrived = max(self._arrived, port.clock.now + port.latency / 2 + self.late)

        def arrive() -> None:
            self._messages.append(message)
            self._wake()

        port.clock.at(self._arrived, arrive)

    def _await(self, resume: Resume) -> None:
        self._resume = resume

    def _wake(self) -> None:
        if self._resume is not None:
            resume, self._resume = self._resume, None
            self._process.lease_loop._at(self._process.port.clock.now, resume)


class QueuePort(BackgroundPort):
    """The port of an asyncio process."""

    def __init__(self, process: SimulatedProcess) -> None:
        super().__init__(process.port, process.lease_loop)
        self.process = process

    def subscriber(self, key: bytes) -> Subscriber:
        process = self.process
        if process.subscriber is None:
            process.channels += 1
            channel = f"redis-lock:{process.number}.{process.channels}"
            reachability = process.reachability
            subscriber = Subscriber(
                process.lease_loop, self, channel, key, process.forget, reachability
            )
            if subscriber.is_unavailable:
                return subscriber
            process.subscriber = subscriber
        return process.subscriber

    def is_subscribed(self, key: bytes) -> bool:
        return self.process.subscriber is not None and self.process.subscriber.is_open

    def wakeup(self) -> QueueWaiter:
        self.process.waiters.append(QueueWaiter(self.process.lease_loop))
        return self.process.waiters[-1]

    def cohort(self, key: bytes, expire_ms: int) -> Cohort:
        state: Any = self.process
        return ClientState.cohort(state, key, expire_ms)

    async def subscription(self, key: bytes) -> QueueSubscription:
        self.process.tries += 1
        if self.process.fails_with is not None:
            raise self.process.fails_with
        if self.process.is_cut_off:
            raise Disconnected("the server cannot be reached")
        if self.process.hangs_at == "connect":
            self.process.hangs_at = ""
            await self.process.lease_loop.pause(5)
            raise TimedOut("no connection in time")
        self.process.subscriptions.append(QueueSubscription(self.process))
        return self.process.subscriptions[-1]


class SimulatedProcess:
    """A process whose tasks acquire locks.

    Attributes:
        port: the port of its requests, with its log, faults and latency.
        subscriptions: its subscriptions, the newest last.
        cohorts: its cohorts.
        is_cut_off: it cannot open connections for subscriptions.
        fails_with: the error raised when it opens one.
        tries: how often it tried to open one.
        hangs_at: where the next one hangs: see ``QueueSubscription``, or "connect".
    """

    def __init__(self, server: SimulatedServer, number: int = 0) -> None:
        self.server, self.number = server, number
        self.port = SimulatedPort(server, seed=number)
        self.lease_loop = QueueLoop(server.clock)
        self.subscriptions: list[QueueSubscription] = []
        self.waiters: list[QueueWaiter] = []
        self.cohorts = Cohorts()
        self.subscriber: Subscriber | None = None
        self.reachability = Reachability()
        self.is_cut_off = False
        self.fails_with: Exception | None = None
        self.tries = 0
        self.hangs_at = ""
        self.channels = 0

    def forget(self, subscriber: Subscriber) -> None:
        if self.subscriber is subscriber:
            self.subscriber = None

    def acquire(self, name: str = "a", wait: float = 30, **options: Any) -> Acquisition:
        """Start to acquire a lock."""
        return Acquisition(self, name, wait, **options)


class Acquisition:
    """A task that acquires a lock, and may release it.

    Attributes:
        at: when the acquisition ended, in seconds from the start; None before.
        held: it holds the lock.
        error: the exception that it raised.
    """

    def __init__(
        self,
        process: SimulatedProcess,
        name: str,
        wait: float,
        *,
        expire: float = 10,
        grant: float = 2.5,
        strategy: WaitStrategy = "queue",
        renews: bool = True,
    ) -> None:
        self.process, self.wait, self.strategy = process, wait, strategy
        self.claim: Claim = new_claim(
            name, expire=expire, owner=object(), identifies_late=strategy == "cohort"
        )
        self.claim.grant_ms = round(min(grant, expire) * 1000)
        self.claim.renews = renews
        self.at: float | None = None
        self.refusal: Refusal | None = None
        self.held = False
        self.error: BaseException | None = None
        process.lease_loop.start(self._acquire())

    def release(self) -> None:
        """Release the lock, in the background."""
        port: Any = QueuePort(self.process)
        self.process.lease_loop.start(release(port, self.claim, "script"))

    @property
    def is_live(self) -> bool:
        return self.held and self.claim.is_live(self.process.port.clock.now)

    async def _acquire(self) -> None:
        port: Any = QueuePort(self.process)
        try:
            self.refusal = await acquire(port, self.claim, self.wait, 0.1, self.strategy)
            self.held = self.refusal is None
        except (Exception, KeyboardInterrupt) as error:
            self.error = error
        self.at = port.clock.now - 1000
