"""A limit on the private connections that one exchange or transaction uses alone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import Any
from weakref import WeakSet

from redis_lock_decorators._flow.requests import NeverSent
from redis_lock_decorators._flow.timeouts import ROUND_TRIP, end_of, limit_after_queueing
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.timers import finish, wait
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.closed_loops import call_on, is_running_here

#: The most such connections of a client on an event loop, unless its pool may have fewer.
MOST = 16
#: Acquisitions leave one of so many to releases: the server may delay its reply to WAIT. The same
#: number may be used by acquisitions while releases wait.
SHARE = 4
#: The least time for a reply, in seconds, after a wait in which no other user had one.
MIN_REPLY_TIME = 0.5
#: Seconds between two checks of a waiter: its wake-up may be lost.
CHECK_INTERVAL = 1.0


class _Waiter:
    """A user that waits for a connection; ``ready`` is set when it is to check again.

    Attributes:
        number: its position among all waiters.
    """

    __slots__ = ("number", "ready")

    def __init__(self, number: int) -> None:
        self.number = number
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def is_gone(self) -> bool:
        """Whether it was closed as it began to wait: no task has received its future."""
        return getattr(self.ready, "_asyncio_future_blocking", False) is True

    def wake(self) -> None:
        loop = self.ready.get_loop()
        if is_running_here(loop):
            finish(self.ready)
        else:  # the garbage collector has closed a user on another thread
            call_on(loop, finish, self.ready)


class ExclusiveLimit:
    """Admits users in the order in which they ask, releases before most acquisitions.

    A part of the connections is left to releases. As many may be used by acquisitions that asked
    before the releases that wait, so steady releases do not keep acquisitions waiting.

    It belongs to one event loop, but the garbage collector may end a use, or a wait, on any thread.
    A user that is garbage-collected no longer counts.
    """

    __slots__ = (
        "_acquiring",
        "_acquisitions",
        "_last_reply",
        "_most",
        "_numbers",
        "_releases",
        "_releasing",
    )

    def __init__(self) -> None:
        #: any thread
        self._releasing: WeakSet[Any] = WeakSet()
        self._acquiring: WeakSet[Any] = WeakSet()
        self._releases: deque[_Waiter] = deque()
        self._acquisitions: deque[_Waiter] = deque()

        self._last_reply = 0.0
        self._most = MOST
        self._numbers = count()

    async def enter(self, user: object, pool: Any, until: float, acquires: bool = False) -> float:
        """Wait until ``user`` may use a connection; return until when.

        While others get replies it waits past ``until``, up to its end (see ``_flow.timeouts``).
        This wait does not count as silence of the server: the time for a reply begins after it.

        Raises:
            NeverSent: it was not its turn by then.
            TimeoutError of the client: no user has had a reply by ``until``.
        """
        began = monotonic()
        self._most = min(MOST, getattr(pool, "max_connections", None) or MOST)
        if self._releases or self._acquisitions or not self._has_place(acquires):
            await self._wait(user, pool, until, acquires)
        else:
            self._users(acquires).add(user)
        latest = monotonic() + MIN_REPLY_TIME
        if self._last_reply > began:
            latest = max(monotonic() + ROUND_TRIP, self._last_reply + until - began)
        return until if until >= latest else limit_after_queueing(until, latest)

    def note_reply(self) -> None:
        """Note that the server has answered a user."""
        self._last_reply = monotonic()

    def leave(self, user: object) -> None:
        """End the use, if there is one."""
        for users in (self._releasing, self._acquiring):
            if user in users:
                users.discard(user)
                self._wake()

    def _users(self, acquires: bool) -> WeakSet[Any]:
        return self._acquiring if acquires else self._releasing

    def _has_place(self, acquires: bool) -> bool:
        """Whether a user may be admitted if no other waits."""
        used = len(self._releasing) + len(self._acquiring)
        return used < (_most_with_acquisition(self._most) if acquires else self._most)

    async def _wait(self, user: object, pool: Any, until: float, acquires: bool) -> None:
        """Wait until it is the turn of ``user``, and admit it."""
        began, waiter = monotonic(), _Waiter(next(self._numbers))
        queue = self._acquisitions if acquires else self._releases
        queue.append(waiter)
        try:
            while waiter not in self._next_users():
                seconds = self._time_left(pool, began, until)
                waiter.ready = asyncio.get_running_loop().create_future()
                await wait(waiter.ready, min(seconds, CHECK_INTERVAL))
            self._users(acquires).add(user)
        finally:
            queue.remove(waiter)
            self._wake()

    def _time_left(self, pool: Any, began: float, until: float) -> float:
        """The seconds that a waiter may still wait before it checks again; raises if none."""
        now = monotonic()
        if now < until:
            return until - now
        if self._last_reply <= began:
            raise client_errors.mark_unsent(client_errors.no_reply(pool))
        if now >= end_of(until):
            raise NeverSent(f"its request was not sent: {self._most} others were under way")
        return end_of(until) - now

    def _wake(self) -> None:
        """Wake as many waiters as there are places."""
        if self._releases or self._acquisitions:
            for waiter in self._next_users():
                waiter.wake()

    def _next_users(self) -> list[_Waiter]:
        """The waiters whose turn it is."""
        found: list[_Waiter] = []
        releases, acquisitions = _present(self._releases), _present(self._acquisitions)
        release, acquisition = next(releases, None), next(acquisitions, None)
        acquiring = len(self._acquiring)
        used, most = acquiring + len(self._releasing), self._most
        share, limit = max(1, most // SHARE), _most_with_acquisition(most)
        while used < most:
            is_first = acquisition is not None and (
                release is None or (acquisition.number < release.number and acquiring < share)
            )
            if is_first and acquisition is not None:
                if acquiring >= share and used >= limit:
                    break
                found.append(acquisition)
                acquisition = next(acquisitions, None)
                acquiring += 1
            elif release is not None:
                found.append(release)
                release = next(releases, None)
            else:
                break
            used += 1
        return found


def _most_with_acquisition(most: int) -> int:
    """At how many uses no further acquisition begins, unless their share is free."""
    return max(1, most - most // SHARE)


def _present(queue: deque[_Waiter]) -> Iterator[_Waiter]:
    return (waiter for waiter in list(queue) if not waiter.is_gone())
