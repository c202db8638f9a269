"""The entry by which a claim waits in a queue, and the ways in which it comes to hold the lock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.queue import entry_requests
from redis_lock_decorators._flow.queue.port import QueuePort
from redis_lock_decorators._flow.queue.subscriber import Subscriber
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter
from redis_lock_decorators._flow.requests import Refusal, cancel, enter, is_slot_moving
from redis_lock_decorators._flow.retries import clean_up, cleanup_limits, with_repeats
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._rules import lease_times

#: One try to acquire the lock outside the queue, with the latest time for a reply.
Try = Callable[[float], Awaitable[Refusal | None]]

#: The part of a grant that must remain to enter without asking Redis.
LEAST_SHARE = 0.3
#: Grants at least so long, in seconds, can be dated by the answers to PING before they expire.
LONG = 1.0


class ClaimEntry:
    """A claim and its present queue entry.

    Each entry is asked for once. Then the claim enters by it, or moves to a new entry with a new
    identifier and the old ticket: messages about the old entry, and late copies of its requests,
    are of no use at the new one.

    Attributes:
        is_confirmed: Redis knows that the lock was entered.
        subscriber: receives the messages about the entry.
        waiter: the entry as its subscriber knows it; signals about the entry wake it.
    """

    __slots__ = (
        "_attempt",
        "_claim",
        "_former",
        "_is_torn",
        "_key",
        "_port",
        "_stop",
        "is_confirmed",
        "subscriber",
        "waiter",
    )

    def __init__(self, port: QueuePort, claim: Claim, attempt: Try, stop: float) -> None:
        self._port = port
        self._claim = claim
        self._key = claim.keys[0]
        self._attempt = attempt
        self._stop = stop
        self._former = ""  # an entry to be replaced by the next one
        self._is_torn = False  # the slot of the lock was being moved
        self.is_confirmed = False
        self.subscriber: Subscriber = port.subscriber(self._key)
        self.waiter = QueuedWaiter(self._key, claim.identifier, port.wakeup())

    async def leave_former(self) -> None:
        """Leave the former entry, if the request for the next one was not answered."""
        if self._former:
            await entry_requests.leave_former(self._port, self._key, self._former)
            self._former = ""

    def entries(self) -> list[str]:
        """The present entry and the one that it replaces: either may be in the queue."""
        return [entry for entry in (self._claim.queue_entry, self._former) if entry]

    def _move(self) -> None:
        """Prepare a new entry with a new identifier, at the present subscriber."""
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

    async def _try(self) -> Refusal | None:
        """Try the lock outside the queue; if it is acquired, leave the queue."""
        port, claim = self._port, self._claim
        refusal = await with_repeats(port, self._attempt, self._stop)
        if refusal is not None:
            return refusal
        until = cleanup_limits(port, min(claim.grant_ms / 1000, ROUND_TRIP))
        await port.shield(partial(clean_up, port, self._leave_queue, until))
        self._former = ""  # should that fail, the subscriber releases what is granted to it
        if port.now() < claim.deadline:
            return None
        self.waiter.is_queued = False  # it took longer than the lease: continue with a new entry
        return Refusal(claim.identifier)

    async def _leave_queue(self, until: float) -> None:
        """Remove the entry of a claim that acquired the lock outside the queue.

        While its slot is moving that is impossible, but the lock is granted to no entry then.
        """
        claim, entry = self._claim, self.waiter.queue_entry or self._former
        try:
            if not entry or await enter(self._port, claim, entry, 0, until) is None:
                self.is_confirmed = True
                return
        except Exception as error:
            if not is_slot_moving(self._port, error):
                raise
            return
        await cancel(self._port, claim, entry, until)

    async def _enter(self) -> Refusal | None:
        """Hold the lock that was granted; ask Redis first if that may be long ago.

        The message does not say when the grant was made. But it was made after the identifier was
        sent first. Messages and answers to PING arrive in the order in which the server wrote them,
        so it was also made after the last PING was sent that was answered before the message.
        """
        port, claim = self._port, self._claim
        granted = claim.grant_ms / 1000
        not_before = max(self.waiter.first_sent, self.waiter.not_before)
        end = lease_times.deadline(not_before, granted)
        left = end - port.now()
        is_long_enough = claim.renews or claim.grant_ms >= claim.expire_ms
        if left <= 0 and granted >= LONG and not claim.is_fenced_or_confirmed():
            # Other waiters may join the queue again already, and would overtake this one while it
            # asks.
            self.waiter.is_queued = False
            return Refusal(None)
        if claim.is_fenced_or_confirmed() or not is_long_enough or left < LEAST_SHARE * granted:
            return await self._verify()
        claim.since, claim.duration, claim.deadline = not_before, granted, end
        return None

    async def _verify(self) -> Refusal | None:
        """Hold the lock if Redis says that it was granted."""
        waiter, port = self.waiter, self._port
        if self._claim.is_fenced_or_confirmed():
            waiter.is_queued = False
            return await with_repeats(port, self._attempt, self._stop)
        refusal = await with_repeats(port, self._verify_once, self._stop)
        if refusal is not None:
            self.subscriber.schedule_recheck(waiter.key, refusal, self._claim.grant_ms / 1000)
        return refusal

    async def _verify_once(self, until: float) -> Refusal | None:
        claim, sent = self._claim, self._port.now()
        try:
            refusal = await entry_requests.verify(self._port, claim, self.waiter, until)
        except Exception as error:
            if not is_slot_moving(self._port, error):
                raise
            return await self._attempt(until)  # acquires it again if it holds our identifier
        if refusal is not None:
            return refusal
        self.is_confirmed = True
        claim.mark_held(sent)
        if self._port.now() < claim.deadline:
            return None
        self.waiter.is_queued = False  # the reply was too late: continue with a new entry
        return Refusal(claim.identifier)
