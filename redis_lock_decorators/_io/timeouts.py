"""Time-outs of tasks and of blocking sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Any

from redis_lock_decorators._io.background.closing import is_unawaited

#: A time-out that fires so many seconds late shows that something has blocked the event loop.
LATE_TIMER = 0.25
#: How often a late time-out is extended.
MOST_LATE = 3
#: Seconds from each timer to a second one: a signal handler may raise an exception in the first.
AGAIN = 0.25


class _Limit:
    """A replacement of ``asyncio.timeout``, which is new in Python 3.11.

    ``async_timeout`` cannot replace it: it must be rescheduled in a task, not by a timer.
    """

    __slots__ = ("_is_expired", "_is_over", "_seconds", "_task")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._is_expired = self._is_over = False
        self._task: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        if self._seconds is not None:
            self.reschedule(0.0)

    async def __aexit__(self, kind: object, error: object, trace: object) -> bool | None:
        self._is_over, self._task = True, None
        if self._is_expired and kind is asyncio.CancelledError:
            raise asyncio.TimeoutError
        return None

    def reschedule(self, when: float) -> None:
        """Cancel the limited code in the next iteration of the event loop."""
        asyncio.get_running_loop().call_soon(self._expire, context=Context())

    def expired(self) -> bool:
        """Whether the limited code was cancelled."""
        return self._is_expired

    def _expire(self) -> None:
        if self._task is not None and not self._is_over and not self._is_expired:
            self._is_expired = True
            self._task.cancel()


if sys.version_info >= (3, 11):
    plain_timeout: Any = asyncio.timeout
else:
    plain_timeout = _Limit


class Expiry:
    """Calls a function after some seconds, extended by the time for which the loop was blocked.

    The limited code could not run then, and data that arrived meanwhile is still unread. A second
    timer covers the loss of the first, and of what the function has caused.
    """

    __slots__ = ("_expire", "_seconds", "_timers", "_times_late")

    def __init__(self, seconds: float, expire: Callable[[], object]) -> None:
        self._seconds = seconds
        self._expire = expire
        self._times_late = 0
        self._timers: list[asyncio.TimerHandle] = []

    def __enter__(self) -> None:
        self._set(max(0.0, self._seconds))

    def __exit__(self, *failure: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Cancel the call."""
        for timer in self._timers:
            timer.cancel()

    def _set(self, seconds: float) -> None:
        self.cancel()
        loop = asyncio.get_running_loop()
        first = loop.time() + seconds
        # In an empty context: a timer would keep the caller's alive.
        self._timers = [
            loop.call_at(when, self._fire, loop, when, context=Context())
            for when in (first, first + AGAIN)
        ]

    def _fire(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        now = loop.time()
        if now > when + LATE_TIMER and self._times_late < MOST_LATE and self._seconds > 0:
            self._times_late += 1
            self._set(min(now - when, self._seconds))
        else:
            self._expire()


class timeout:  # lower case, like asyncio's
    """Like ``asyncio.timeout``, but extended by the time for which the event loop was blocked.

    Args:
        seconds: the limit.
        work: what the limited code awaits. A task that does not wait for it is not cancelled: the
            garbage collector has closed the limited code inside a step of that task.
    """

    __slots__ = ("_expiry", "_plain", "_work")

    def __init__(self, seconds: float, work: Any = None) -> None:
        self._work = work
        self._plain: Any = plain_timeout(None if seconds > 0 else seconds)
        self._expiry = Expiry(seconds, self._expire) if seconds > 0 else None

    async def __aenter__(self) -> None:
        await self._plain.__aenter__()
        if self._expiry is not None:
            self._expiry.__enter__()

    async def __aexit__(self, kind: object, error: object, trace: object) -> bool | None:
        if self._expiry is not None:
            self._expiry.cancel()
        suppressed: bool | None = await self._plain.__aexit__(kind, error, trace)
        return suppressed

    def _expire(self) -> None:
        if self._expiry is not None and is_unawaited(self._work):
            self._expiry.cancel()
            with suppress(Exception):  # its cleanup may await something
                self._work.close()
        elif not self._plain.expired():
            self._plain.reschedule(asyncio.get_running_loop().time())


def cancellations() -> int:
    """How often the running task was cancelled; 0 before Python 3.11, which does not count it."""
    if sys.version_info < (3, 11):
        return 0
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


#: Whether a ``struct timeval`` is known to be two longs.
KERNEL_TIMEOUTS = sys.platform == "linux" and sys.maxsize > 2**32


def leave_to_kernel(connection: Any) -> bool:
    """Let the kernel limit each wait of a connection to its ``socket_timeout``, if possible.

    Returns whether it does. Python's own time-outs need an additional system call for each read and
    write. Not for TLS, which may read several times for one reply, nor for sockets of gevent and
    similar libraries, which do not wait in the kernel.
    """
    plain = getattr(connection, "_sock", None)
    kind = type(plain)
    if (
        not KERNEL_TIMEOUTS
        or plain is None
        or (kind.__module__, kind.__name__) != ("socket", "socket")
    ):
        return False
    seconds, fraction = divmod(connection.socket_timeout, 1)
    limit = struct.pack("ll", int(seconds), int(fraction * 1e6) or 1)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        plain.setsockopt(socket.SOL_SOCKET, option, limit)
    plain.settimeout(None)
    return True
