"""A thread that is started in advance, in case no other can be started later."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context

from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._io.background.hubs import are_threads_green
from redis_lock_decorators._io.background.wakeups import LONGEST, Gate


class SpareThread:
    """A native thread that waits for calls, from ``begin`` to ``end``.

    Args:
        name: the name of the thread.
        queues: calls during another call are queued, not refused.
    """

    def __init__(self, name: str, *, queues: bool) -> None:
        self._name = name
        self._queues = queues
        #: any thread
        self._calls: deque[Callable[[], object]] = deque()
        self._gate = Gate()
        self._is_started = self._is_busy = self._has_ended = False

    def begin(self) -> None:
        """Start the thread, unless it runs or cannot be started."""
        if self._is_started or self._has_ended:
            return
        thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
        try:
            Context().run(thread.start)
        except (RuntimeError, MemoryError):
            return
        self._is_started = True

    def call(self, function: Callable[[], object]) -> bool:
        """Call a function on the thread; False if it is not started, or busy."""
        self.begin()
        if not self._is_started or (self._is_busy and not self._queues):
            return False
        self._is_busy = True
        self._calls.append(function)
        self._gate.open()
        return True

    def end(self) -> None:
        """End the thread after the queued calls.

        If greenlets have replaced threads, it remains asleep: at its end, Python would look it up
        among the greenlets, and fail.
        """
        if not are_threads_green():
            self._has_ended = True
            self._gate.open()

    def _serve(self) -> None:
        while self._calls or not self._has_ended:
            while self._calls:
                self._make(self._calls.popleft())
            self._is_busy = bool(self._calls)
            if not self._has_ended:
                self._gate.wait(LONGEST)

    def _make(self, function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException:  # also SystemExit: the thread must survive
            log.exception("background work on locks failed")
