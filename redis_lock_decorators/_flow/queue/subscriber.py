"""Hearing whose turn it is, for all waiters of an event loop (or of all threads) at one node."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from redis_lock_decorators._flow.background import Alarm, Subscription
from redis_lock_decorators._flow.claim import Claim, claim_on
from redis_lock_decorators._flow.queue.admission import Admission
from redis_lock_decorators._flow.queue.entries import Entered, Left, QueueEntries, Received
from redis_lock_decorators._flow.queue.reachability import Reachability
from redis_lock_decorators._flow.queue.recheck import AFTER, SILENCE, Rechecks
from redis_lock_decorators._flow.queue.subscriber_port import SubscriberLoop, SubscriberPort
from redis_lock_decorators._flow.queue.subscription_check import NotReceived, refuse_unheard
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal
from redis_lock_decorators._flow.requests import (
    Refusal,
    cancel,
    enter,
    is_forbidden,
    is_torn,
    is_unknown,
    persist,
)
from redis_lock_decorators._flow.timeouts import Until
from redis_lock_decorators._rules import delays, messages

#: Seconds between two PINGs: every grant is known not to be older than the last answered one.
PING = 0.4
#: Seconds by which it is called late if something has blocked its event loop.
LATE = 0.25
#: Seconds that a listener stays when nobody waits any more.
LINGER = 1.0


class Subscriber:
    """Hears, on one channel at one node, whose turn it is.

    Waiters join and leave from any thread; all else runs on the event loop. It ends once, when
    nobody has waited for a while, or nobody can be told: who comes then is told to follow to
    another. Each step of opening a line is limited in time, and while none is open the waiters
    look by themselves.

    Attributes:
        channel: where this listener is told.
        is_open: it can be told.
        is_failing: no line could be opened when that was tried last.
        session: which connection it hears on.
    """

    def __init__(
        self,
        lease_loop: SubscriberLoop,
        port: SubscriberPort,
        channel: str,
        key: bytes,
        end: Callable[[Subscriber], object],
        hearing: Reachability | None = None,
    ) -> None:
        self.channel = channel
        self._end = end
        self.is_open = self.is_failing = False
        self.session = 0
        self._lease_loop = lease_loop
        self._port = port
        self._key = key  # any key of the node
        self._entries = QueueEntries()
        self._admission = Admission(lease_loop)
        self._rechecks = Rechecks(lease_loop, port, channel)
        self._alarm: Alarm | None = None
        self._was_late = False
        self._wakes_at = math.inf
        self._subscription: Subscription | None = None
        self._opens_by = math.inf
        self._reachability = hearing or Reachability()
        self._is_unavailable = lease_loop.now() < self._reachability.unavailable_until
        self._is_alive = self._has_ended = self._has_opened = False
        self._run_id: bytes | None = None
        self._is_introduced = False
        self._evidence = -math.inf
        self._pinged = self._left = 0.0
        self._unanswered: float | None = None

    @property
    def is_unavailable(self) -> bool:
        """Whether nobody can be told here."""
        return self._is_unavailable

    @property
    def unavailable_until(self) -> float:
        """When another listener may be told."""
        return self._reachability.unavailable_until

    def join(self, waiter: QueuedWaiter) -> None:
        """Let a waiter be told. Unless this is open, it is told when it is."""
        self._entries.join(waiter)
        # Whoever changes one of these flags tells all who have joined, afterwards.
        if self._is_unavailable:
            waiter.wakeup.notify(Signal.UNAVAILABLE)
        elif self._has_ended:
            waiter.wakeup.notify(Signal.AGAIN)
        elif not self.is_open or self._admission:
            self._admission.add(waiter)
            self._lease_loop.wanted.add(self)
            self._lease_loop.call(self.open)

    def admits(self, waiter: QueuedWaiter) -> bool:
        """Whether a waiter may line up now: it can be told, and nobody is to do so before it."""
        return self.is_open and not waiter.is_outside

    def enter(self, identifier: str, claim: Claim, entry: str | None = None) -> Entered:
        """Know that a claim is held by an identifier, whose turn may be told yet.

        Args:
            identifier: the identifier.
            claim: the claim.
            entry: where it stood in the queue, if Redis does not know yet that it entered.
        """
        now, note_at = self._lease_loop.now(), math.inf
        if entry is not None:  # soon enough, also where little of a short grant is left
            note_at = now + min(claim.grant_ms / 3000, max(0.0, claim.deadline - now) / 2)
        entered = Entered(claim, identifier, entry or "", note_at, now + claim.grant_ms / 1000)
        self._entries.enter(entered)
        if entered.note_at < self._wakes_at:
            self._lease_loop.call(self.tick)
        return entered

    def leave(self, waiter: QueuedWaiter) -> None:
        """Tell a waiter nothing more; its place is dead."""
        self._entries.leave(waiter)
        if not self._entries and not self._is_alive:  # who joined was interrupted at it
            self._lease_loop.wanted.discard(self)

    def expect(self, key: bytes, refusal: Refusal, grant: float) -> None:
        """Look at an awaited lock when its lease must be over, and once in a ``grant``."""
        if self._rechecks.expect(key, refusal, grant) < self._wakes_at:
            self._lease_loop.call(self.tick)

    def open(self) -> None:
        """Begin to listen, unless that has begun; on the event loop."""
        if self._has_ended:
            self._lease_loop.wanted.discard(self)
            self._tell_all(Signal.AGAIN)
            self._lease_loop.rest()
        elif self.is_open:
            self._admission.resume()
        elif not self._is_alive and self._entries:
            self._is_alive = True
            self._lease_loop.wanted.add(self)
            self._lease_loop.start(self._live(), self._stop)
        elif not self._is_alive:  # who joined has left before this: it would be wanted for ever
            self._stop()

    def tick(self) -> None:
        """Do what is due."""
        subscription, now, wakes_at = self._subscription, self._lease_loop.now(), self._wakes_at
        self._wakes_at = math.inf
        if subscription is None:
            return
        if self._is_woken_late(now, wakes_at):
            return
        if not self.is_open:
            if now >= self._opens_by:
                self._close(subscription)  # it leads nowhere: connect anew
            return
        self._rechecks.absorb()
        if self._entries:
            self._left = now
        elif now >= self._left + LINGER:
            self._close(subscription)
            return
        if self._unanswered is not None and now >= self._unanswered + SILENCE:
            self._close(subscription)  # it is half open: connect anew
            return
        if now >= self._pinged + PING and self._entries:
            self._pinged = now
            self._unanswered = self._unanswered or now
            self._lease_loop.start(subscription.send("PING", repr(now)))
            self._admission.step()  # if what was to go on with it was lost, as by an interrupt
        for entered in self._entries.to_note(now):
            self._lease_loop.start(self._note(entered))
        for key, waiters in self._rechecks.due(now, self._entries.waiting):
            self._lease_loop.start(
                self._recheck(key, [waiter for waiter in waiters if waiter.is_queued])
            )
        self._wake_at()

    async def _live(self) -> None:
        pauses = delays.recovering(self._lease_loop.random)
        while self._entries and not self._is_unavailable:
            try:
                await self._listen()
            except Exception as error:
                self._judge(error)
            self.is_open = False
            self.is_failing = not self._has_opened
            if self._has_opened:
                pauses = delays.recovering(self._lease_loop.random)
            self._entries.forget_gone()  # no tick comes by while no line is open
            self._tell_all(Signal.AGAIN)  # to look by themselves meanwhile
            if self._entries:
                await self._lease_loop.sleep(next(pauses))

    def _stop(self) -> None:
        """Be over, after ``_live``, also if that was cancelled before its first step."""
        self.is_open = self._is_alive = False
        self._lease_loop.wanted.discard(self)
        self._end(self)
        self._has_ended = True
        # Somebody may have come in the last moment.
        self._tell_all(Signal.UNAVAILABLE if self._is_unavailable else Signal.AGAIN)
        self._lease_loop.rest()

    async def _listen(self) -> None:
        """Hear until the line breaks, or nobody is left."""
        self._has_opened = False
        self._subscription = subscription = await self._lease_loop.port(self._port).subscription(
            self._key
        )
        self._run_id, self._is_introduced = None, False
        self._alarm = self._lease_loop.alarm(self.tick)
        self._limit_opening()
        try:
            await subscription.send("INFO", "server")
            await subscription.send("SUBSCRIBE", self.channel)
            await subscription.receive(self._hear)
        except Exception:
            if self._subscription is subscription:
                raise
        finally:
            self._subscription = None
            self.is_open = False
            self.session += 1
            await subscription.close()

    def _limit_opening(self) -> float:
        """Give the next step of opening the line its time; returns when that is over."""
        self._opens_by = self._wakes_at = self._lease_loop.now() + SILENCE
        if self._alarm is not None:
            self._alarm.set(self._opens_by)
        return self._opens_by

    async def _begin(self) -> None:
        """Be open, if word can come."""
        subscription = self._subscription
        try:
            opens_by = self._limit_opening()
            until = Until(opens_by, opens_by + SILENCE)  # it may be blocked, or others may be first
            await refuse_unheard(self._lease_loop.port(self._port), self.channel, until)
        except Exception as error:
            if subscription is not None and subscription is self._subscription:
                self._judge(error)
                self._close(subscription)
            return
        if subscription is None or subscription is not self._subscription:  # it was cut meanwhile
            return
        now = self._lease_loop.now()
        self._evidence, self._unanswered = -math.inf, None
        self._pinged = self._left = now
        self._admission.begin(self._entries.waiters)
        self.is_open = self._has_opened = True
        self.is_failing = False
        self._admission.step()
        self._wake_at()

    def _judge(self, error: Exception) -> None:
        """Heed why a line was of no use: only what the other side says is worth a pause."""
        if is_unknown(self._port, error):
            return
        if not isinstance(error, NotReceived) and not self._port.is_answer(error):
            self._reachability.warn(error, self.channel)  # no thread could be started, or the like
        elif self._reachability.is_unavailable(error, self.channel, self._lease_loop.now()):
            self._become_unavailable()

    def _become_unavailable(self) -> None:
        """Have all who wait here look by themselves."""
        self._is_unavailable = True
        self._tell_all(Signal.UNAVAILABLE)

    def _hear(self, message: Any) -> None:
        """Heed what came on the line; what is odd about it is no reason to hear no more."""
        if not self._is_introduced:  # the reply to INFO, or that it is not allowed
            self._is_introduced = True
            self._run_id = messages.run_id(message)
        elif isinstance(message, Exception):
            raise message
        elif not isinstance(message, list):
            return
        elif message[:1] == [b"subscribe"]:
            self._lease_loop.start(self._begin())
        elif message[:1] == [b"pong"]:
            self._unanswered = None
            self._reachability.works()
            self._evidence = max(self._evidence, self._sent(message[-1]))
        elif message[:1] == [b"message"]:
            self._hear_word(message[-1])

    def _hear_word(self, data: bytes) -> None:
        """Heed a word of our channel."""
        word = messages.parsed(data)
        if word is None:
            return
        if word.kind == b"turn":
            self._reachability.tells()
        ear = Received(self.session, self._run_id, self._evidence, self._lease_loop.now())
        left = self._entries.receive(word, ear)
        if left is not None:
            self._lease_loop.start(self._hand_on(left))

    def _sent(self, pong: Any) -> float:
        """When the PING left that this answers."""
        try:
            sent = float(pong)
        except ValueError:
            return -math.inf
        return sent if sent <= self._pinged else -math.inf

    async def _hand_on(self, left: Left) -> None:
        """Let go what was handed to a waiter that has left."""
        port, claim = self._lease_loop.port(self._port), claim_on(left.key, 1.0, left.identifier)
        await persist(port, partial(cancel, port, claim, ""), self._lease_loop.now() + SILENCE)

    async def _note(self, entered: Entered) -> None:
        """Let Redis know that the lock was entered: if its lease ends, that is no sign of death."""
        port = self._lease_loop.port(self._port)
        claim = claim_on(entered.key, 1.0, entered.identifier)
        try:
            await persist(
                port,
                partial(enter, port, claim, entered.queue_entry, 0),
                self._lease_loop.now() + SILENCE,
            )
        except Exception as error:
            if not is_torn(port, error):  # while its slot is moving nobody is handed it
                raise

    def _is_woken_late(self, now: float, wakes_at: float) -> bool:
        """Whether something has blocked the event loop: what came meanwhile is to be read first."""
        self._was_late = now > wakes_at + LATE and not self._was_late
        if self._was_late:
            if not self.is_open:
                self._limit_opening()
            elif self._alarm is not None:
                self._wakes_at = now + LATE
                self._alarm.set(self._wakes_at)
        return self._was_late

    async def _recheck(self, key: bytes, waiters: list[QueuedWaiter]) -> None:
        subscription = self._subscription
        try:
            is_heard = await self._rechecks.recheck(key, waiters)
        except Exception as error:
            if not is_forbidden(self._port, error):
                raise
            self._give_up(error)
            return
        if not is_heard and subscription is not None and subscription is self._subscription:
            self._on_unheard_channel(subscription, waiters)
        self._wake_at()

    def _give_up(self, error: Exception) -> None:
        """Hear no more: nobody here may have a lapsed lock handed on, so no word of it may come."""
        if self._is_unavailable:
            return
        self._reachability.bar(error, self._lease_loop.now())
        self._become_unavailable()
        if self._subscription is not None:
            self._close(self._subscription)

    def _on_unheard_channel(self, subscription: Subscription, waiters: list[QueuedWaiter]) -> None:
        """Move to where the lock is: the server that has it knows of no listener here."""
        if self._port.slotted:
            for waiter in waiters:
                waiter.wakeup.notify(Signal.AGAIN)
        else:
            self._close(subscription)

    def _tell_all(self, signal: Signal) -> None:
        for waiter in self._entries.waiters():
            waiter.wakeup.notify(signal)

    def _wake_at(self) -> None:
        if self._alarm is None:
            return
        while True:
            regular = self._pinged + PING if self._entries else self._left + LINGER
            due = min(regular, self._rechecks.first_due(), self._entries.next_note())
            self._wakes_at = due
            if not self._rechecks.absorb():  # who came meanwhile may have trusted an earlier ring
                break
        self._alarm.set(max(due, self._lease_loop.now() + AFTER))

    def _close(self, subscription: Subscription) -> None:
        """Give the line up; how long closing it takes costs no waiter anything."""
        self._subscription = None
        self.is_open = False
        self.session += 1
        self._tell_all(Signal.AGAIN)  # to look by themselves meanwhile
        self._lease_loop.start(subscription.close(), subscription.abort)
