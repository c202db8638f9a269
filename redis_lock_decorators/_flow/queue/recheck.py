"""When to look at a lock that somebody waits for, as its holder may be dead or tell nobody."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from redis_lock_decorators._flow.background import Loop
from redis_lock_decorators._flow.claim import claim_on
from redis_lock_decorators._flow.identifiers import HANDS_OFF, REST
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal
from redis_lock_decorators._flow.requests import (
    OtherData,
    Refusal,
    ask,
    is_torn,
    persist,
    refusal_of,
)
from redis_lock_decorators._rules.keys import with_queue
from redis_lock_decorators._rules.options import LONGEST_GRANT

#: Seconds without an answer after which none is expected any more.
SILENCE = 2.5
#: Seconds after a lease must have ended, to look whether it did.
AFTER = 0.002
#: Between two looks at a lock whose holder tells nobody when it lets go: first and most.
FIRST_LOOK, LAST_LOOK = 0.025, 0.25
#: The most waiters that one request asks about.
MOST_PLACES = 500


class Awaited(NamedTuple):
    """A lock that somebody waits for.

    Attributes:
        due: when to look at it.
        pause: seconds between two looks where its holder will tell nobody; 0 where it will.
        most: seconds between two looks at most, the shortest grant of those who wait.
    """

    due: float
    pause: float
    most: float = LONGEST_GRANT


class Seen(NamedTuple):
    """What a waiter was told of a lock, and when."""

    at: float
    refusal: Refusal
    most: float


class Rechecks:
    """Looks at the locks that the waiters of one channel wait for.

    Waiters hand in what they see from any thread, each by one assignment; all else belongs to the
    event loop. What waiters with grants of different length hand in of one lock stands side by
    side, so that the shortest is heeded.
    """

    def __init__(self, loop: Loop, port: Port, channel: str) -> None:
        self._awaited: dict[bytes, Awaited] = {}
        self._seen: dict[tuple[bytes, float], Seen] = {}
        self._loop = loop
        self._port = port
        self._channel = channel

    def expect(self, key: bytes, refusal: Refusal, grant: float) -> float:
        """Hand in what was said of an awaited lock; returns when to look at it at the latest.

        Somebody waits for it who may be handed it for ``grant`` seconds.
        """
        now, most = self._loop.now(), min(max(grant, LAST_LOOK), LONGEST_GRANT)
        self._seen[key, most] = Seen(now, refusal, most)
        return _next_look(now, refusal, None, most).due

    def absorb(self) -> bool:
        """Take in what was handed in; whether that was anything."""
        came = list(self._seen.copy().items())
        for entry, seen in came:
            self._note(entry[0], seen, is_look=False)
            last = self._seen.pop(entry)
            if last is not seen:  # handed in meanwhile
                self._note(entry[0], last, is_look=False)
        return bool(came)

    def due(
        self, now: float, waiting: Callable[[bytes], list[QueuedWaiter]]
    ) -> list[tuple[bytes, list[QueuedWaiter]]]:
        """The locks to look at now, each with those who wait for it; the others are forgotten.

        Must be called after what was handed in was taken in: ``waiting`` finds who did that.
        """
        due = []
        for key, awaited in list(self._awaited.items()):
            if awaited.due <= now:
                waiters = waiting(key)
                if waiters:
                    self._awaited[key] = awaited._replace(due=now + SILENCE)
                    due.append((key, waiters))
                else:
                    del self._awaited[key]
        return due

    def first_due(self) -> float:
        """When to look at the first; infinity if there is none."""
        return min([awaited.due for awaited in self._awaited.values()], default=math.inf)

    async def recheck(self, key: bytes, waiters: list[QueuedWaiter]) -> bool:
        """Have a lapsed lock handed on, and tell those who fell out of the queue.

        Returns whether the server that was asked has a listener on our channel, as far as it says.
        """
        is_heard = True
        for start in range(0, len(waiters), MOST_PLACES):
            refusal, hearers = await self._look_at(key, waiters[start : start + MOST_PLACES])
            is_heard = is_heard and hearers != 0
            if key in self._awaited:
                self._note(key, Seen(self._loop.now(), refusal, LONGEST_GRANT), is_look=True)
        return is_heard

    def _note(self, key: bytes, seen: Seen, is_look: bool) -> None:
        """The earliest look stays until it was had: no newcomer may put it off, even if overdue."""
        known = self._awaited.get(key)
        most = seen.most if known is None else min(known.most, seen.most)
        look = _next_look(seen.at, seen.refusal, known if is_look else None, most)
        if known is not None:
            is_had = is_look and known.due <= self._loop.now()
            due = look.due if is_had else min(known.due, look.due)
            look = Awaited(due, look.pause if is_look else known.pause or look.pause, most)
        self._awaited[key] = look

    async def _look_at(self, key: bytes, waiters: list[QueuedWaiter]) -> tuple[Refusal, int]:
        port, claim = self._loop.port(self._port), claim_on(key, 1.0, self._channel)
        entries = [waiter.queue_entry or "" for waiter in waiters]
        missing: list[int] = []
        heard = -1

        def read(holder: Any, left: int, hearers: int, *numbers: int) -> Refusal:
            nonlocal heard
            heard = hearers
            missing[:] = numbers
            return refusal_of(holder, left)

        async def recheck(until: float) -> Refusal | None:
            keys = with_queue((key,))
            try:
                return await ask(port, "recheck", claim, keys, *entries, until=until, read=read)
            except Exception as error:
                if not is_torn(port, error) and not isinstance(error, OtherData):
                    raise
            missing[:] = range(len(waiters))  # who waits must look by itself
            return None

        refusal = await persist(port, recheck, self._loop.now() + SILENCE)
        for number in missing:
            waiters[number].wakeup.notify(Signal.AGAIN)
        return refusal or Refusal(None), heard


def _next_look(now: float, refusal: Refusal, known: Awaited | None, most: float) -> Awaited:
    """When to look at a lock again, by what was said of its holder; never after a whole grant."""
    left, pause = refusal.free_in, 0.0
    if refusal.holder is None or left is None:  # it went to somebody, or is free, since
        left = FIRST_LOOK
    elif not refusal.holder.endswith((HANDS_OFF, REST)):
        pause = min(2 * known.pause, LAST_LOOK) if known and known.pause else FIRST_LOOK
        left = min(left, pause)
    return Awaited(now + min(left + AFTER, most), pause, most)
