"""Lockers in several processes, faults of a topology, and a check of the recorded history.

.. code-block:: python

    with Scene(tmp_path, to_server(server.port)) as scene:
        with scene.holding("queue"), scene.fault():
            server.restart()
        scene.finish([server])
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from redis_lock_decorators import LockLostError, RedisLock
from support.connecting import connect
from support.history import (
    Allowed,
    Diary,
    Harm,
    attempts,
    failures,
    fences,
    losses,
    overlaps,
    starved,
    unnotified,
)
from support.locker_processes import LockerProcesses, keys_left
from support.plans import LONG, LONGEST_BLOCK, LockerPlan

LEASE = 2.0
#: Seconds after the last fault within which every waiter must be served.
HEALING = LEASE + 6.0
#: Seconds, in addition to a lost lease, that a waiter may wait for a free lock: the longest time
#: between two rechecks.
IDLE = 2.5
#: Seconds after the last fault in which clients may still fail.
RECOVERY = 2.5
SLOW = "the server did not answer for most of a lease"
LOCKS = {
    "queue-fenced": ("queue",),
    "cohort": ("cohort",),
    "poll": ("poll",),
    "mixed": ("queue", "cohort", "drop-in"),
}


class Scene:
    """One topology and the processes that use locks there; a context manager.

    ``locks`` lists the ways to wait for each lock. ``name_of`` returns their names, so that a test
    can choose their slots.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        connection: dict[str, Any],
        name_of: Callable[[str], str] = str,
        locks: Mapping[str, tuple[str, ...]] = LOCKS,
        kinds: Sequence[str] = ("threads", "tasks"),
        **plan: Any,
    ) -> None:
        self.locks = {label: name_of(label) for label in locks}
        settings = {
            "lease": LEASE,
            "patiences": (0.0, 0.5, LONG, LONG, LONG),
            "threads": 5,
            "tasks": 8,
            "cancelled": 0.05,
            "long": 0.01,
            "short": 0.8,
            "moment": 0.1,
            "rest": 0.05,
            **plan,
        }
        longest = LONGEST_BLOCK * settings["lease"] if settings["long"] else 0.0
        assert longest < HEALING, "waiting for such a block would count as starvation"
        ways = {self.locks[label]: locks[label] for label in locks}
        self.folder = folder
        self.lockers = LockerProcesses(folder, LockerPlan(connection, ways, **settings))
        self.faults: list[tuple[float, float]] = []
        self._kinds = kinds
        self._holder = "holder.0.0"
        self._diary = Diary(folder, self._holder)
        self._clients: list[Any] = []

    def __enter__(self) -> Scene:
        try:
            for number, kind in enumerate(self._kinds):
                self.lockers.start(f"{kind}.{number}.0")
            self.lockers.wait_until_busy()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.lockers.__exit__()
        while self._clients:
            with contextlib.suppress(Exception):
                self._clients.pop().close()

    def plan(self, **changes: Any) -> LockerPlan:
        """The plan of the scene's lockers, changed, for one more process."""
        return dataclasses.replace(self.lockers.plan, **changes)

    @contextlib.contextmanager
    def fault(self, lasting: float = 0.0) -> Iterator[None]:
        """A fault is injected in this block and ends ``lasting`` seconds after it."""
        begun = time.monotonic()
        yield
        time.sleep(lasting)
        self.faults.append((begun, time.monotonic()))

    def lossy(self, why: str) -> Allowed:
        """The effects of the scene's last fault if it loses the last writes, or all data.

        An earlier lease may last as long as it was granted for, without renewal.
        """
        begun, over = self.faults[-1]
        return Allowed(since=over, until=begun + self.lockers.plan.lease, why=why)

    def silent(self, why: str) -> Allowed:
        """The effects of a fault in which the server keeps its data but is silent: leases end."""
        _, over = self.faults[-1]
        return Allowed(since=over, until=-math.inf, why=why)

    def slow(self) -> list[Allowed]:
        """The effects of faults that were meant to be short but lasted too long for a renewal.

        Scenes do not test the duration of a failover on a busy machine.
        """
        return [
            Allowed(since=over, until=-math.inf, why=SLOW)
            for begun, over in self.faults
            if over - begun > self.lockers.plan.lease / 2
        ]

    def two_masters(self, why: str) -> Allowed:
        """The effects of two servers that act as master, until one lease later."""
        _, over = self.faults[-1]
        return Allowed(since=over, until=over + self.lockers.plan.lease, why=why, masters=over)

    @contextlib.contextmanager
    def holding(
        self, label: str = "queue-fenced", waiting: float = 0.3, auto_renew: bool = True
    ) -> Iterator[None]:
        """Hold a lock around a block that begins after ``waiting`` seconds, so that others wait."""
        name, lease = self.locks[label], self.lockers.plan.lease
        number = self._diary.begin(lock=name, strategy="queue", patience=LONG)
        lock = RedisLock(
            name,
            client=self._client(),
            expire=lease,
            acquire_time=LONG,
            auto_renew=auto_renew,
            fencing="fenced" in name,
            on_lost=lambda _, why: self._diary.notified(number, why),
        )
        held = lock.acquire()
        assert held is not None, f"{name} was not free in {LONG} s"
        self._diary.granted(number, held)
        time.sleep(waiting)
        try:
            yield
        finally:
            self._diary.releasing(number, held)
            self._end(number, held)

    def _end(self, number: int, held: Any) -> None:
        try:
            held.release()
        except LockLostError as error:
            self._diary.end(number, "lost", str(error))
        except Exception as error:
            self._diary.end(number, "unknown", f"{type(error).__name__}: {error}")
        else:
            self._diary.end(number, "ok")

    def _client(self) -> Any:
        if not self._clients:
            self._clients.append(connect(self.lockers.plan.connection, "blocking"))
        return self._clients[0]

    def finish(
        self,
        nodes: Iterable[Any],
        record: Callable[[str, object], None],
        allowed: Sequence[Allowed] = (),
        healing: float = HEALING,
    ) -> None:
        """Let every locker acquire every lock once more, and check the whole history.

        ``nodes`` are the servers whose keys are checked, ``allowed`` the losses that the faults
        of this scene explain, and ``healing`` the longest wait after the last of them.
        """
        healed = self.faults[-1][1]
        time.sleep(max(0.0, healed + RECOVERY + 0.1 - time.monotonic()))
        self.lockers.stop()
        late = self.lockers.end(healing + 2)
        history, harms = attempts(self.folder), {**self.lockers.harms, self._holder: Harm()}
        problems = [
            *overlaps(history, harms, allowed),
            *unnotified(history, allowed),
            *losses(history, allowed),
            *fences(history, harms),
            *starved(history, harms, healed, healing, self.lockers.plan.lease + IDLE),
            *failures(history, healed + RECOVERY),
            *[f"{name} did not end" for name in late],
            *self.lockers.complaints(),
            *keys_left([node.client() for node in nodes], self.lockers.plan.lease + 2),
        ]
        outcomes = Counter(one.get("outcome", "none") for one in history)
        record("found", f"{self.folder.name}: {dict(outcomes)}, {len(problems)} problems")
        kinds = Counter(problem.partition(":")[0][:60] for problem in problems)
        assert not problems, "\n".join([str(dict(kinds)), *problems[:12]])
