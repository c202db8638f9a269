"""An event loop in virtual time for a renewer, and the leases that it renews."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import replace
from typing import Any, TypeVar

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.port import Port, Sending
from redis_lock_decorators._flow.renewal.renewer import Renewer
from redis_lock_decorators._flow.renewal.tracked_lease import TrackedLease
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.options import Options
from support.faults import Request, is_before_sending
from support.simulation import Clock, SimulatedPort, new_claim

T = TypeVar("T")
Resume = Callable[[], None]
#: More ticks than this at one instant count as an endless loop.
MOST_TICKS = 1000


class SimulatedLoop:
    """A ``_flow.background`` loop in virtual time: background work runs as the clock advances.

    Attributes:
        wakes_at: when the renewer ticks next; infinity if it does not.
        lag: seconds between the start of a coroutine and its first step.
        works: the coroutines that have not ended.
    """

    def __init__(self, clock: Clock, *, phase: float = 0.0) -> None:
        self.clock = clock
        self.phase = phase
        self.random = random.Random(0).random
        self.renewer = Renewer(self)
        self.wakes_at = math.inf
        self.lag = 0.0
        self.works: list[SimulatedWork] = []
        self._frozen_until = -math.inf
        self._ticks = (-math.inf, 0)

    def now(self) -> float:
        return self.clock.now

    def wake_at(self, when: float) -> None:
        if when < self.wakes_at:
            self.wakes_at = when
            self._at(when, lambda: self._tick(when))

    def call(self, function: Callable[[], object]) -> None:
        self._at(self.clock.now, function)  # type: ignore[arg-type]

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> SimulatedWork:
        begun = SimulatedWork(self, work, ended)
        self.works.append(begun)
        self._at(self.clock.now + self.lag, begun.step)
        return begun

    def port(self, port: Port) -> Any:
        return BackgroundPort(port, self)

    def freeze(self, seconds: float) -> None:
        """Run nothing for ``seconds``, like a stopped process; then everything that was due."""
        self._frozen_until = self.clock.now + seconds

    async def pause(self, seconds: float) -> None:
        """Let others run for a while."""
        await _Suspend(lambda resume: self._at(self.clock.now + seconds, resume))

    async def gather(self, works: list[Awaitable[T]]) -> list[T]:
        """Run awaitables concurrently; an error of one ends the test."""
        found: dict[int, T] = {}

        async def one(place: int, resume: Resume) -> None:
            found[place] = await works[place]
            if len(found) == len(works):
                resume()

        def all_of_them(resume: Resume) -> None:
            for place in range(len(works)):
                self.start(one(place, resume))

        await _Suspend(all_of_them)
        return [found[place] for place in range(len(works))]

    def _tick(self, when: float) -> None:
        if when != self.wakes_at:  # an earlier time was requested in the meantime
            return
        self.wakes_at = math.inf
        last, count = self._ticks
        self._ticks = (self.clock.now, count + 1 if last == self.clock.now else 0)
        assert count < MOST_TICKS, "the loop ticks endlessly"
        self.renewer.tick()

    def _at(self, when: float, action: Resume) -> None:
        def act() -> None:
            if self.clock.now < self._frozen_until:
                self.clock.at(self._frozen_until, act)
            else:
                action()

        self.clock.at(when, act)


class SimulatedWork:
    """A coroutine that runs as the clock advances, with a callback for its end."""

    def __init__(
        self,
        lease_loop: SimulatedLoop,
        work: Coroutine[Any, Any, None],
        ended: Callable[[], object] | None,
    ) -> None:
        self._lease_loop = lease_loop
        self._work = work
        self._ended = ended
        self._is_over = False

    def step(self) -> None:
        """Run until it suspends."""
        if self._is_over:
            return
        try:
            arrange = self._work.send(None)
        except StopIteration:
            self._end()
        except BaseException:
            self._end()
            raise
        else:
            arrange(self.step)

    def cancel(self) -> None:
        """End it at its current await, or before its first step."""
        self._work.close()
        self._end()

    def _end(self) -> None:
        self._is_over = True
        self._lease_loop.works.remove(self)
        if self._ended is not None:
            self._lease_loop._at(self._lease_loop.now(), self._ended)  # type: ignore[arg-type]


class _Suspend:
    """Suspends the coroutine until the arranged callback resumes it."""

    def __init__(self, arrange: Callable[[Resume], None]) -> None:
        self._arrange = arrange

    def __await__(self) -> Generator[Any, None, None]:
        yield self._arrange


class BackgroundPort:
    """A simulated port on a loop: while a request is in flight, others run.

    The server runs a command when it is sent; the time of its fate passes afterwards.
    """

    def __init__(self, port: Any, lease_loop: SimulatedLoop) -> None:
        self._port = port
        self._lease_loop = lease_loop
        self.gather = lease_loop.gather
        self.sleep = lease_loop.pause

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    async def send(self, *command: Any, until: float, sending: Sending | None = None) -> Any:
        port = self._port
        port.note(command)
        side = copy.copy(port)
        side.clock = _Spent(port.clock)
        request = Request(side, command, min(until, port.clock.now + port.patience))
        fate = port.next_fate()
        if sending is not None and not is_before_sending(fate):
            sending()
        try:
            reply = fate(request)
        finally:
            await self._lease_loop.pause(side.clock.spent)
        return port.decoded(reply)

    async def send_renewal(self, *command: Any, until: float) -> Any:
        return await self.send(*command, until=until)


class _Spent:
    """A clock that measures how long something takes, before that time has passed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.spent = 0.0
        self.at = clock.at

    @property
    def now(self) -> float:
        return self._clock.now + self.spent

    def advance(self, seconds: float) -> None:
        self.spent += seconds


class HeldLease:
    """A lease with its renewal: of a held claim, or of names that are acquired.

    Attributes:
        notifications: the time and the reason of each notification of its loss.
    """

    def __init__(
        self, port: SimulatedPort, *names: str, claim: Claim | None = None, **options: Any
    ) -> None:
        self.port = port
        self.options = Options(**options)
        self.notifications: list[tuple[float, str]] = []
        if claim is None:
            claim = new_claim(*names, expire=self.options.lease_seconds, owner=object())
            assert run(acquire(port, claim, 0, 0.005)) is None
        self.claim = claim
        self.watch = TrackedLease(self, type(self).notify, self.claim, port, self.options)
        self.ownership = self.watch.ownership
        port.renewer.add(self.watch)

    @property
    def key(self) -> bytes:
        """The first of its keys."""
        return self.claim.keys[0]

    def is_live(self) -> bool:
        """Whether its holder may regard it as held now."""
        return self.claim.is_live(self.port.now())

    def stop_renewal(self) -> None:
        """Stop its renewal."""
        self.watch.options = replace(self.watch.options, auto_renew=False)

    def notify(self) -> None:
        assert self.claim.lost_reason is not None
        self.notifications.append((self.port.now(), self.claim.lost_reason))


def renewing_port(lease_loop: SimulatedLoop | None = None, **arguments: Any) -> SimulatedPort:
    """A client whose leases are renewed, on a separate loop if none is given."""
    port = SimulatedPort(**arguments)
    port.renewer = (lease_loop or SimulatedLoop(port.clock)).renewer
    return port
