"""Waiting in a queue: a lock is handed to its first waiter inside the release."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.port import Port
from redis_lock_decorators.flow.requests import Refusal, ask, cancel, persist, refusal_of
from redis_lock_decorators.flow.turn import News, Turn
from redis_lock_decorators.rules import term
from redis_lock_decorators.rules.keys import with_queue

Attempt = Callable[[float], Awaitable[Refusal | None]]

#: The part of a grant that must be left to enter without asking once more.
ENOUGH = 0.3


class Deaf(Exception):
    """This process cannot be told whose turn it is."""


async def wait(
    port: Port,
    claim: Claim,
    attempt: Attempt,
    refusal: Refusal,
    stop: float,
    pauses: Iterator[float],
) -> Refusal | None:
    """Wait for the one key of the claim until ``stop``; the last refusal, or None: it is held.

    Raises:
        Deaf: no word can come; look for the lock from time to time instead.
    """
    stand = _Stand(port, claim, attempt, stop, pauses)
    try:
        stand.listener.join(stand.turn)
        last = await stand.wait(refusal)
        if last is None:
            stand.listener.enter(claim.identifier, claim)
            claim.place = None
    finally:
        try:
            stand.listener.leave(stand.turn)
        except BaseException:  # from outside: for a turn that stays it would listen for ever
            stand.listener.leave(stand.turn)
            raise
    return last


async def step_out(port: Port, claim: Claim, until: float) -> None:
    """Wait no more in the queue, but somewhere else."""
    if claim.place is not None:
        await cancel(port, claim, claim.place, until)
        claim.place = None


class _Stand:
    """One waiter in the queue: its turn, and the listener that hears for it."""

    __slots__ = ("_attempt", "_claim", "_key", "_pauses", "_port", "_stop", "listener", "turn")

    def __init__(
        self, port: Port, claim: Claim, attempt: Attempt, stop: float, pauses: Iterator[float]
    ) -> None:
        self._port = port
        self._claim = claim
        self._key = claim.keys[0]
        self._attempt = attempt
        self._stop = stop
        self._pauses = pauses
        self.listener = port.listener(self._key)
        self.turn = Turn(self._key, claim.identifier, port.waiter())

    async def wait(self, refusal: Refusal) -> Refusal | None:
        """Line up and listen by turns; the last refusal, or None once the lock is held."""
        last: Refusal | None = refusal
        while last is not None:
            if self.listener.is_open:
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
        is_open = self.listener.is_open
        news = await self.turn.waiter.wait(left if is_open else min(next(self._pauses), left))
        if news is News.DEAF:
            raise Deaf
        if news is News.TURN:
            return await self._enter()
        if news is None and not self.listener.is_open:
            return await self._look()
        return last

    async def _look(self) -> Refusal | None:
        """Try past the queue, and leave no place in it."""
        refusal = await persist(self._port, self._attempt, self._stop)
        if refusal is None:
            await self._port.shield(self._clear())
        return refusal

    def _follow(self) -> None:
        """Be the same waiter for another listener, or under a new identifier, if there is one."""
        old, port, claim = self.turn, self._port, self._claim
        is_other = old.identifier != claim.identifier
        if port.listener(self._key) is self.listener and not is_other:
            return
        self.listener.leave(old)
        moved = Turn(old.key, claim.identifier, port.waiter())
        if not is_other:
            moved.asked, moved.ticket = old.asked, old.ticket
        self.listener, self.turn = port.listener(self._key), moved
        self.listener.join(moved)

    async def _line_up(self) -> Refusal | None:
        """Take the lock if it is free, else a place in its queue."""
        port, claim, turn = self._port, self._claim, self.turn
        sent = port.now()
        turn.asked = min(turn.asked, sent)
        claim.has_queued = True
        claim.place = turn.place = f"{self.listener.channel}|{claim.identifier}|{claim.grant}"

        async def enqueue(until: float) -> Refusal | None:
            nonlocal sent
            sent = port.now()
            return await self._enqueue(until)

        refusal = await persist(port, enqueue, self._stop)
        if refusal is not None:
            self.listener.expect(turn.key, refusal, claim.grant / 1000)
            return refusal
        if not claim.is_special():
            claim.take(sent)
            if port.now() < claim.deadline:
                return None
        return await persist(port, self._attempt, self._stop)

    def _enqueue(self, until: float) -> Awaitable[Refusal | None]:
        """Ask for the lock, or for a place in its queue: the old one if there is one."""
        claim, turn = self._claim, self.turn

        def placed(holder: Any, milliseconds: int, ticket: int) -> Refusal:
            turn.ticket = int(ticket)
            return refusal_of(holder, milliseconds)

        details = (claim.ttl, self.listener.channel, claim.grant, turn.ticket)
        keys = with_queue(claim.keys)
        return ask(self._port, "enqueue", claim, keys, *details, until=until, read=placed)

    async def _clear(self) -> None:
        """Leave no place in the queue of a lock that was taken past it."""
        claim, place = self._claim, self.turn.place
        until = self._port.now() + claim.grant / 1000
        if place is None or await self._enqueue(until) is None:
            return  # who holds a lock and asks for it once more has no place any more
        await cancel(self._port, claim, place, until)

    async def _enter(self) -> Refusal | None:
        """Hold the lock that was handed over; ask Redis first, if that may have been long ago.

        The word of it does not say when it was. But nobody can be handed a lock by an identifier
        that Redis has not seen yet; and messages and answers to PING come in the order in which the
        server wrote them, so no grant is older than the last PING that was answered before the word
        of it.

        In a cluster the word may come from a node that the slot has moved to, by way of the one
        that is listened to. The script there sees no listener and hands the lock to somebody else.
        """
        port, claim = self._port, self._claim
        granted = claim.grant / 1000
        after = max(self.turn.asked, self.turn.evidence)
        left = term.deadline(after, granted) - port.now()
        if port.slotted or claim.is_special() or left < ENOUGH * granted:
            return await persist(port, self._attempt, self._stop)
        claim.since = after
        claim.hold(after, granted)
        return None
