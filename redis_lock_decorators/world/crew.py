"""Threads for what the background must not wait for: messages, losses that are told, releases."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context

from redis_lock_decorators.flow import process
from redis_lock_decorators.world.background import NAME, here, is_here_unfit
from redis_lock_decorators.world.clock import monotonic

#: How many losses are told at once: one that takes long keeps no other while there are fewer.
MOST_TOLD = 32
#: How many releases, begun by finalizers in the background, are under way at once.
MOST_RELEASES = 8
#: Seconds until a thread that could not be started is tried again.
RETRY = 0.25


class Crew:
    """Makes calls in the order in which they came, by threads that end when there are none.

    A call stays until a thread begins it. If none can be started, the background tries again. No
    operation waits for another thread: a finalizer may call between any two lines.

    Args:
        work: what its threads are called after.
        most: how many threads there are at once, at most.
    """

    def __init__(self, work: str, most: int) -> None:
        self._name = f"{NAME} {work}"
        self._most = most
        self._renew()

    def __len__(self) -> int:
        return len(self._calls)

    def call(self, function: Callable[[], object]) -> None:
        """Have a function called; from any thread."""
        if self._process != process.number:  # the threads are the parent's
            self._renew()
        self._calls.append(function)
        place = here()
        # A finalizer may come while this thread starts another, which cannot be done twice at once.
        if place is None or not place._accept(self.begin):
            self.begin()

    def begin(self) -> None:
        """Start a thread, if there is something to do and there may be one more."""
        if self._process != process.number or not self._calls or is_here_unfit():
            return
        try:
            self._free.pop()
        except IndexError:
            return
        try:
            thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            Context().run(thread.start)
        except (RuntimeError, MemoryError):
            self._free.append(None)
            place = here()
            if place is not None:
                place.ring(monotonic() + RETRY)
        except BaseException:  # from outside
            self._free.append(None)
            raise

    def is_idle(self) -> bool:
        """Whether nothing is to be done, nor being done."""
        return not self._calls and len(self._free) >= self._most

    def is_stuck(self) -> bool:
        """Whether there is something to do, and no thread for it."""
        return bool(self._calls) and len(self._free) >= self._most

    def _renew(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()
        self._free: deque[None] = deque([None] * self._most)
        self._process = process.number

    def _serve(self) -> None:
        try:
            while self._process == process.number:
                try:
                    function = self._calls.popleft()
                except IndexError:
                    return
                function()
                del function  # it refers to a lease
        finally:
            if self._process == process.number:
                self._free.append(None)
                self.begin()  # something may have come in the last moment


#: Tells of losses.
losses = Crew("on_lost", MOST_TOLD)
#: Releases what a finalizer lets go in the background.
releases = Crew("release", MOST_RELEASES)
#: Logs what is said in the background, in its order.
notes = Crew("log", 1)

CREWS = losses, releases, notes


def begin() -> None:
    """Start the threads that could not be started before."""
    for crew in CREWS:
        crew.begin()


def is_stuck() -> bool:
    """Whether calls wait for a thread to be started."""
    return any(crew.is_stuck() for crew in CREWS)
