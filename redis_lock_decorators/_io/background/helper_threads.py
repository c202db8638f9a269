"""Threads for calls that background work must not wait for: on_lost, releases, logging, hooks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from redis_lock_decorators._flow import fork
from redis_lock_decorators._io.background.hub_threads import HubThreads
from redis_lock_decorators._io.background.hubs import MOST_HUBS, forget_oldest, hub
from redis_lock_decorators._io.background.worker import NAME

#: How many losses are reported concurrently. While fewer are, a slow callback delays no other.
MOST_LOSSES = 32
#: Seconds after which calls that occupy all threads are assumed to hang: more threads may start.
HANG_SECONDS = 2.0
#: How many releases started by finalizers in the background run concurrently.
MOST_RELEASES = 8
#: Seconds that the thread of hooks waits for another event.
LINGER = 1.0


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
        linger: seconds that a thread waits for another call before it ends.
    """

    def __init__(
        self, work: str, most: int, patience: float = math.inf, linger: float = 0.0
    ) -> None:
        self._new = partial(HubThreads, f"{NAME} {work}", most, patience, linger)
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
        key = fork.process_id, hub()
        threads = self._by_hub.get(key)
        if threads is None:
            threads = self._by_hub.setdefault(key, self._new())
            forget_oldest(self._by_hub, MOST_HUBS)
        return threads


#: Report losses.
loss_threads = HelperThreads("on_lost", MOST_LOSSES, HANG_SECONDS)
#: Send the releases of finalizers that run in the background.
releases = HelperThreads("release", MOST_RELEASES)
#: Log the messages of the background, in order.
log_records = HelperThreads("log", 1)
#: Call hooks with events, in order.
hook_threads = HelperThreads("hooks", 1, linger=LINGER)

ALL = loss_threads, releases, log_records, hook_threads


def begin() -> None:
    """Start threads that could not be started before."""
    for helper_threads in ALL:
        helper_threads.begin()


def is_stuck() -> bool:
    """Whether calls are queued that no thread works on."""
    return any(helper_threads.is_stuck() for helper_threads in ALL)
