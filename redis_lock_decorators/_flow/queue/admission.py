"""Who may line up once a line is open: all who wait, in the order in which they came."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal

#: So many are told in one turn of the event loop: it has others to serve meanwhile, such as
#: holders whose leases are to be renewed.
MOST = 100


class AdmissionLoop(Protocol):
    """What an admission needs of the event loop."""

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the event loop; from any thread."""


class Admission:
    """Tells waiters that they may line up, a few at a time, and newcomers after all of them.

    Waiters come from any thread; all else belongs to the event loop.
    """

    __slots__ = ("_goes_on", "_lease_loop", "_steps", "_untold")

    def __init__(self, lease_loop: AdmissionLoop) -> None:
        self._lease_loop = lease_loop
        self._untold: deque[QueuedWaiter] = deque()
        self._steps = 0
        self._goes_on = False

    def __bool__(self) -> bool:
        """Whether somebody who came before is still to line up."""
        return self._goes_on or bool(self._untold)

    def add(self, waiter: QueuedWaiter) -> None:
        """Have a waiter be told after all who wait now; from any thread."""
        waiter.is_outside = True
        self._untold.append(waiter)

    def begin(self, waiters: Callable[[], Iterable[QueuedWaiter]]) -> None:
        """Have all of these told whom ``waiters`` finds; who comes meanwhile is told too."""
        self._untold.clear()
        for waiter in waiters():
            self.add(waiter)

    def resume(self) -> None:
        """Tell some, unless others are just about to take their steps."""
        if not self._goes_on:
            self.step()

    def step(self) -> None:
        """Tell some, and others when those have taken their steps."""
        self._goes_on, told = False, 0
        while self._untold and told < MOST:
            waiter = self._untold[0]
            if waiter.is_outside:
                waiter.is_outside = False
                waiter.wakeup.notify(Signal.OPEN)
                told += 1
            self._untold.popleft()  # last: an exception from outside must lose nobody
        self._steps += 1
        if told or self._untold:
            self._lease_loop.call(partial(self._step_after, self._steps))
            self._goes_on = True

    def _step_after(self, steps: int) -> None:
        if steps == self._steps:  # else another has gone on
            self.step()
