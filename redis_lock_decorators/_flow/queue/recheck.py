"""When to recheck an awaited lock: its holder may have crashed, or may send no message."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from redis_lock_decorators._flow.background import Loop
from redis_lock_decorators._flow.claim import claim_on
from redis_lock_decorators._flow.identifiers import GRANTS, REST
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal
from redis_lock_decorators._flow.requests import OtherData, Refusal, ask, is_slot_moving, refusal_of
from redis_lock_decorators._flow.retries import with_repeats
from redis_lock_decorators._rules.due_times import DueTimes
from redis_lock_decorators._rules.keys import with_queue
from redis_lock_decorators._rules.options import LONGEST_GRANT

#: Seconds after which a reply is no longer expected.
REPLY_SILENCE = 2.5
#: Seconds after the end of a lease at which to check that the key has expired.
AFTER = 0.002
#: Seconds between two checks of a lock whose holder sends no message, at first and at most.
RECHECK_PAUSE, LONGEST_RECHECK_PAUSE = 0.025, 0.25
#: The slot of a lock is being moved: its waiters poll, and no message is sent.
SLOT_MOVING = Refusal("", math.inf)
#: Waiters per request.
MOST_ENTRIES = 500
#: Rechecks under way at a time: the event loop has other work too, such as renewals.
MOST_AT_ONCE = 100
#: If more are due, the next ones start after a pause as long as these took, in seconds at most.
LONGEST_YIELD = 0.25


class Awaited(NamedTuple):
    """When to check a lock that is waited for; times are seconds.

    Attributes:
        due: the time of the next check.
        pause: between two checks if its holder will send no message; 0 if it will.
        most: between two checks at most: the shortest grant of its waiters.
    """

    due: float
    pause: float
    most: float = LONGEST_GRANT


class Observation(NamedTuple):
    """What a reply said about a lock, and when it arrived."""

    at: float
    refusal: Refusal
    most: float


class Rechecks:
    """Checks the locks that the waiters of one channel wait for.

    Waiters schedule checks from any thread, each by one assignment; the rest runs on the event
    loop. Observations of waiters with different grants do not replace each other, so that the
    shortest grant counts.

    Very many locks cannot all be rechecked in time. Then they are rechecked in the order in which
    they are due, in at most half of the event loop's time.
    """

    def __init__(self, loop: Loop, port: Port, channel: str) -> None:
        #: loop only
        self._awaited: dict[bytes, Awaited] = {}
        self._due_times = DueTimes()
        self._under_way: dict[bytes, float] = {}  # when each recheck was started
        self._is_crowded = False  # more were due than could be started
        self._resumes_at = -math.inf
        self._observed: dict[tuple[bytes, float], Observation] = {}  #: any thread
        self._loop = loop
        self._port = port
        self._channel = channel

    def schedule(self, key: bytes, refusal: Refusal, grant: float) -> float:
        """Schedule a check of a lock, by what a reply said; returns when it is due at most.

        Args:
            grant: for how many seconds the lock may be granted to that waiter.
        """
        now, most = self._loop.now(), min(max(grant, LONGEST_RECHECK_PAUSE), LONGEST_GRANT)
        self._observed[key, most] = Observation(now, refusal, most)
        left, _ = _until_free(refusal, None)
        return now + min(left + AFTER, most)

    def absorb(self) -> bool:
        """Apply what waiters have scheduled; whether there was anything."""
        new = list(self._observed.copy().items())
        for entry, observation in new:
            self._merge(entry[0], observation, is_recheck=False)
            last = self._observed.pop(entry)
            if last is not observation:  # another thread has replaced it
                self._merge(entry[0], last, is_recheck=False)
        return bool(new)

    def due(
        self, now: float, waiting: Callable[[bytes], list[QueuedWaiter]]
    ) -> list[tuple[bytes, list[QueuedWaiter]]]:
        """The locks to check now, each with its waiters; locks without waiters are dropped.

        Must be called after ``absorb``: its observations are those of waiters that ``waiting``
        finds. ``end`` must be called after each recheck.
        """
        due: list[tuple[bytes, list[QueuedWaiter]]] = []
        if now < self._resumes_at:
            return due
        while (key := self._due_times.first(now)) is not None:
            waiters, awaited = waiting(key), self._awaited.get(key)
            if awaited is None or not waiters:
                self._awaited.pop(key, None)
                self._due_times.discard(key)
            elif len(self._under_way) >= MOST_AT_ONCE:
                break
            else:
                self._set(key, awaited._replace(due=now + REPLY_SILENCE))
                self._under_way[key] = now
                due.append((key, waiters))
        self._is_crowded = key is not None
        return due

    def end(self, key: bytes) -> None:
        """Note that a recheck has ended; a second call does nothing."""
        started = self._under_way.pop(key, None)
        if self._is_crowded and started is not None:
            now = self._loop.now()
            self._resumes_at = now + min(now - started, LONGEST_YIELD)

    def first_due(self) -> float:
        """When the first check is due; infinity if there is none or as many as allowed run."""
        if len(self._under_way) >= MOST_AT_ONCE:
            return math.inf
        return max(self._due_times.next(), self._resumes_at)

    async def recheck(self, key: bytes, waiters: list[QueuedWaiter]) -> bool:
        """Have an expired lock granted, and wake waiters that are no longer in the queue.

        Returns whether the server counts a subscription to our channel, as far as it may be asked.
        """
        is_subscribed = True
        for start in range(0, len(waiters), MOST_ENTRIES):
            part = waiters[start : start + MOST_ENTRIES]
            refusal, subscribers = await self._recheck_part(key, part)
            is_subscribed = is_subscribed and subscribers != 0
            if key in self._awaited:
                observation = Observation(self._loop.now(), refusal, LONGEST_GRANT)
                self._merge(key, observation, is_recheck=True)
        return is_subscribed

    def _merge(self, key: bytes, observation: Observation, is_recheck: bool) -> None:
        """Set the next check. Only a check that was made may move it back: no new waiter may."""
        known = self._awaited.get(key)
        most = observation.most if known is None else min(known.most, observation.most)
        following = _next_check(
            observation.at, observation.refusal, known if is_recheck else None, most
        )
        if known is not None:
            is_done = is_recheck and known.due <= self._loop.now()
            due = following.due if is_done else min(known.due, following.due)
            pause = following.pause if is_recheck else known.pause or following.pause
            following = Awaited(due, pause, most)
        self._set(key, following)

    def _set(self, key: bytes, awaited: Awaited) -> None:
        self._due_times.set(key, awaited.due)  # first: an interrupt must not lose the recheck
        self._awaited[key] = awaited

    async def _recheck_part(self, key: bytes, waiters: list[QueuedWaiter]) -> tuple[Refusal, int]:
        """Recheck for some waiters; returns the refusal and the number of subscriptions, or -1."""
        port, claim = self._loop.port(self._port), claim_on(key, 1.0, self._channel)
        entries = [waiter.queue_entry or "" for waiter in waiters]
        missing: list[int] = []
        subscribers = -1

        def read(holder: Any, left: int, count: int, *numbers: int) -> Refusal:
            nonlocal subscribers
            subscribers = count
            missing[:] = numbers
            return refusal_of(holder, left)

        async def recheck(until: float) -> Refusal | None:
            keys = with_queue((key,))
            try:
                return await ask(port, "recheck", claim, keys, *entries, until=until, read=read)
            except Exception as error:
                if not is_slot_moving(port, error) and not isinstance(error, OtherData):
                    raise
                missing[:] = range(len(waiters))  # each waiter must try on its own
                return SLOT_MOVING if is_slot_moving(port, error) else None

        refusal = await with_repeats(port, recheck, self._loop.now() + REPLY_SILENCE)
        for number in missing:
            waiters[number].wakeup.notify(Signal.RETRY)
        return refusal or Refusal(None), subscribers


def _next_check(now: float, refusal: Refusal, known: Awaited | None, most: float) -> Awaited:
    """When to check a lock again, by what a reply said about its holder."""
    left, pause = _until_free(refusal, known)
    return Awaited(now + min(left + AFTER, most), pause, most)


def _until_free(refusal: Refusal, known: Awaited | None) -> tuple[float, float]:
    """In how many seconds a lock may be free, and the pause if its holder sends no message."""
    left, pause = refusal.free_in, 0.0
    if refusal.holder is None or left is None:  # it was free, or has been granted since
        left = RECHECK_PAUSE
    elif not refusal.holder.endswith((GRANTS, REST)):
        pause = (
            min(2 * known.pause, LONGEST_RECHECK_PAUSE) if known and known.pause else RECHECK_PAUSE
        )
        left = min(left, pause)
    return left, pause
