"""A simulated server with processes whose waiters form cohorts."""

from __future__ import annotations

from typing import Any

from redis_lock_decorators._rules.keys import with_queue
from support.simulated_queue import Acquisition, SimulatedProcess
from support.simulation import Clock, SimulatedServer

KEY = b"sys:lock:a"
KEYS = with_queue((KEY,))
#: Seconds: enough for some requests, less than the pause between two rechecks.
SOON = 0.02
#: More seconds than any test waits.
PATIENCE = 100


class World:
    """A server and the processes that wait for its locks."""

    def __init__(self) -> None:
        self.server = SimulatedServer(Clock())
        self.clock = self.server.clock
        self.processes: list[SimulatedProcess] = []
        self.attempts: list[Acquisition] = []

    def process(self) -> SimulatedProcess:
        self.processes.append(SimulatedProcess(self.server, len(self.processes)))
        return self.processes[-1]

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def acquire(
        self,
        process: SimulatedProcess,
        wait: float = PATIENCE,
        *,
        kind: Any = Acquisition,
        name: str = "a",
        **options: Any,
    ) -> Acquisition:
        """Start a waiter, which holds the lock after a moment if it is free."""
        attempt = kind(process, name, wait, **{"strategy": "cohort", **options})
        self.attempts.append(attempt)
        self.advance(0.001)
        return attempt

    def crowd(self, process: SimulatedProcess, count: int, **options: Any) -> list[Acquisition]:
        """Start ``count`` waiters in this order; the first holds the lock if it is free."""
        attempts = [self.acquire(process, **options) for _ in range(count)]
        self.advance(SOON)
        return attempts

    def inside(self) -> Acquisition | None:
        """The holder of the lock; fails if there are two."""
        live = [attempt for attempt in self.attempts if attempt.is_live]
        assert len(live) < 2
        return live[0] if live else None

    def serve_all(self, hold: float = 0.0) -> list[Acquisition]:
        """Let each holder release after ``hold`` seconds; returns them in order."""
        order = []
        while (attempt := self.inside()) is not None:
            order.append(attempt)
            self.advance(hold)
            attempt.release()
            self.advance(0)
            self._await_next()
            assert not attempt.is_live
        return order

    def _await_next(self) -> None:
        """Advance no longer than necessary: a lock is handed off for a limited time."""
        for _ in range(20):
            if self.inside() is not None:
                return
            self.advance(SOON / 20)

    def is_empty(self) -> bool:
        """Whether neither Redis nor a cohort stores anything."""
        cohorts = [cohort for process in self.processes for cohort in process.cohorts.values()]
        keys = [*map(self.server.members, KEYS[1:]), self.server.value(KEY)]
        return not any(keys) and all(cohort.is_idle() for cohort in cohorts)


def stranded(world: World, count: int = 2, **options: Any) -> tuple[Acquisition, list[Acquisition]]:
    """A holder in another process, and ``count`` waiters of one process."""
    holder = world.acquire(world.process(), strategy="queue")
    world.advance(SOON)
    return holder, world.crowd(world.process(), count, **options)


def verbs(*attempts: Acquisition) -> list[str]:
    return [verb for attempt in attempts for verb in attempt.process.port.verbs]


def held_with(
    world: World, count: int = 2, **options: Any
) -> tuple[Acquisition, list[Acquisition]]:
    """A holder and ``count`` waiters of one process."""
    holder, *waiters = world.crowd(world.process(), count + 1, **options)
    assert world.inside() is holder
    holder.process.port.log.clear()
    return holder, waiters
