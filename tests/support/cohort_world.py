"""A simulated server with processes whose waiters form cohorts."""

from __future__ import annotations

from typing import Any

from redis_lock_decorators._rules.keys import with_queue
from support.simulated_queue import Taking, Waiting
from support.simulation import Clock, SimulatedServer

KEY = b"sys:lock:a"
KEYS = with_queue((KEY,))
#: Seconds: enough for some requests, less than the pause between two rechecks.
SOON = 0.02
#: Seconds that no test takes.
PATIENCE = 100


class World:
    """A server and the processes that wait for its locks."""

    def __init__(self) -> None:
        self.server = SimulatedServer(Clock())
        self.clock = self.server.clock
        self.processes: list[Waiting] = []
        self.takings: list[Taking] = []

    def process(self) -> Waiting:
        self.processes.append(Waiting(self.server, len(self.processes)))
        return self.processes[-1]

    def passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def takes(
        self,
        process: Waiting,
        wait: float = PATIENCE,
        *,
        kind: Any = Taking,
        name: str = "a",
        **options: Any,
    ) -> Taking:
        """Start a waiter, which holds the lock after a moment if it is free."""
        taking = kind(process, name, wait, **{"way": "cohort", **options})
        self.takings.append(taking)
        self.passes(0.001)
        return taking

    def crowd(self, process: Waiting, count: int, **options: Any) -> list[Taking]:
        """Start ``count`` waiters in this order; the first holds the lock if it is free."""
        takings = [self.takes(process, **options) for _ in range(count)]
        self.passes(SOON)
        return takings

    def inside(self) -> Taking | None:
        """The holder of the lock; fails if there are two."""
        live = [taking for taking in self.takings if taking.is_live]
        assert len(live) < 2
        return live[0] if live else None

    def serves(self, hold: float = 0.0) -> list[Taking]:
        """Let each holder release after ``hold`` seconds; returns them in order."""
        order = []
        while (taking := self.inside()) is not None:
            order.append(taking)
            self.passes(hold)
            taking.ends()
            self.passes(0)
            self._await_next()
            assert not taking.is_live
        return order

    def _await_next(self) -> None:
        """Advance no longer than necessary: a lock is handed off for a limited time."""
        for _ in range(20):
            if self.inside() is not None:
                return
            self.passes(SOON / 20)

    def is_empty(self) -> bool:
        """Whether neither Redis nor a cohort stores anything."""
        cohorts = [cohort for process in self.processes for cohort in process.cohorts.values()]
        keys = [*map(self.server.members, KEYS[1:]), self.server.value(KEY)]
        return not any(keys) and all(cohort.is_idle() for cohort in cohorts)


def stranded(world: World, count: int = 2, **options: Any) -> tuple[Taking, list[Taking]]:
    """A holder in another process, and ``count`` waiters of one process."""
    holder = world.takes(world.process(), way="queue")
    world.passes(SOON)
    return holder, world.crowd(world.process(), count, **options)


def verbs(*takings: Taking) -> list[str]:
    return [verb for taking in takings for verb in taking.process.port.verbs]


def held_with(world: World, count: int = 2, **options: Any) -> tuple[Taking, list[Taking]]:
    """A holder and ``count`` waiters of one process."""
    holder, *waiters = world.crowd(world.process(), count + 1, **options)
    assert world.inside() is holder
    holder.process.port.log.clear()
    return holder, waiters
