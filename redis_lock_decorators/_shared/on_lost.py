"""The call of ``on_lost``, which is made once although exceptions from outside may interrupt it."""

from __future__ import annotations

import inspect
import sys
from asyncio import CancelledError, Future
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast
from weakref import WeakMethod, ref

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
OnLost = Callable[[Any, str], object]


class Made:
    """The outcome of the one call of ``on_lost``, shared by all ``OnLostCall``s of a lease.

    Attributes:
        answers: what the thread that calls stores the answer in, which identifies the call.
        task: awaits the awaitable on the lease's event loop; None if there is no such task.
    """

    __slots__ = ("answers", "task")

    def __init__(self) -> None:
        #: any thread
        self.answers: dict[str, Answer] = {}
        self.task: Future[Any] | None = None


class OnLostCall:
    """The only call of a lease's ``on_lost``; the first thread that makes it calls.

    An exception from outside, as a signal handler raises it, may come before ``on_lost`` begins.
    Then it is called all the same, and that exception is raised afterwards.

    Args:
        on_lost: called with the lease and the reason of the loss.
        lock_name: for log messages.
        follow: runs what awaits the awaitable that ``on_lost`` may return.
    """

    __slots__ = ("_context", "_follow", "_lock_name", "_made", "_on_lost")

    def __init__(self, on_lost: OnLost, lock_name: str, follow: Follow) -> None:
        self._on_lost = on_lost
        self._lock_name = lock_name
        self._follow = follow
        self._context = copy_context()
        self._made = Made()

    @property
    def task(self) -> Future[Any] | None:
        """The task that awaits the awaitable on the lease's event loop, if there is one."""
        return self._made.task

    def detached(self) -> Callable[[], OnLostCall | None]:
        """Return a function that returns the same call in an empty context.

        The function keeps nothing alive that may refer to the lease: neither the context nor what
        ``on_lost`` refers to. It returns None if ``on_lost`` was deleted, or is being collected.
        """
        found, lock_name, follow = weakly(self._on_lost), self._lock_name, self._follow
        made = self._made

        def call() -> OnLostCall | None:
            on_lost = found()
            if on_lost is None:
                return None
            other = Context().run(OnLostCall, on_lost, lock_name, follow)
            other._made = made
            return other

        return call

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
        if self._made.answers.setdefault(CALLER, answer) is answer:
            self._context.run(self._call, answer)
            if inspect.isawaitable(awaitable := answer[ANSWER]):
                task = self._made.task = self._follow(self._context, self._await(awaitable))
                if task is not None:
                    task.add_done_callback(self._warn_if_cancelled, context=Context())

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


def weakly(on_lost: OnLost) -> Callable[[], OnLost | None]:
    """Return a function that returns ``on_lost``, or None if it is deleted or being collected.

    It keeps nothing alive. A deleted function that refers to nothing except its module is made
    again, as long as the module exists.
    """
    try:
        if isinstance(on_lost, MethodType):
            return WeakMethod(on_lost)
        if isinstance(on_lost, FunctionType) and not _refers_to_objects(on_lost):
            return partial(_made_again, ref(on_lost), on_lost.__code__, _module_of(on_lost))
        return ref(on_lost)
    except TypeError:  # there are no weak references to it
        return _nothing


def _refers_to_objects(function: FunctionType) -> bool:
    parts = function.__closure__, function.__defaults__, function.__kwdefaults__, vars(function)
    return any(parts)


def _module_of(function: FunctionType) -> Callable[[], ModuleType | None]:
    """Return a weak reference to the module of a function.

    The globals of a function are often not those of a module, as after ``exec`` or ``runpy``. They
    may then refer to anything, also to the lease.
    """
    module = sys.modules.get(function.__module__)
    is_module = isinstance(module, ModuleType) and vars(module) is function.__globals__
    return ref(cast(ModuleType, module)) if is_module else _nothing


def _made_again(
    function: ref[FunctionType], code: CodeType, module: Callable[[], ModuleType | None]
) -> OnLost | None:
    found, origin = function(), module()
    return found if found is not None or origin is None else FunctionType(code, vars(origin))


def _nothing() -> None:
    """What is returned for an object without weak references."""
