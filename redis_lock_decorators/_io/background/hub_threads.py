"""Helper threads of one hub of greenlets, or of all native threads: their start and their end."""

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
from redis_lock_decorators._io.background.hubs import half_patched, is_in_hub, start_half_patched
from redis_lock_decorators._io.background.worker import is_running_worker_unfit, running_worker
from redis_lock_decorators._io.clock import monotonic

#: Seconds until the next attempt to start a thread.
RETRY = 0.25
#: Seconds between two checks of a thread that waits for another call.
LINGER_INTERVAL = 0.01

_sleep = time.sleep  # a test of the program may replace it


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
        try:
            if self._linger and len(self._alive()) >= self._most:
                return  # the thread is working or lingers: it will check for calls before it ends
            worker = running_worker()
            # A finalizer may interrupt the start of a thread, which is not reentrant.
            if worker is None or not worker._enqueue(self.begin):
                self.begin()
        except BaseException:  # from outside
            self.begin()
            raise

    def begin(self) -> None:
        if self._process != fork.process_id or not self.calls or is_running_worker_unfit():
            return
        if not half_patched() and is_in_hub():  # which must not wait, as the start of a thread does
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
