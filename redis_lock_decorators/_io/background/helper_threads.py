"""Threads for calls that background work must not wait for: on_lost, releases, logging, hooks."""

from __future__ import annotations

import _thread
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._io.background.hubs import (
    MOST_HUBS,
    forget_oldest,
    half_patched,
    hub,
    is_in_hub,
    start_half_patched,
)
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
#: Seconds that the thread of hooks waits for another event, and between two checks for one.
LINGER, LINGER_INTERVAL = 1.0, 0.01

_sleep = time.sleep  # a test of the program may replace it


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


class HubThreads:
    """The helper threads of one hub, or those of all native threads.

    Attributes:
        calls: the queued calls, each with the time at which it was queued.

    A thread registers itself as its first step, and serves if it is among the first ``most`` that
    are alive. The starter counts nothing: if a signal handler interrupts it, it cannot know whether
    the thread runs. If too many are started, the last ones return.
    """

    def __init__(self, name: str, most: int, patience: float, linger: float = 0.0) -> None:
        self._name = name
        self._usual = most
        self._patience = patience
        self._linger = linger
        self._process = fork.process_id
        #: any thread
        self.calls: deque[tuple[Callable[[], object], float]] = deque()
        # In the order of their registration:
        self._serving: dict[object, Callable[[], bool]] = {}  # whether each is still running
        self._starting: dict[object, Callable[[], bool]] = {}  # whether each will register itself
        self._most = most
        self._started = -math.inf  # when a call was last started

    def call(self, function: Callable[[], object]) -> None:
        self.calls.append((function, monotonic()))
        if self._linger and len(self._alive()) >= self._most:
            return  # the thread is working or lingers: it checks for calls after it is free again
        worker = running_worker()
        # A finalizer may interrupt the start of a thread, which is not reentrant.
        if worker is None or not worker._enqueue(self.begin):
            self.begin()

    def begin(self) -> None:
        if self._process != fork.process_id or not self.calls or is_running_worker_unfit():
            return
        if (
            not half_patched() and is_in_hub()
        ):  # starting a thread waits for it, which a hub must not
            _thread.start_new_thread(self.begin, ())
            return
        if len(self._alive()) + self._count_starting() < self._most:
            self._start()
        else:
            self._grow()

    def is_idle(self) -> bool:
        return not self.calls and not len(self._alive())

    def is_stuck(self) -> bool:
        alive = len(self._alive())
        is_full = alive >= self._most and self._patience < math.inf
        return bool(self.calls) and (is_full or not alive + self._count_starting())

    def _alive(self) -> list[object]:
        # No "items()": its tuples may start the garbage collector, whose finalizers may call.
        serving = ((token, self._serving.get(token)) for token in list(self._serving))
        return [token for token, is_running in serving if is_running is not None and is_running()]

    def _count_starting(self) -> int:
        return sum(will_register() for will_register in list(self._starting.values()))

    def _start(self) -> None:
        token = object()
        serve, until = partial(self._serve, token), monotonic() + RETRY
        try:
            self._starting[token] = lambda: monotonic() < until
            if start_half_patched(serve):
                return
            thread = threading.Thread(target=serve, name=self._name, daemon=True)
            self._starting[token] = partial(_is_active, thread)
            Context().run(thread.start)
        except (RuntimeError, MemoryError):
            self._starting.pop(token, None)
            worker = running_worker()
            if worker is not None:
                worker.run_on_spare(self._name, serve)
            _retry_later()  # the spare thread may be busy for long
        except BaseException:  # raised by a signal handler: the thread may run or not
            self._starting.pop(token, None)
            raise

    def _grow(self) -> None:
        """On a worker: allow more threads if all of them seem to hang."""
        if self._patience == math.inf or running_worker() is None or not self.calls:
            return
        now, (_, since) = monotonic(), self.calls[0]
        if now >= max(since, self._started) + self._patience:
            log.warning("all %s threads of %s are busy: starting more", self._most, self._name)
            self._started = now
            self._most += self._usual
            for _ in range(self._usual):
                self.begin()
        _retry_later()

    def _serve(self, token: object) -> None:
        """The target of a thread."""
        try:
            self._starting.pop(token, None)
            thread = threading.current_thread()
            # Not registered by ``threading``: until its last line here.
            self._serving[token] = partial(_is_active, thread) if _is_active(thread) else _always
            if token in self._alive()[: self._most]:
                self._make_calls()
        finally:
            self._serving.pop(token, None)
            self.begin()  # a call may have been queued in the meantime

    def _make_calls(self) -> None:
        while self._process == fork.process_id:
            try:
                function, _ = self.calls.popleft()
            except IndexError:
                if not self._lingers():
                    return
                continue
            self._started = monotonic()
            function()
            del function  # it refers to a lease

    def _lingers(self) -> bool:
        """Pause, as another call may come soon; False if none has for long."""
        if not self._linger or monotonic() >= self._started + self._linger:
            return False
        _sleep(LINGER_INTERVAL)  # a lock would have to be released for each call
        return True


def _is_active(thread: threading.Thread) -> bool:
    """Whether a thread has started and not ended.

    ``Thread.is_alive`` must not be called: if a signal handler raises an exception in it, CPython
    3.10 to 3.12 mark a running thread as stopped, for good.
    """
    return threading._active.get(thread.ident) is thread  # type: ignore[attr-defined]


def _always() -> bool:
    return True


def _retry_later() -> None:
    """On a worker: have the renewer tick soon, which calls ``begin``."""
    worker = running_worker()
    if worker is not None:
        worker.wake_at(monotonic() + RETRY)


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
