"""The call of ``on_lost``, which is made once although exceptions from outside may interrupt it."""

from __future__ import annotations

import inspect
from asyncio import CancelledError, Future
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._shared.reached import is_from_within, is_of_signal_handler
from redis_lock_decorators.errors import shown

#: Runs a coroutine in a context; returns its task if it runs on the caller's event loop.
Follow = Callable[[Context, Coroutine[Any, Any, None]], "Future[Any] | None"]
#: The answer of ``on_lost``. Looking up ``ANSWER`` calls ``on_lost`` and stores the answer in one
#: step, so that no exception from outside can come in between and have it called again.
Answer = defaultdict[str, object]
ANSWER = "answer"
#: The key of the caller.
CALLER = "caller"


class OnLostCall:
    """The only call of a lease's ``on_lost``; the first thread that makes it calls.

    An exception from outside, as a signal handler raises it, may come before ``on_lost`` begins.
    Then it is called all the same, and that exception is raised afterwards.

    Args:
        on_lost: called with the lease and the reason of the loss.
        lock_name: for log messages.
        follow: runs what awaits the awaitable that ``on_lost`` may return.

    Attributes:
        task: awaits the awaitable on the lease's event loop; None if there is no such task.
    """

    __slots__ = ("_answers", "_context", "_follow", "_lock_name", "_on_lost", "task")

    def __init__(self, on_lost: Callable[[Any, str], object], lock_name: str, follow: Follow):
        self._on_lost = on_lost
        self._lock_name = lock_name
        self._follow = follow
        self._context = copy_context()
        self.task: Future[Any] | None = None
        #: any thread: what the thread that calls stores the answer in, which identifies the call
        self._answers: dict[str, Answer] = {}

    def make(self, lease: object, why: str) -> None:
        """Call ``on_lost``, unless another call has begun; log its exception."""
        answer: Answer = defaultdict(partial(self._on_lost, lease, why))
        try:
            self._make(answer)
        except BaseException:
            if not answer:
                self._make(answer)
            raise

    def _make(self, answer: Answer) -> None:
        if self._answers.setdefault(CALLER, answer) is answer:
            self._context.run(self._call, answer)
            if inspect.isawaitable(awaitable := answer[ANSWER]):
                self.task = self._follow(self._context, self._await(awaitable))
                if self.task is not None:
                    self.task.add_done_callback(self._warn_if_cancelled, context=Context())

    def _call(self, answer: Answer) -> None:
        try:
            answer[ANSWER]
        except BaseException as error:
            if not is_from_within(error, self._on_lost):
                raise  # it came before the call began
            answer[ANSWER] = None
            # CancelledError: from the result of a cancelled future.
            if not isinstance(error, (Exception, CancelledError)) or is_of_signal_handler(error):
                raise
            log.exception("on_lost of lock %s failed", shown(self._lock_name))

    async def _await(self, answer: Awaitable[object]) -> None:
        try:
            await answer
        except Exception:
            log.exception("on_lost of lock %s failed", shown(self._lock_name))

    def _warn_if_cancelled(self, task: Future[Any]) -> None:
        if task.cancelled():
            log.warning("on_lost of lock %s was cancelled before its end", shown(self._lock_name))
