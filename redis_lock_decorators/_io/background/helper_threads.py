"""Threads for what the background must not wait for: messages, losses that are told, releases."""

from __future__ import annotations

import _thread
import math
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._io.background.hubs import MOST_HUBS, drop_first, hub, is_in_hub
from redis_lock_decorators._io.background.worker import NAME, here, is_here_unfit
from redis_lock_decorators._io.clock import monotonic

#: How many losses are told at once: one that takes long keeps no other while there are fewer.
MOST_TOLD = 32
#: Seconds after which calls that all take so long are taken to hang: then there are more threads.
HANGING = 2.0
#: How many releases, begun by finalizers in the background, are under way at once.
MOST_RELEASES = 8
#: Seconds until a thread that could not be started is tried again.
RETRY = 0.25


class HelperThreads:
    """Makes calls in the order in which they came, by threads that end when there are none.

    A call stays until a thread begins it. If none can be started, the spare one of the background
    makes it, or the background tries again. No operation waits for another thread: a finalizer may
    call between any two lines. Each hub of greenlets has threads of its own, as these end with it,
    and so has a forked child.

    Args:
        work: what its threads are called after.
        most: how many threads there are at once, at most.
        patience: seconds after which there may be as many more, if none of them gets on.
    """

    def __init__(self, work: str, most: int, patience: float = math.inf) -> None:
        self._new = partial(ThreadTeam, f"{NAME} {work}", most, patience)
        self._teams: dict[tuple[int, object], ThreadTeam] = {}

    def __len__(self) -> int:
        return len(self._team().calls)

    def call(self, function: Callable[[], object]) -> None:
        """Have a function called; from any thread."""
        self._team().call(function)

    def begin(self) -> None:
        """Start a thread, if there is something to do and there may be one more."""
        self._team().begin()

    def is_idle(self) -> bool:
        """Whether nothing is to be done, nor being done."""
        return self._team().is_idle()

    def is_stuck(self) -> bool:
        """Whether there is something to do, and no thread for it."""
        return self._team().is_stuck()

    def _team(self) -> ThreadTeam:
        key = fork.number, hub()
        team = self._teams.get(key)
        if team is None:
            team = self._teams.setdefault(key, self._new())
            drop_first(self._teams, MOST_HUBS)
        return team


class ThreadTeam:
    """The threads of one hub, or all real ones, that work for a crew.

    Attributes:
        calls: those to be made, and when they came.
    """

    def __init__(self, name: str, most: int, patience: float) -> None:
        self._name = name
        self._usual = self._most = most
        self._patience = patience
        self.calls: deque[tuple[Callable[[], object], float]] = deque()
        self._free: deque[None] = deque([None] * most)
        self._begun = -math.inf  # when a call was begun last
        self._process = fork.number

    def call(self, function: Callable[[], object]) -> None:
        self.calls.append((function, monotonic()))
        place = here()
        # A finalizer may come while this thread starts another, which cannot be done twice at once.
        if place is None or not place._accept(self.begin):
            self.begin()

    def begin(self) -> None:
        if self._process != fork.number or not self.calls or is_here_unfit():
            return
        if is_in_hub():  # to start a thread is to wait for it
            _thread.start_new_thread(self.begin, ())
            return
        try:
            self._free.pop()
        except IndexError:
            self._grow()
            return
        try:
            self._start()
        except BaseException:  # from outside
            self._free.append(None)
            raise

    def is_idle(self) -> bool:
        return not self.calls and len(self._free) >= self._most

    def is_stuck(self) -> bool:
        is_full = not self._free and self._patience < math.inf
        return bool(self.calls) and (is_full or len(self._free) >= self._most)

    def _start(self) -> None:
        try:
            thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            Context().run(thread.start)
        except (RuntimeError, MemoryError):
            place = here()
            if place is None or not place.lend(self._name, self._serve):
                self._free.append(None)
            _look_again()  # the spare one may take long

    def _grow(self) -> None:
        """In the background: allow more threads, if all those that there are seem to hang."""
        if self._patience == math.inf or here() is None or not self.calls:
            return
        now, (_, since) = monotonic(), self.calls[0]
        if now >= max(since, self._begun) + self._patience:
            log.warning("%s calls of %s take long: more are made beside", self._most, self._name)
            self._begun = now
            self._most += self._usual
            self._free.extend([None] * self._usual)
            for _ in range(self._usual):
                self.begin()
        _look_again()

    def _serve(self) -> None:
        try:
            while self._process == fork.number:
                try:
                    function, _ = self.calls.popleft()
                except IndexError:
                    return
                self._begun = monotonic()
                function()
                del function  # it refers to a lease
        finally:
            if self._process == fork.number:
                self._free.append(None)
                self.begin()  # something may have come in the last moment


def _look_again() -> None:
    """In the background: begin once more after a while."""
    place = here()
    if place is not None:
        place.wake_at(monotonic() + RETRY)


#: Tells of losses.
losses = HelperThreads("on_lost", MOST_TOLD, HANGING)
#: Releases what a finalizer lets go in the background.
releases = HelperThreads("release", MOST_RELEASES)
#: Logs what is said in the background, in its order.
notes = HelperThreads("log", 1)

CREWS = losses, releases, notes


def begin() -> None:
    """Start the threads that could not be started before."""
    for helper_threads in CREWS:
        helper_threads.begin()


def is_stuck() -> bool:
    """Whether calls wait for a thread to be started."""
    return any(helper_threads.is_stuck() for helper_threads in CREWS)
