"""Threads for calls that background work must not wait for: loss reports, releases, logging."""

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
from redis_lock_decorators._io.background.hubs import MOST_HUBS, forget_oldest, hub, is_in_hub
from redis_lock_decorators._io.background.worker import (
    NAME,
    is_running_worker_unfit,
    running_worker,
)
from redis_lock_decorators._io.clock import monotonic

#: How many losses are reported concurrently. While fewer are, a slow callback delays no other.
MOST_LOSSES = 32
#: Seconds after which calls that occupy all threads are assumed to hang: more threads may start.
HANG_SECONDS = 2.0
#: How many releases started by finalizers in the background run concurrently.
MOST_RELEASES = 8
#: Seconds until the next attempt to start a thread.
RETRY = 0.25


class HelperThreads:
    """Makes calls in order on a few threads, which end when there are no calls.

    A call remains in the queue until a thread starts it. If no thread can be started, the spare
    thread of the background makes it, or the background tries again. No operation waits for another
    thread: a finalizer may call between any two lines. Each hub of greenlets has separate threads,
    which end with it, and so has a forked child.

    Args:
        work: part of the threads' names.
        most: the maximum number of threads.
        patience: seconds without progress after which ``most`` more threads are allowed.
    """

    def __init__(self, work: str, most: int, patience: float = math.inf) -> None:
        self._new = partial(HubThreads, f"{NAME} {work}", most, patience)
        self._by_hub: dict[tuple[int, object], HubThreads] = {}  #: any thread

    def __len__(self) -> int:
        return len(self._of_this_hub().calls) if self._by_hub else 0

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on a helper thread; from any thread."""
        self._of_this_hub().call(function)

    def begin(self) -> None:
        """Start a thread if there are calls and another thread is allowed."""
        if self._by_hub:  # else there was no call yet, as in most programs
            self._of_this_hub().begin()

    def is_idle(self) -> bool:
        """Whether no call is queued or running."""
        return not self._by_hub or self._of_this_hub().is_idle()

    def is_stuck(self) -> bool:
        """Whether calls are queued, but no thread makes progress on them."""
        return bool(self._by_hub) and self._of_this_hub().is_stuck()

    def _of_this_hub(self) -> HubThreads:
        key = fork.number, hub()
        threads = self._by_hub.get(key)
        if threads is None:
            threads = self._by_hub.setdefault(key, self._new())
            forget_oldest(self._by_hub, MOST_HUBS)
        return threads


class HubThreads:
    """The helper threads of one hub, or those of all native threads.

    Attributes:
        calls: the queued calls, each with the time at which it was queued.
    """

    def __init__(self, name: str, most: int, patience: float) -> None:
        self._name = name
        self._usual = most
        self._patience = patience
        self._process = fork.number
        #: any thread
        self.calls: deque[tuple[Callable[[], object], float]] = deque()
        self._free: deque[None] = deque([None] * most)  # one item per allowed thread
        self._most = most
        self._started = -math.inf  # when a call was last started

    def call(self, function: Callable[[], object]) -> None:
        self.calls.append((function, monotonic()))
        worker = running_worker()
        # A finalizer may interrupt the start of a thread, which is not reentrant.
        if worker is None or not worker._enqueue(self.begin):
            self.begin()

    def begin(self) -> None:
        if self._process != fork.number or not self.calls or is_running_worker_unfit():
            return
        if is_in_hub():  # starting a thread waits for it, which a hub must not
            _thread.start_new_thread(self.begin, ())
            return
        try:
            self._free.pop()
        except IndexError:
            self._grow()
            return
        try:
            self._start()
        except BaseException:  # raised by a signal handler
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
            worker = running_worker()
            if worker is None or not worker.run_on_spare(self._name, self._serve):
                self._free.append(None)
            _retry_later()  # the spare thread may be busy for long

    def _grow(self) -> None:
        """On a worker: allow more threads if all of them seem to hang."""
        if self._patience == math.inf or running_worker() is None or not self.calls:
            return
        now, (_, since) = monotonic(), self.calls[0]
        if now >= max(since, self._started) + self._patience:
            log.warning("all %s threads of %s are busy: starting more", self._most, self._name)
            self._started = now
            self._most += self._usual
            self._free.extend([None] * self._usual)
            for _ in range(self._usual):
                self.begin()
        _retry_later()

    def _serve(self) -> None:
        try:
            while self._process == fork.number:
                try:
                    function, _ = self.calls.popleft()
                except IndexError:
                    return
                self._started = monotonic()
                function()
                del function  # it refers to a lease
        finally:
            if self._process == fork.number:
                self._free.append(None)
                self.begin()  # a call may have been queued in the meantime


def _retry_later() -> None:
    """On a worker: have the renewer tick soon, which calls ``begin``."""
    worker = running_worker()
    if worker is not None:
        worker.wake_at(monotonic() + RETRY)


#: Report losses.
losses = HelperThreads("on_lost", MOST_LOSSES, HANG_SECONDS)
#: Send the releases of finalizers that run in the background.
releases = HelperThreads("release", MOST_RELEASES)
#: Log the messages of the background, in order.
log_records = HelperThreads("log", 1)

ALL = losses, releases, log_records


def begin() -> None:
    """Start threads that could not be started before."""
    for helper_threads in ALL:
        helper_threads.begin()


def is_stuck() -> bool:
    """Whether calls are queued that no thread works on."""
    return any(helper_threads.is_stuck() for helper_threads in ALL)
