"""A thread that is there before it is needed, for when no other can be started any more."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context

from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._io.background.hubs import are_threads_green
from redis_lock_decorators._io.background.wakeups import LONGEST, Gate


class Spare:
    """A real thread that waits for calls, from ``begin`` to ``end``.

    Args:
        name: what the thread is called.
        queues: a call that comes while another takes its time is made after it, not refused.
    """

    def __init__(self, name: str, *, queues: bool) -> None:
        self._name = name
        self._queues = queues
        self._calls: deque[Callable[[], object]] = deque()
        self._gate = Gate()
        self._is_there = self._is_busy = self._has_ended = False

    def begin(self) -> None:
        """Have the thread, if one can be started and is not there yet."""
        if self._is_there or self._has_ended:
            return
        thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
        try:
            Context().run(thread.start)
        except (RuntimeError, MemoryError):
            return
        self._is_there = True

    def call(self, function: Callable[[], object]) -> bool:
        """Have a function called by the thread; False if that is not there, or busy."""
        self.begin()
        if not self._is_there or (self._is_busy and not self._queues):
            return False
        self._is_busy = True
        self._calls.append(function)
        self._gate.open()
        return True

    def end(self) -> None:
        """Let the thread end, when it has made the calls that came.

        Where greenlets came in the place of threads it stays, asleep: Python would look for it
        among those, and complain.
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
        except BaseException:  # also SystemExit: nobody else could be called
            log.exception("work on locks in the background failed")
