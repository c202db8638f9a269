"""Processes that wait in queues of a simulated server, each with its event loop in virtual time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import NoPermissionError
from redis.exceptions import TimeoutError as TimedOut

from redis_lock_decorators.flow.acquire import Way, acquire
from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.cohort import Cohort
from redis_lock_decorators.flow.hearing import Hearing
from redis_lock_decorators.flow.listener import Listener
from redis_lock_decorators.flow.release import release
from redis_lock_decorators.flow.requests import Refusal
from redis_lock_decorators.flow.turn import News
from redis_lock_decorators.world.clients import Facts
from support.simulated_bell import BackgroundPort, Resume, SimulatedBell, _Turn
from support.simulation import SimulatedPort, SimulatedServer, new_claim


class QueueBell(SimulatedBell):
    """What ``flow.listener.Bell`` asks for.

    Attributes:
        failures: the errors of works in the background.
    """

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.wanted: set[Any] = set()
        self.failures: list[BaseException] = []
        self.sleep = self.pause

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> Any:
        async def noted() -> None:
            try:
                await work
            except (Exception, KeyboardInterrupt) as error:
                self.failures.append(error)

        return super().start(noted(), ended)

    def alarm(self, ring: Callable[[], None]) -> QueueAlarm:
        return QueueAlarm(self, ring)

    def port(self, port: Any) -> Any:
        return port

    def rest(self) -> None:
        pass


class QueueAlarm:
    """Rings at the earliest of the times it was set to."""

    def __init__(self, bell: QueueBell, ring: Callable[[], None]) -> None:
        self._bell, self._ring, self._when = bell, ring, math.inf

    def set(self, when: float) -> None:
        if when < self._when:
            self._when = when
            self._bell._at(when, lambda: self._go(when))

    def _go(self, when: float) -> None:
        if when == self._when:
            self._when = math.inf
            self._ring()


class QueueWaiter:
    """Waits for news; ``error``, once set, is raised where it waits."""

    def __init__(self, bell: QueueBell) -> None:
        self._bell = bell
        self._news: deque[News] = deque()
        self._resume: Resume | None = None
        self.error: BaseException | None = None

    def tell(self, news: News) -> None:
        self._news.append(news)
        self._wake()

    def interrupt(self, error: BaseException) -> None:
        self.error = error
        self._wake()

    async def wait(self, seconds: float) -> News | None:
        if not self._news:
            await _Turn(lambda resume: self._sleep(resume, seconds))
        if self.error is not None:
            raise self.error
        return self._news.popleft() if self._news else None

    def _sleep(self, resume: Resume, seconds: float) -> None:
        self._resume = resume
        if seconds < math.inf:
            self._bell._at(self._bell.clock.now + seconds, lambda: self._end(resume))

    def _wake(self) -> None:
        if self._resume is not None:
            resume = self._resume
            self._bell._at(self._bell.clock.now, lambda: self._end(resume))

    def _end(self, resume: Resume) -> None:
        if self._resume is resume:
            self._resume = None
            resume()


class QueueLine:
    """A connection that hears; messages travel for half a latency, and ``late`` seconds more.

    Attributes:
        is_silent: nothing comes or goes any more, though nobody knows: it is half open.
        sticks_at: the command that it never gets rid of, or "close", which takes a minute.
    """

    def __init__(self, process: Waiting) -> None:
        self._process = process
        self._words: deque[Any] = deque()
        self._resume: Resume | None = None
        self._channel: str | None = None
        self._arrived = 0.0
        self.late = 0.0
        self.is_silent = False
        self.sticks_at = process.sticks_at
        process.sticks_at = ""

    async def send(self, *command: Any) -> None:
        if command[0] == self.sticks_at:
            self.is_silent = True
            if self._channel is None:  # else another waits for what is heard
                await _Turn(self._await)
        if self.is_silent:
            return
        if command[0] == "SUBSCRIBE":
            self._channel = command[1]
            self._process.server.hearers.setdefault(command[1], []).append(self._hear)
            self._arrive([b"subscribe", command[1].encode(), 1])
        elif command[0] == "INFO":
            run_id = self._process.server.run_id
            refused = NoPermissionError("no INFO")
            self._arrive(refused if run_id is None else f"run_id:{run_id}\r\n".encode())
        else:
            self._arrive([b"pong", command[1].encode()])

    async def hear(self, tell: Callable[[Any], None]) -> None:
        while True:
            while not self._words:
                await _Turn(self._await)
            word = self._words.popleft()
            if isinstance(word, Disconnected):
                raise word
            tell(word)

    async def close(self) -> None:
        if self.sticks_at == "close":
            clock = self._process.port.clock
            clock.at(clock.now + 60, self.cut)
        else:
            self.cut()

    def abort(self) -> None:
        self.cut()

    def cut(self) -> None:
        """The connection breaks, for both sides."""
        hearers = self._process.server.hearers.get(self._channel or "", [])
        if self._hear in hearers:
            hearers.remove(self._hear)
        self._words.append(Disconnected("the line was cut"))
        self._wake()

    def _hear(self, message: str | bytes) -> None:
        if not self.is_silent:
            data = message.encode() if isinstance(message, str) else message
            self._arrive([b"message", (self._channel or "").encode(), data])

    def _arrive(self, word: Any) -> None:
        port = self._process.port
        self._arrived = max(self._arrived, port.clock.now + port.latency / 2 + self.late)

        def arrive() -> None:
            self._words.append(word)
            self._wake()

        port.clock.at(self._arrived, arrive)

    def _await(self, resume: Resume) -> None:
        self._resume = resume

    def _wake(self) -> None:
        if self._resume is not None:
            resume, self._resume = self._resume, None
            self._process.bell._at(self._process.port.clock.now, resume)


class QueuePort(BackgroundPort):
    """The port of an asyncio process."""

    def __init__(self, process: Waiting) -> None:
        super().__init__(process.port, process.bell)
        self.process = process

    def listener(self, key: bytes) -> Listener:
        process = self.process
        if process.listener is None:
            process.channels += 1
            channel = f"redis-lock:{process.number}.{process.channels}"
            hearing = process.hearing
            listener = Listener(process.bell, self, channel, key, process.forget, hearing)
            if listener.is_deaf:
                return listener
            process.listener = listener
        return process.listener

    def hears(self, key: bytes) -> bool:
        return self.process.listener is not None and self.process.listener.is_open

    def waiter(self) -> QueueWaiter:
        self.process.waiters.append(QueueWaiter(self.process.bell))
        return self.process.waiters[-1]

    def cohort(self, key: bytes, ttl: int) -> Cohort:
        facts: Any = self.process
        return Facts.cohort(facts, key, ttl)

    async def line(self, key: bytes) -> QueueLine:
        self.process.tries += 1
        if self.process.fails_with is not None:
            raise self.process.fails_with
        if self.process.is_cut_off:
            raise Disconnected("no way there")
        if self.process.sticks_at == "connect":
            self.process.sticks_at = ""
            await self.process.bell.pause(5)
            raise TimedOut("no connection in time")
        self.process.lines.append(QueueLine(self.process))
        return self.process.lines[-1]


class Waiting:
    """A process whose tasks take locks.

    Attributes:
        port: what its requests go through; its log, faults and latency.
        lines: the connections that it hears on, the newest last.
        cohorts: who waits together.
        is_cut_off: it can make no connection to hear on.
        fails_with: what is raised where it wants one.
        tries: how often it wanted one.
        sticks_at: where the next such connection gets stuck: see there, or "connect".
    """

    def __init__(self, server: SimulatedServer, number: int = 0) -> None:
        self.server, self.number = server, number
        self.port = SimulatedPort(server, seed=number)
        self.bell = QueueBell(server.clock)
        self.lines: list[QueueLine] = []
        self.waiters: list[QueueWaiter] = []
        self.cohorts: dict[tuple[bytes, int], Cohort] = {}
        self.listener: Listener | None = None
        self.hearing = Hearing()
        self.is_cut_off = False
        self.fails_with: Exception | None = None
        self.tries = 0
        self.sticks_at = ""
        self.channels = 0

    def forget(self, listener: Listener) -> None:
        if self.listener is listener:
            self.listener = None

    def takes(self, name: str = "a", wait: float = 30, **options: Any) -> Taking:
        """Begin to take a lock."""
        return Taking(self, name, wait, **options)


class Taking:
    """A task that takes a lock, and may let it go.

    Attributes:
        at: when it ended, in seconds from the beginning; None before.
        held: it holds the lock.
        error: what it raised.
    """

    def __init__(
        self,
        process: Waiting,
        name: str,
        wait: float,
        *,
        expire: float = 10,
        grant: float = 2.5,
        way: Way = "queue",
        renews: bool = True,
    ) -> None:
        self.process, self.wait, self.way = process, wait, way
        self.claim: Claim = new_claim(name, expire=expire, owner=object())
        self.claim.grant = round(min(grant, expire) * 1000)
        self.claim.renews = renews
        self.at: float | None = None
        self.refusal: Refusal | None = None
        self.held = False
        self.error: BaseException | None = None
        process.bell.start(self._take())

    def ends(self) -> None:
        """Let the lock go, in the background."""
        port: Any = QueuePort(self.process)
        self.process.bell.start(release(port, self.claim, "script"))

    @property
    def is_live(self) -> bool:
        return self.held and self.claim.is_live(self.process.port.clock.now)

    async def _take(self) -> None:
        port: Any = QueuePort(self.process)
        try:
            self.refusal = await acquire(port, self.claim, self.wait, 0.1, self.way)
            self.held = self.refusal is None
        except (Exception, KeyboardInterrupt) as error:
            self.error = error
        self.at = port.clock.now - 1000
