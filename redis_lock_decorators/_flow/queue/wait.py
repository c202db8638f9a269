"""Waiting in a queue: a lock is handed to its first waiter inside the release."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from redis_lock_decorators._flow.claim import Claim, claim_on
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.port import QueuePort
from redis_lock_decorators._flow.queue.subscriber import Subscriber
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal
from redis_lock_decorators._flow.requests import (
    ROUND_TRIP,
    Refusal,
    ask,
    cancel,
    enter,
    is_torn,
    persist,
    refusal_of,
    tidy,
    tidying,
)
from redis_lock_decorators._flow.self_waits import refuse_interrupted
from redis_lock_decorators._rules import lease_times
from redis_lock_decorators._rules.keys import with_queue

Attempt = Callable[[float], Awaitable[Refusal | None]]

#: No place in the queue can be had, as the slot of the lock is moving.
TORN = Refusal(None)
#: The part of a grant that must be left to enter without asking once more.
ENOUGH = 0.3
#: Seconds that a grant lasts of which it is known within its time when it was made at the latest.
LONG = 1.0
#: Seconds that one who waits for others too waits at once.
STEP = 1.0
#: Seconds to try to leave a place on a server that has just failed to answer.
PARTING = 0.25


class NotificationsUnavailable(Exception):
    """This process cannot be told whose turn it is; it may be from ``until`` on."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self.until = until


async def wait(
    port: QueuePort,
    claim: Claim,
    attempt: Attempt,
    refusal: Refusal,
    stop: float,
    pauses: Iterator[float],
) -> Refusal | None:
    """Wait for the one key of the claim until ``stop``; the last refusal, or None: it is held.

    Raises:
        NotificationsUnavailable: no word can come; look for the lock from time to time instead.
    """
    if port.slotted:  # each node has a listener of its own
        await persist(port, partial(port.locate, claim.keys[0]), stop)
    stand = _QueueWait(port, claim, attempt, stop, pauses)
    try:
        stand.subscriber.join(stand.waiter)
        last = await stand.wait(refusal)
        if last is None:
            entry = None if stand.is_noted else claim.queue_entry
            claim.queue_record = stand.subscriber.enter(claim.identifier, claim, entry)
            claim.queue_entry = None
    finally:
        try:
            stand.subscriber.leave(stand.waiter)
        except BaseException:  # from outside: for a turn that stays it would listen for ever
            stand.subscriber.leave(stand.waiter)
            raise
        await stand.give_up()
    return last


async def leave_queue(port: Port, claim: Claim, until: float) -> None:
    """Wait no more in the queue, but somewhere else, by another identifier.

    A copy of this request that arrives late must not meet what is held then.
    """
    if claim.queue_entry is not None:
        await cancel(port, claim, claim.queue_entry, until)
        claim.queue_entry = None
        claim.replace_identifier()


class _QueueWait:
    """One waiter in the queue: its place there, and the listener that hears for it.

    It lines up once at each place. Then it enters from there, or goes to a new one, with a new
    identifier and the old ticket: what was said of the old place, or arrives late, is of no use
    to anybody at the new one.
    """

    __slots__ = (
        "_attempt",
        "_attends",
        "_claim",
        "_former",
        "_is_refused",
        "_key",
        "_pauses",
        "_port",
        "_stop",
        "is_noted",
        "subscriber",
        "waiter",
    )

    def __init__(
        self, port: QueuePort, claim: Claim, attempt: Attempt, stop: float, pauses: Iterator[float]
    ) -> None:
        self._port = port
        self._claim = claim
        self._key = claim.keys[0]
        self._attempt = attempt
        self._stop = stop
        self._pauses = pauses
        self._attends = False  # it is told when it is the first here to look for the lock
        self._former = ""  # a place in the queue to give up for the next one
        self._is_refused = False  # no place could be had, as the slot of the lock is moving
        self.is_noted = False  # Redis knows that who was handed the lock has entered
        self.subscriber: Subscriber = port.subscriber(self._key)
        self.waiter = QueuedWaiter(self._key, claim.identifier, port.wakeup())

    async def wait(self, refusal: Refusal) -> Refusal | None:
        """Line up and listen by turns; the last refusal, or None once the lock is held."""
        last: Refusal | None = refusal
        while last is not None:
            if self.subscriber.admits(self.waiter) and not self.waiter.is_queued:
                last = await self._line_up()
            if last is not None:
                last = await self._listen(last)
            if last is None or self._port.now() >= self._stop:
                break
            self._follow()
        return last

    async def _listen(self, last: Refusal) -> Refusal | None:
        """Wait for news and heed them; while none can come, look from time to time."""
        left = max(0.0, self._stop - self._port.now())
        if self._claim.cohort_waiter is not None:  # its cohort waits as long as it takes steps
            self._claim.cohort_waiter.acts(self._port.now())
            left = min(left, STEP)
        is_notified = self.subscriber.is_open and self.waiter.is_queued
        signal = await self.waiter.wakeup.wait(left if is_notified else min(self._pause(), left))
        if signal is Signal.UNAVAILABLE:
            raise NotificationsUnavailable(self.subscriber.unavailable_until)
        if signal is Signal.GRANTED:
            return await self._enter()
        if signal is Signal.ASK:
            self.waiter.is_notified = False  # first, for what is said from now on may be new
            return await self._ask()
        if signal is Signal.AGAIN:
            self.waiter.is_queued = False
        if signal is None and not self.subscriber.is_open and self._may_look():
            return await self._look()
        return last

    def _pause(self) -> float:
        """Seconds to wait for a place to line up, before the next look.

        Very many may wait behind others: they wake only when that is of use.
        """
        if not self._may_look():
            self._attend(True)
        return next(self._pauses) if self._may_look() else math.inf

    def _attend(self, attends: bool) -> None:
        """Be told when nobody here is to look for the lock before, or not any more."""
        if attends or self._attends:
            self._attends = attends
            wakeup = self.waiter.wakeup if attends else None
            self._port.arrivals.attend(self._key, self._claim, wakeup)

    def _may_look(self) -> bool:
        """Whether it overtakes nobody here who is about to line up before it."""
        port = self._port
        is_last_chance = port.now() >= self._stop
        is_first = port.arrivals.is_first(self._key, self._claim)
        return is_first or is_last_chance or self.subscriber.is_failing

    async def _look(self) -> Refusal | None:
        """Try past the queue, and leave no place in it."""
        port, claim = self._port, self._claim
        refusal = await persist(port, self._attempt, self._stop)
        if refusal is not None:
            return refusal
        until = tidying(port, min(claim.grant_ms / 1000, ROUND_TRIP))
        await port.shield(partial(tidy, port, self._clear, until))
        self._former = ""  # for a place that could not be left its listener hands the lock on
        if port.now() < claim.deadline:
            return None
        self.waiter.is_queued = False  # that took longer than the lease: go on from a new place
        return Refusal(claim.identifier)

    async def give_up(self) -> None:
        """Let go what was handed over at a former place, if no request for the next one came back.

        Its listener does that only for words that are still to come.
        """
        former, self._former = self._former, ""
        if former:
            claim = claim_on(self._key, 1.0, former.split("|")[1])
            until = tidying(self._port, PARTING)
            leave = partial(cancel, self._port, claim, former)
            await self._port.shield(partial(tidy, self._port, leave, until))

    def _follow(self) -> None:
        """Go to the listener of today, if that is another."""
        if self._port.subscriber(self._key) is not self.subscriber:
            self._move()

    def _move(self) -> None:
        """Have a new place, and a new identifier for it."""
        port, claim, old = self._port, self._claim, self.waiter
        if old.identifier == claim.identifier:
            claim.replace_identifier()
        moved = QueuedWaiter(self._key, claim.identifier, port.wakeup())
        moved.ticket = old.ticket
        subscriber = port.subscriber(self._key)
        subscriber.join(moved)
        self.subscriber.leave(old)
        self._former = old.queue_entry or self._former
        self.subscriber, self.waiter = subscriber, moved

    async def _line_up(self) -> Refusal | None:
        """Take the lock if it is free, else a place in its queue."""
        port, claim = self._port, self._claim
        is_used = self.waiter.queue_entry is not None and not self._is_refused
        if is_used or self.waiter.identifier != claim.identifier:
            self._move()
        self._attend(False)
        waiter, self.is_noted = self.waiter, False
        is_new, tries = waiter.ticket == 0 and waiter.queue_entry is None and not self._former, 0
        waiter.session = self.subscriber.session
        claim.has_queued = True
        claim.queue_entry = waiter.queue_entry = (
            f"{self.subscriber.channel}|{claim.identifier}|{claim.grant_ms}"
        )
        sent = port.now()
        waiter.asked = sent

        async def enqueue(until: float) -> Refusal | None:
            nonlocal sent, tries
            sent, tries = port.now(), tries + 1
            try:
                return await self._enqueue(until)
            except Exception as error:
                if not is_torn(port, error):
                    raise
            return TORN

        refusal = await persist(port, enqueue, self._stop)
        self._is_refused = refusal is TORN
        if self._is_refused:
            return await self._look()
        self._former = ""
        if refusal is not None:
            waiter.is_queued = True
            self.subscriber.expect(waiter.key, refusal, self._claim.grant_ms / 1000)
            refuse_interrupted(port, claim, refusal.holder)
            return refusal
        self.is_noted = True
        if is_new and tries == 1 and port.arrivals.is_alone(self._key, claim):
            claim.has_queued = False  # it was free: no place was had, and nothing is noted of one
        if not claim.is_special():
            claim.mark_held(sent)
            if port.now() < claim.deadline:
                return None
        return await persist(port, self._attempt, self._stop)

    def _enqueue(self, until: float) -> Awaitable[Refusal | None]:
        """Ask for the lock, or for a place in its queue, in place of a former one."""
        claim, waiter = self._claim, self.waiter

        def placed(holder: Any, milliseconds: int, ticket: int) -> Refusal:
            waiter.ticket = int(ticket)
            return refusal_of(holder, milliseconds)

        details = (
            claim.expire_ms,
            self.subscriber.channel,
            claim.grant_ms,
            waiter.ticket,
            self._former,
        )
        keys = with_queue(claim.keys)
        return ask(self._port, "enqueue", claim, keys, *details, until=until, read=placed)

    async def _clear(self, until: float) -> None:
        """Leave no place in the queue of a lock that was taken past it.

        While its slot is moving no place can be left, nor is the lock handed to anybody there.
        """
        claim, entry = self._claim, self.waiter.queue_entry or self._former
        try:
            if not entry or await enter(self._port, claim, entry, 0, until) is None:
                self.is_noted = True
                return
        except Exception as error:
            if not is_torn(self._port, error):
                raise
            return
        await cancel(self._port, claim, entry, until)

    async def _enter(self) -> Refusal | None:
        """Hold the lock that was handed over; ask Redis first, if that may have been long ago.

        The word of it does not say when it was. But nobody can be handed a lock by an identifier
        that Redis has not seen yet; and messages and answers to PING come in the order in which the
        server wrote them, so no grant is older than the last PING that was answered before the word
        of it.
        """
        port, claim = self._port, self._claim
        granted = claim.grant_ms / 1000
        after = max(self.waiter.asked, self.waiter.evidence)
        left = lease_times.deadline(after, granted) - port.now()
        is_enough = claim.renews or claim.grant_ms >= claim.expire_ms
        if left <= 0 and granted >= LONG and not claim.is_special():
            # Others may be lining up anew already: to ask before that would be to go behind them.
            self.waiter.is_queued = False
            return Refusal(None)
        if claim.is_special() or not is_enough or left < ENOUGH * granted:
            return await self._ask()
        claim.since = after
        claim.set_term(after, granted)
        return None

    async def _ask(self) -> Refusal | None:
        """Hold the lock if Redis says that it was handed over."""
        waiter, port = self.waiter, self._port
        if self._claim.is_special():
            waiter.is_queued = False
            return await persist(port, self._attempt, self._stop)
        refusal = await persist(port, self._learn, self._stop)
        if refusal is not None:
            self.subscriber.expect(waiter.key, refusal, self._claim.grant_ms / 1000)
        return refusal

    async def _learn(self, until: float) -> Refusal | None:
        claim, waiter, sent = self._claim, self.waiter, self._port.now()

        def read(holder: Any, milliseconds: int, stands: int) -> Refusal:
            waiter.is_queued = stands == 1 and not waiter.is_proved
            return refusal_of(holder, milliseconds)

        entry = waiter.queue_entry or ""
        try:
            refusal = await enter(self._port, claim, entry, claim.expire_ms, until, read)
        except Exception as error:
            if not is_torn(self._port, error):
                raise
            return await self._attempt(until)  # whose identifier it holds takes it again
        if refusal is not None:
            return refusal
        self.is_noted = True
        claim.mark_held(sent)
        if self._port.now() < claim.deadline:
            return None
        waiter.is_queued = False  # it is known too late: another place takes its turn
        return Refusal(claim.identifier)
