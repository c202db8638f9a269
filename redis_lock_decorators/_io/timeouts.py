"""Time-outs of tasks, and those of blocking sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from contextvars import Context
from typing import Any

#: Seconds by which a time-out comes late if something has blocked the event loop.
LATE = 0.25
#: So often that is made up for.
MOST_LATE = 3
#: Seconds after which a second timer comes, in case the first was lost: a signal handler may raise
#: an exception there.
AGAIN = 0.25


class _Limit:
    """What ``asyncio.timeout`` is from Python 3.11 on.

    Not by ``async_timeout``, which ends nothing if its end was set by a timer, in no task.
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
        """End what is limited in the next turn of the event loop."""
        asyncio.get_running_loop().call_soon(self._expire, context=Context())

    def expired(self) -> bool:
        """Whether what is limited was told to end."""
        return self._is_expired

    def _expire(self) -> None:
        if self._task is not None and not self._is_over and not self._is_expired:
            self._is_expired = True
            self._task.cancel()


if sys.version_info >= (3, 11):
    plain_timeout: Any = asyncio.timeout
else:
    plain_timeout = _Limit


class timeout:  # it stands for asyncio's
    """``asyncio.timeout``, but for the time in which something has blocked the event loop.

    What it limits could not go on then, and what came meanwhile is still to be read. A second timer
    stands behind the first, and behind the call by which that ends what is limited.
    """

    __slots__ = ("_plain", "_seconds", "_timers", "_times_late")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._times_late = 0
        self._plain: Any = plain_timeout(None if seconds > 0 else seconds)
        self._timers: list[asyncio.TimerHandle] = []

    async def __aenter__(self) -> None:
        await self._plain.__aenter__()
        if self._seconds > 0:
            self._set(self._seconds)

    async def __aexit__(self, kind: object, error: object, trace: object) -> bool | None:
        self._cancel()
        suppressed: bool | None = await self._plain.__aexit__(kind, error, trace)
        return suppressed

    def _set(self, seconds: float) -> None:
        self._cancel()
        loop = asyncio.get_running_loop()
        first = loop.time() + seconds
        # In a context of its own: a timer would keep that of its caller.
        self._timers = [
            loop.call_at(when, self._ring, loop, when, context=Context())
            for when in (first, first + AGAIN)
        ]

    def _cancel(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _ring(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        now = loop.time()
        if now > when + LATE and self._times_late < MOST_LATE:
            self._times_late += 1
            self._set(min(now - when, self._seconds))
        elif not self._plain.expired():
            self._plain.reschedule(now)


def cancellations() -> int:
    """How often the running task was asked to end; 0 before Python 3.11, which does not tell."""
    if sys.version_info < (3, 11):
        return 0
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


#: There a ``struct timeval`` is two longs.
KNOWN = sys.platform == "linux" and sys.maxsize > 2**32


def leave_to_kernel(connection: Any) -> bool:
    """Have the kernel end each wait of a connection after its ``socket_timeout``, if it can.

    Returns whether it does. Python's own time-outs cost a system call more each way. Not of TLS,
    which reads more than once for a reply, nor of sockets that an event loop such as gevent's has
    put in place of Python's: those wait in their own ways.
    """
    plain = getattr(connection, "_sock", None)
    kind = type(plain)
    if not KNOWN or plain is None or (kind.__module__, kind.__name__) != ("socket", "socket"):
        return False
    seconds, rest = divmod(connection.socket_timeout, 1)
    limit = struct.pack("ll", int(seconds), int(rest * 1e6) or 1)
    for way in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        plain.setsockopt(socket.SOL_SOCKET, way, limit)
    plain.settimeout(None)
    return True
