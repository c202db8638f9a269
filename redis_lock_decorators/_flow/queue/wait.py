"""Waiting in a queue: the release of a lock grants it to the first waiter."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.queue import entry_requests
from redis_lock_decorators._flow.queue.claim_entry import ClaimEntry, Try
from redis_lock_decorators._flow.queue.interrupted_waiters import suspend_interrupted
from redis_lock_decorators._flow.queue.port import QueuePort
from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._flow.requests import Refusal, is_slot_moving
from redis_lock_decorators._flow.retries import with_repeats
from redis_lock_decorators._rules.durations import milliseconds

#: The queue cannot be joined, as the slot of the lock is being moved.
SLOT_MOVING = Refusal(None)
#: How many round trips a grant lasts at least: half of one for the message about it, up to two by
#: which the grant may be older, and up to two until it is renewed, as requests may be under way.
ROUND_TRIPS = 5
#: The longest grant in milliseconds; the scripts accept no longer one.
LONGEST_MS = 99_999
#: Seconds that the leader of a cohort sleeps at most, so that the others see its progress.
STEP = 1.0


class NotificationsUnavailable(Exception):
    """No message can reach this process, until ``until`` at least."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self.until = until


async def wait(
    port: QueuePort,
    claim: Claim,
    attempt: Try,
    refusal: Refusal,
    stop: float,
    pauses: Iterator[float],
) -> Refusal | None:
    """Wait for the one key of the claim until ``stop``; the last refusal, or None: it is held.

    Raises:
        NotificationsUnavailable: poll instead.
    """
    if port.slotted:  # each node has a subscriber of its own
        await with_repeats(port, partial(port.locate, claim.keys[0]), stop)
    waiting = _QueueWait(port, claim, attempt, stop, pauses)
    claim.queue_wait = waiting  # they refer to each other
    try:
        waiting.subscriber.join(waiting.waiter)
        last = await waiting.wait(refusal)
        if last is None:
            entry = None if waiting.is_confirmed else claim.queue_entry
            claim.queue_record = waiting.subscriber.enter(claim.identifier, claim, entry)
            claim.queue_entry = None
    finally:
        try:
            waiting.subscriber.leave(waiting.waiter)
            await waiting.leave_former()
        except BaseException:  # from outside; a waiter that remains would keep it subscribed
            waiting.subscriber.leave(waiting.waiter)
            raise
        finally:
            claim.queue_wait = None
    return last


class _QueueWait(ClaimEntry):
    """A claim that waits in the queue: it joins it, waits for a signal, acts on it, and again."""

    __slots__ = ("_has_wakeup", "_pauses")

    def __init__(
        self, port: QueuePort, claim: Claim, attempt: Try, stop: float, pauses: Iterator[float]
    ) -> None:
        super().__init__(port, claim, attempt, stop)
        self._pauses = pauses
        self._has_wakeup = False  # it is woken when its claim becomes the first to arrive

    async def wait(self, refusal: Refusal) -> Refusal | None:
        """Join the queue and wait for a signal by turns; the last refusal, or None: held."""
        last: Refusal | None = refusal
        while last is not None:
            if self.subscriber.admits(self.waiter) and not self.waiter.is_queued:
                last = await self._join_queue()
            if last is not None:
                last = await self._await_signal(last)
            if last is None or self._port.now() >= self._stop:
                break
            if self._port.subscriber(self._key) is not self.subscriber:
                self._move()
        return last

    async def _await_signal(self, last: Refusal) -> Refusal | None:
        """Wait for a signal and act on it; poll while none can arrive."""
        left = max(0.0, self._stop - self._port.now())
        if self._claim.cohort_waiter is not None:
            self._claim.cohort_waiter.note_progress(self._port.now())
            left = min(left, STEP)
        is_reachable = self.subscriber.is_open and self.waiter.is_queued
        signal = await self.waiter.wakeup.wait(left if is_reachable else min(self._pause(), left))
        if signal is Signal.UNAVAILABLE:
            raise NotificationsUnavailable(self.subscriber.unavailable_until)
        if signal is Signal.GRANTED:
            return await self._enter()
        if signal is Signal.VERIFY:
            self.waiter.must_verify = False  # first: a later message may say something new
            return await self._verify()
        if signal is Signal.RETRY:
            self.waiter.is_queued = False
        if signal is None and not self.subscriber.is_open and self._may_try():
            return await self._try()
        return last

    def _pause(self) -> float:
        """Seconds until the next try outside the queue.

        Infinite for a claim that is not the first here: it is woken when it is.
        """
        if not self._may_try():
            self._set_wakeup(True)
        return next(self._pauses) if self._may_try() else math.inf

    def _set_wakeup(self, is_wanted: bool) -> None:
        """Be woken when the claim becomes the first to arrive, or no longer."""
        self._has_wakeup = is_wanted
        wakeup = self.waiter.wakeup if is_wanted else None
        self._port.arrivals.set_wakeup(self._key, self._claim, wakeup)

    def _may_try(self) -> bool:
        """Whether a try outside the queue overtakes no claim of this process."""
        port = self._port
        is_last_chance = port.now() >= self._stop
        is_first = port.arrivals.is_first(self._key, self._claim)
        return is_first or is_last_chance or self.subscriber.is_failing

    async def _join_queue(self) -> Refusal | None:
        """Acquire the lock if it is free, else add an entry to its queue."""
        port, claim = self._port, self._claim
        is_used = self.waiter.queue_entry is not None and not self._is_torn
        if is_used or self.waiter.identifier != claim.identifier:
            self._move()
        if self._has_wakeup:
            self._set_wakeup(False)
        waiter, self.is_confirmed = self.waiter, False
        is_new, tries = waiter.ticket == 0 and waiter.queue_entry is None and not self._former, 0
        waiter.connection_number = self.subscriber.connection_number
        claim.has_queued = True
        channel = self.subscriber.channel
        _allow_for(claim, self.subscriber.round_trip)
        claim.queue_entry = waiter.queue_entry = f"{channel}|{claim.identifier}|{claim.grant_ms}"
        sent = port.now()
        waiter.first_sent = sent

        async def enqueue(until: float) -> Refusal | None:
            nonlocal sent, tries
            sent, tries = port.now(), tries + 1
            try:
                return await entry_requests.enqueue(
                    port, claim, waiter, channel, self._former, until
                )
            except Exception as error:
                if not is_slot_moving(port, error):
                    raise
            return SLOT_MOVING

        refusal = await with_repeats(port, enqueue, self._stop)
        self._is_torn = refusal is SLOT_MOVING
        if self._is_torn:
            return await self._try()
        self._former = ""
        if refusal is not None:
            waiter.is_queued = True
            self.subscriber.schedule_recheck(waiter.key, refusal, claim.grant_ms / 1000)
            await suspend_interrupted(port, claim, refusal.holder, self._stop)
            return refusal
        self.is_confirmed = True
        if is_new and tries == 1 and port.arrivals.is_alone(self._key, claim):
            claim.has_queued = False  # the lock was free: no entry was added
        if not claim.is_fenced_or_confirmed():
            claim.mark_held(sent)
            if port.now() < claim.deadline:
                return None
        return await with_repeats(port, self._attempt, self._stop)


def _allow_for(claim: Claim, round_trip: float) -> None:
    """Ask for a longer grant if the server is so far away that it could not be renewed in time."""
    if round_trip * ROUND_TRIPS * 1000 > claim.grant_ms:
        least = min(milliseconds(round_trip * ROUND_TRIPS), LONGEST_MS)
        claim.grant_ms = max(claim.grant_ms, min(least, claim.expire_ms))
