"""The order in which waiters join the queue once their subscriber is open."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal

#: Waiters admitted per iteration of the event loop, which has other work too, such as renewals.
MOST = 100


class AdmissionLoop(Protocol):
    """What an admission needs of the event loop."""

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the event loop; from any thread."""


class Admission:
    """Admits waiters to the queue in order of arrival, a limited number per loop iteration."""

    __slots__ = ("_continues", "_lease_loop", "_steps", "_waiting")

    def __init__(self, lease_loop: AdmissionLoop) -> None:
        self._lease_loop = lease_loop
        self._waiting: deque[QueuedWaiter] = deque()  #: appended by any thread, else loop only
        self._steps = 0  #: loop only
        self._continues = False  #: written by the loop, read by any thread

    def __bool__(self) -> bool:
        """Whether earlier waiters are still to join the queue."""
        return self._continues or bool(self._waiting)

    def add(self, waiter: QueuedWaiter) -> None:
        """Admit a waiter after all that wait now; from any thread."""
        waiter.awaits_admission = True
        self._waiting.append(waiter)

    def begin(self, waiters: Callable[[], Iterable[QueuedWaiter]]) -> None:
        """Admit all ``waiters()``, and those that are added in the meantime."""
        self._waiting.clear()
        for waiter in waiters():
            self.add(waiter)

    def resume(self) -> None:
        """Admit some waiters, unless the next step is already scheduled."""
        if not self._continues:
            self.step()

    def step(self) -> None:
        """Admit some waiters, and schedule the next step."""
        self._continues, admitted = False, 0
        while self._waiting and admitted < MOST:
            waiter = self._waiting[0]
            if waiter.awaits_admission:
                waiter.awaits_admission = False
                waiter.wakeup.notify(Signal.ADMITTED)
                admitted += 1
            self._waiting.popleft()  # last: an exception from outside must not lose a waiter
        self._steps += 1
        if admitted or self._waiting:
            self._lease_loop.call(partial(self._step_after, self._steps))
            self._continues = True

    def _step_after(self, steps: int) -> None:
        if steps == self._steps:  # otherwise a later step has scheduled its own successor
            self.step()
