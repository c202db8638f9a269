"""Blocking calls on separate threads, awaited on an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar, cast

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.worker import NAME, running_worker
from redis_lock_decorators._io.hook_errors import of_hook
from redis_lock_decorators._rules.redaction import described

T = TypeVar("T")

#: The name of the thread of a blocking call.
CALL = f"{NAME} call"


class NoThread(RuntimeError):
    """The system allows no more threads, or the interpreter is shutting down."""


async def in_thread(work: Callable[[], T], unwanted: Callable[[T], object] | None = None) -> T:
    """Make a blocking call on a separate thread and return its result.

    If the caller was cancelled by then, ``unwanted`` is called with the result.

    Raises:
        NoThread: no thread can be started, and there is no spare one.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def set_result(value: T | None, error: BaseException | None) -> None:
        if result.done():
            if value is not None and unwanted is not None:
                unwanted(value)
        elif error is not None:
            result.set_exception(awaitable(error))
        else:
            result.set_result(cast(T, value))

    def call() -> None:
        value, failure = None, None
        try:
            value = work()
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(set_result, value, failure)
        except RuntimeError:  # the event loop is closed, and its tasks with it
            if value is not None and unwanted is not None:
                unwanted(value)

    _start(call)
    return await result


def _start(call: Callable[[], None]) -> None:
    try:
        threading.Thread(target=call, name=CALL, daemon=True).start()
    except RuntimeError as error:
        worker = running_worker()
        if worker is None or not worker.run_on_spare(CALL, call):
            raise NoThread(str(error)) from error


def awaitable(error: BaseException) -> Exception:
    """An error that a coroutine on the background thread can raise.

    A StopIteration would only end the coroutine, and an exit or a cancellation the thread or the
    task, which serve other clients too. No signal handler runs here, so a hook has raised it.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    found = client_errors.caused(RuntimeError(f"a hook raised {described(error)}"), error)
    of_hook(found)
    return found if client_errors.was_sent(error) else client_errors.mark_unsent(found)
