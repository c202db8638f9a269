"""Receives grant messages for all waiters of an event loop (or of all threads) at one node."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from redis_lock_decorators._flow.background import Subscription
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.queue.entries import Received
from redis_lock_decorators._flow.queue.entry_records import AbandonedEntry, EnteredClaim
from redis_lock_decorators._flow.queue.entry_requests import confirm, release_abandoned
from redis_lock_decorators._flow.queue.reachability import Reachability
from redis_lock_decorators._flow.queue.recheck import AFTER, REPLY_SILENCE, Rechecks
from redis_lock_decorators._flow.queue.subscriber_connection import SubscriberConnection
from redis_lock_decorators._flow.queue.subscriber_port import SubscriberLoop, SubscriberPort
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal
from redis_lock_decorators._flow.requests import Refusal, is_forbidden
from redis_lock_decorators._rules import messages

#: Seconds of delay by which a tick shows that something has blocked the event loop.
LATE_TICK = 0.25
#: Seconds to remain subscribed without waiters.
LINGER = 1.0


class Subscriber(SubscriberConnection):
    """Receives grant messages on one channel at one node, and wakes the waiters.

    Waiters join, leave and enter from any thread; the rest runs on the event loop.
    """

    def __init__(
        self,
        lease_loop: SubscriberLoop,
        port: SubscriberPort,
        channel: str,
        key: bytes,
        end: Callable[[Subscriber], object],
        reachability: Reachability | None = None,
    ) -> None:
        super().__init__(lease_loop, port, channel, key, end, reachability)
        self._rechecks = Rechecks(lease_loop, port, channel)  #: any thread
        self._was_late = False  #: loop only

    def join(self, waiter: QueuedWaiter) -> None:
        """Add a waiter; it is notified when it may join the queue, unless it may now."""
        self._entries.join(waiter)
        # The loop notifies all waiters after it has changed one of these flags.
        if self._is_unavailable:
            waiter.wakeup.notify(Signal.UNAVAILABLE)
        elif self._has_ended:
            waiter.wakeup.notify(Signal.RETRY)
        elif not self.is_open or self._admission:
            self._admission.add(waiter)
            self._lease_loop.wanted.add(self)
            self._lease_loop.call(self.open)

    def admits(self, waiter: QueuedWaiter) -> bool:
        """Whether a waiter may join the queue now."""
        return self.is_open and not waiter.awaits_admission

    def enter(self, identifier: str, claim: Claim, entry: str | None = None) -> EnteredClaim:
        """Record that a claim holds the lock; a message about its grant may still arrive.

        Args:
            identifier: the identifier.
            claim: the claim.
            entry: its queue entry, if its entry is still to be confirmed to Redis.
        """
        now, confirm_at = self._lease_loop.now(), math.inf
        if entry is not None:  # in time even if little is left of a short grant
            confirm_at = now + min(claim.grant_ms / 3000, max(0.0, claim.deadline - now) / 2)
        known_until = now + claim.grant_ms / 1000
        entered = EnteredClaim(claim, identifier, entry or "", confirm_at, known_until)
        self._entries.enter(entered)
        if entered.confirm_at < self._wakes_at:
            self._lease_loop.call(self.tick)
        return entered

    def leave(self, waiter: QueuedWaiter) -> None:
        """Remove a waiter and abandon its entry."""
        self._entries.leave(waiter)
        if not self._entries and not self._is_alive:  # ``join`` was interrupted
            self._lease_loop.wanted.discard(self)

    def close_unused(self) -> None:
        """Close its connection if nobody waits, without a wait for further use. Loop only."""
        if self._subscription is not None and not self._entries:
            self._close(self._subscription)

    def schedule_recheck(self, key: bytes, refusal: Refusal, grant: float) -> None:
        """Recheck an awaited lock when its lease must be over, and every ``grant`` seconds."""
        if self._rechecks.schedule(key, refusal, grant) < self._wakes_at:
            self._lease_loop.call(self.tick)

    def tick(self) -> None:
        """Do what is due: time limits, PING, confirmations and rechecks. Loop only."""
        subscription, now, wakes_at = self._subscription, self._lease_loop.now(), self._wakes_at
        self._wakes_at = math.inf
        if subscription is None:
            return
        if self._defer_if_late(now, wakes_at):
            return
        if not self.is_open:
            if now >= self._opens_by:
                self._close(subscription)
            return
        self._rechecks.absorb()
        if self._entries:
            self._last_used = now
        elif now >= self._last_used + LINGER:
            self._close(subscription)
            return
        if self._session.is_silent(now):
            self._close(subscription)
            return
        if now >= self._session.next_ping() and self._entries:
            self._session.note_ping(now)
            self._lease_loop.start(subscription.send("PING", repr(now)))
            self._admission.step()  # its next step may have been lost, as by an interrupt
        for entered in self._entries.to_confirm(now):
            self._lease_loop.start(self._confirm(entered))
        for key, waiters in self._rechecks.due(now, self._entries.waiting):
            queued = [waiter for waiter in waiters if waiter.is_queued]
            self._lease_loop.start(self._recheck(key, queued), partial(self._recheck_ended, key))
        self._wake_in_time()

    def _defer_if_late(self, now: float, wakes_at: float) -> bool:
        """If something has blocked the loop, wake up later, so that arrived data is read first."""
        self._was_late = now > wakes_at + LATE_TICK and not self._was_late
        if self._was_late:
            if not self.is_open:
                self._limit_opening()
            elif self._timer is not None:
                self._wakes_at = now + LATE_TICK
                self._timer.set(self._wakes_at)
        return self._was_late

    def _wake_in_time(self) -> None:
        """Set the timer for what is due next."""
        if self._timer is None:
            return
        while True:
            regular = self._session.next_ping() if self._entries else self._last_used + LINGER
            confirmation = self._entries.next_confirmation(self._lease_loop.now())
            due = min(regular, self._rechecks.first_due(), confirmation)
            self._wakes_at = due
            if not self._rechecks.absorb():  # else a waiter relied on the former ``_wakes_at``
                break
        self._timer.set(max(due, self._lease_loop.now() + AFTER))

    def _on_message(self, message: Any) -> None:
        """Handle a reply or a message; unknown ones are ignored."""
        if self.is_copy:
            return
        if not self._session.has_info:
            self._session.note_info(message)
            return
        if isinstance(message, Exception):
            raise message
        kind = message[0] if isinstance(message, list) and message else None
        if kind == b"message":
            self._on_channel_message(message[-1])
        elif kind == b"pong":
            self._reachability.note_pong()
            self._session.note_pong(message[-1], self._lease_loop.now())
        elif kind == b"subscribe":
            self._lease_loop.start(self._begin())

    def _on_channel_message(self, data: bytes) -> None:
        message = messages.parsed(data)
        if message is None:
            return
        if message.kind == b"turn":
            self._reachability.note_grant()
        session, now = self._session, self._lease_loop.now()
        received = Received(self.connection_number, session.run_id, session.not_before, now)
        abandoned = self._entries.receive(message, received)
        if abandoned is not None:
            self._lease_loop.start(self._release_abandoned(abandoned))

    async def _release_abandoned(self, entry: AbandonedEntry) -> None:
        port = self._lease_loop.port(self._port)
        await release_abandoned(port, entry, self._lease_loop.now() + REPLY_SILENCE)

    async def _confirm(self, entered: EnteredClaim) -> None:
        port = self._lease_loop.port(self._port)
        await confirm(port, entered, self._lease_loop.now() + REPLY_SILENCE)

    async def _recheck(self, key: bytes, waiters: list[QueuedWaiter]) -> None:
        subscription = self._subscription
        try:
            is_subscribed = await self._rechecks.recheck(key, waiters)
        except Exception as error:
            if not is_forbidden(self._port, error):
                raise
            self._forbid(error)
            return
        if not is_subscribed and subscription is not None and subscription is self._subscription:
            self._on_other_server(subscription, waiters)

    def _recheck_ended(self, key: bytes) -> None:
        self._rechecks.end(key)
        self._wake_in_time()

    def _on_other_server(self, subscription: Subscription, waiters: list[QueuedWaiter]) -> None:
        """Move the waiters: the server that stores the lock does not know our subscription."""
        if self._port.slotted:
            for waiter in waiters:
                waiter.wakeup.notify(Signal.RETRY)
        else:
            self._close(subscription)
