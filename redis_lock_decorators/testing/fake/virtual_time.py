"""Time that passes as in reality while a test works, and jumps while all of its threads wait."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from redis_lock_decorators._io.background.helper_threads import ALL
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators.testing.fake.thread_states import is_waiting

#: Real seconds between two checks whether other threads still work.
SLICE = 0.001


def never() -> bool:
    return False


def always() -> bool:
    return True


@dataclass(eq=False, slots=True)
class Waiter:
    """A thread that waits in virtual time.

    Attributes:
        until: when its wait ends at the latest.
        is_ready: whether it has something to do; called by any thread.
        can_jump: whether it waits for nothing that takes real time.
        woken: notified when its wait may be over.
    """

    until: float
    is_ready: Callable[[], bool]
    can_jump: Callable[[], bool]
    woken: threading.Condition

    def is_due(self, now: float) -> bool:
        """Whether it is about to run."""
        return now >= self.until or self.is_ready()


class VirtualTime:
    """The clock of a double: monotonic seconds, and those that were jumped over.

    The threads of a test are those that use the double or started after it. While one of them
    works, time passes as in reality. While all of them wait, here or for each other, time jumps to
    the end of the first wait.

    Attributes:
        lock: the lock of the double.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._ahead = 0.0
        self._waiters: dict[int, Waiter] = {}
        self._used_by = {threading.get_ident()}
        self._before = set(sys._current_frames())

    @property
    def now(self) -> float:
        """Virtual seconds; they never pass more slowly than real ones."""
        return monotonic() + self._ahead

    def use(self) -> None:
        """Count the calling thread among those of the test."""
        self._used_by.add(threading.get_ident())

    def advance(self, seconds: float) -> None:
        """Jump over some seconds, whatever other threads do."""
        with self.lock:
            self._ahead += seconds
            self._wake_due()

    def wake(self) -> None:
        """Wake the threads that are ready; this never waits, so it may be called at any line."""
        if self.lock.acquire(blocking=False):  # else they check within a slice
            try:
                self._wake_due()
            finally:
                self.lock.release()

    def wait(
        self,
        until: float,
        is_ready: Callable[[], bool] = never,
        can_jump: Callable[[], bool] = always,
        poll: Callable[[], bool] = never,
    ) -> None:
        """Pause the calling thread until it is ready, or this time has come.

        ``poll`` is called by this thread about every millisecond, and ends the wait, too.
        """
        self.use()
        number, woken = threading.get_ident(), threading.Condition(self.lock)
        waiter = Waiter(until, is_ready, can_jump, woken)
        with self.lock:
            self._waiters[number] = waiter
            try:
                while not (waiter.is_due(self.now) or poll()):
                    if not self._jump():
                        woken.wait(SLICE)
            finally:
                self._waiters.pop(number, None)

    def _wake_due(self) -> None:
        now = self.now
        for waiter in list(self._waiters.values()):
            if waiter.is_due(now):
                waiter.woken.notify()

    def _jump(self) -> bool:
        """Jump to the end of the first wait; False if some code of the test works."""
        end = min([waiter.until for waiter in self._waiters.values()])
        if end == math.inf or self._is_any_at_work():
            return False
        self._ahead += max(0.0, end - self.now)
        self._wake_due()
        return True

    def _is_any_at_work(self) -> bool:
        """Whether some code of the test runs, is about to run, or waits for the real world."""
        now = self.now
        if any(waiter.is_due(now) or not waiter.can_jump() for waiter in self._waiters.values()):
            return True
        if any(len(helpers) for helpers in ALL) or self._is_any_thread_at_work():
            return True
        return any(thread.ident is None for thread in threading.enumerate())  # it is starting

    def _is_any_thread_at_work(self) -> bool:
        frames = sys._current_frames()
        # Otherwise this frame would refer to itself, and keep what its callers refer to alive.
        del frames[threading.get_ident()]
        numbers = [number for number in frames if number not in self._waiters]
        running = {threading.get_ident(), *frames}
        return any(
            not is_waiting(frames[number], running)
            for number in numbers
            if self._is_of_test(number)
        )

    def _is_of_test(self, number: int) -> bool:
        return number in self._used_by or number not in self._before
