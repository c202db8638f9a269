"""Giving a held lease more time, and asking who holds a lock."""

from __future__ import annotations

from functools import partial
from typing import Any

from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.port import Port
from redis_lock_decorators.flow.release import lost, refuse_fork, refuse_over
from redis_lock_decorators.flow.requests import OUTAGE, Refusal, ask, groups, persist, text
from redis_lock_decorators.rules import durations


async def extend(port: Port, claim: Claim, seconds: float) -> None:
    """Let the lease last at least ``seconds`` from now.

    Raises:
        LockLostError: the keys are not ours any more.
        LockNotOwnedError: it was let go before, or it belongs to the process that this one was
            forked from.
    """
    refuse_fork(claim)
    refuse_over(claim)
    refusal = await persist(port, partial(_attempt, port, claim, seconds), port.now() + OUTAGE)
    if refusal is not None:
        raise lost(port, claim, refusal)


async def holders(port: Port, names: tuple[bytes, ...]) -> list[str | None]:
    """The identifiers stored in the keys; None where a key is free."""
    found = []
    for key in names:
        reply = await persist(port, partial(_value, port, key), port.now() + OUTAGE)
        found.append(text(reply))
    return found


async def _value(port: Port, key: bytes, until: float) -> Any:
    return await port.send("GET", key, until=until)


async def _attempt(port: Port, claim: Claim, seconds: float, until: float) -> Refusal | None:
    sent = port.now()
    ttl = durations.milliseconds(seconds)
    for group in groups(port, claim):
        refusal = await ask(port, "extend", claim, group, ttl, until=until)
        if refusal is not None:
            return refusal
    claim.prolong(sent, ttl / 1000)
    return None
