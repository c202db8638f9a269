"""When to look at a lock that somebody waits for, as its holder may be dead or tell nobody."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from redis_lock_decorators.flow.claim import HANDS_ON, claim_on
from redis_lock_decorators.flow.loop import Loop
from redis_lock_decorators.flow.port import Port
from redis_lock_decorators.flow.requests import Refusal, ask, persist, refusal_of
from redis_lock_decorators.flow.turn import News, Turn
from redis_lock_decorators.rules.keys import with_queue

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
        grant: seconds that it is handed over for: longer it is never out of sight.
    """

    due: float
    pause: float
    grant: float


class Lookout:
    """Looks at the locks that the waiters of one channel wait for.

    Attributes:
        awaited: the locks, by their keys.
    """

    def __init__(self, loop: Loop, port: Port, channel: str) -> None:
        self.awaited: dict[bytes, Awaited] = {}
        self._loop = loop
        self._port = port
        self._channel = channel

    def expect(self, key: bytes, refusal: Refusal, grant: float) -> float:
        """Look at a lock when its lease must be over, and once in a ``grant``; returns when."""
        known = self.awaited.get(key) or Awaited(0.0, 0.0, grant)
        self.awaited[key] = awaited = _next_look(self._loop.now(), refusal, known)
        return awaited.due

    def due(self, now: float, keys: set[bytes]) -> list[bytes]:
        """The locks of ``keys`` to look at now; nobody waits for any other."""
        due = []
        for key, awaited in list(self.awaited.items()):
            if key not in keys:
                self.awaited.pop(key, None)
            elif awaited.due <= now:
                self.awaited[key] = awaited._replace(due=now + SILENCE)
                due.append(key)
        return due

    def first_due(self) -> float:
        """When to look at the first; infinity if there is none."""
        return min([awaited.due for awaited in list(self.awaited.values())], default=math.inf)

    async def poke(self, key: bytes, turns: list[Turn]) -> None:
        """Have a lapsed lock handed on, and tell those who fell out of the queue."""
        for start in range(0, len(turns), MOST_PLACES):
            refusal = await self._look_for(key, turns[start : start + MOST_PLACES])
            known = self.awaited.get(key)
            if known is not None:
                self.awaited[key] = _next_look(self._loop.now(), refusal, known)

    async def _look_for(self, key: bytes, turns: list[Turn]) -> Refusal:
        port, claim = self._loop.port(self._port), claim_on(key, 1.0, self._channel)
        places = [turn.place or "" for turn in turns]
        missing: list[int] = []

        def read(holder: Any, left: int, *numbers: int) -> Refusal:
            missing[:] = numbers
            return refusal_of(holder, left)

        async def poke(until: float) -> Refusal | None:
            keys = with_queue((key,))
            return await ask(port, "poke", claim, keys, *places, until=until, read=read)

        refusal = await persist(port, poke, self._loop.now() + SILENCE)
        for number in missing:
            turns[number].waiter.tell(News.AGAIN)
        return refusal or Refusal(None)


def _next_look(now: float, refusal: Refusal, known: Awaited) -> Awaited:
    """When to look at a lock again, by what was said of its holder."""
    left, pause = refusal.free_in, 0.0
    if refusal.holder is None or left is None:  # it went to somebody, or is free, since
        left = FIRST_LOOK
    elif not refusal.holder.endswith((HANDS_ON, ":rest")):
        pause = min(2 * known.pause, LAST_LOOK) if known.pause else FIRST_LOOK
        left = min(left, pause)
    return Awaited(now + min(left + AFTER, known.grant), pause, known.grant)
