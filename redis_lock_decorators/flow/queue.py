"""Waiting in a queue: a lock is handed to its first waiter inside the release."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.listener import Listener
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
    key = claim.keys[0]
    listener, turn = port.listener(key), Turn(key, claim.identifier, port.waiter())
    last: Refusal | None = refusal
    try:
        listener.join(turn)
        while last is not None:
            if listener.is_open:
                last = await _line_up(port, claim, listener, turn, attempt, stop)
            if last is None:
                break
            left = max(0.0, stop - port.now())
            # While no word can come, it looks from time to time.
            news = await turn.waiter.wait(left if listener.is_open else min(next(pauses), left))
            if news is News.DEAF:
                raise Deaf
            if news is News.TURN:
                last = await _enter(port, claim, turn, attempt, stop)
            elif news is None and not listener.is_open:
                last = await persist(port, attempt, stop)
                if last is None:
                    await port.shield(_clear(port, claim, listener, turn))
            if last is None or port.now() >= stop:
                break
            if port.listener(key) is not listener or turn.identifier != claim.identifier:
                listener.leave(turn)
                listener, turn = port.listener(key), _moved(port, claim, turn)
                listener.join(turn)
        if last is None:
            listener.enter(claim.identifier, claim)
            claim.place = None
    finally:
        try:
            listener.leave(turn)
        except BaseException:  # from outside: for a turn that stays it would listen for ever
            listener.leave(turn)
            raise
    return last


def _moved(port: Port, claim: Claim, turn: Turn) -> Turn:
    """The same waiter for another listener, or under a new identifier."""
    moved = Turn(turn.key, claim.identifier, port.waiter())
    if turn.identifier == claim.identifier:
        moved.asked, moved.ticket = turn.asked, turn.ticket
    return moved


async def _line_up(
    port: Port, claim: Claim, listener: Listener, turn: Turn, attempt: Attempt, stop: float
) -> Refusal | None:
    """Take the lock if it is free, else a place in its queue."""
    sent = port.now()
    turn.asked = min(turn.asked, sent)
    claim.has_queued = True
    claim.place = turn.place = f"{listener.channel}|{claim.identifier}|{claim.grant}"

    async def enqueue(until: float) -> Refusal | None:
        nonlocal sent
        sent = port.now()
        return await _enqueue(port, claim, listener, turn, until)

    refusal = await persist(port, enqueue, stop)
    if refusal is not None:
        listener.expect(turn.key, refusal, claim.grant / 1000)
        return refusal
    if claim.is_special():
        return await persist(port, attempt, stop)
    claim.take(sent)
    return None if port.now() < claim.deadline else await persist(port, attempt, stop)


async def _clear(port: Port, claim: Claim, listener: Listener, turn: Turn) -> None:
    """Leave no place in the queue of a lock that was taken past it."""
    until = port.now() + claim.grant / 1000
    if turn.place is None or await _enqueue(port, claim, listener, turn, until) is None:
        return  # who holds a lock and asks for it once more has no place any more
    await cancel(port, claim, turn.place, until)


def _enqueue(
    port: Port, claim: Claim, listener: Listener, turn: Turn, until: float
) -> Awaitable[Refusal | None]:
    """Ask for the lock, or for a place in its queue: the old one if there is one."""

    def placed(holder: Any, milliseconds: int, ticket: int) -> Refusal:
        turn.ticket = int(ticket)
        return refusal_of(holder, milliseconds)

    details = (claim.ttl, listener.channel, claim.grant, turn.ticket)
    keys = with_queue(claim.keys)
    return ask(port, "enqueue", claim, keys, *details, until=until, read=placed)


async def _enter(
    port: Port, claim: Claim, turn: Turn, attempt: Attempt, stop: float
) -> Refusal | None:
    """Hold the lock that was handed over; ask Redis first, if that may have been long ago.

    The word of it does not say when it was. But nobody can be handed a lock by an identifier that
    Redis has not seen yet; and messages and answers to PING come in the order in which the server
    wrote them, so no grant is older than the last PING that was answered before the word of it.

    In a cluster the word may come from a node that the slot has moved to, by way of the one that is
    listened to. The script there sees no listener and hands the lock to somebody else.
    """
    granted = claim.grant / 1000
    after = max(turn.asked, turn.evidence)
    left = term.deadline(after, granted) - port.now()
    if port.slotted or claim.is_special() or left < ENOUGH * granted:
        return await persist(port, attempt, stop)
    claim.since = after
    claim.hold(after, granted)
    return None


async def step_out(port: Port, claim: Claim, until: float) -> None:
    """Wait no more in the queue, but somewhere else."""
    if claim.place is not None:
        await cancel(port, claim, claim.place, until)
        claim.place = None
