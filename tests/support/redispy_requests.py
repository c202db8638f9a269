"""Requests of the replacement of redis-py's ``Lock`` for tests."""

from __future__ import annotations

from collections.abc import Callable

from redis_lock_decorators._flow.claim import Claim, claim_on
from redis_lock_decorators._flow.redispy_lock import PROVISIONAL, AcquireRequest
from support.simulation import SimulatedPort, new_claim

KEY = b"sys:lock:a"


def lasts(seconds: float) -> Callable[[float], float]:
    """A move of the end to ``seconds`` from now."""
    return lambda left: seconds


def more(seconds: float) -> Callable[[float], float]:
    """A move of the end by ``seconds``."""
    return lambda left: left + seconds


def request(
    token: str | None = None, *, endless: bool = False, expire: float = PROVISIONAL
) -> AcquireRequest:
    """A request to acquire the lock once."""
    return AcquireRequest(new_claim("a", expire=expire), 0.0, 0.1, token, endless)


def of_token(token: str) -> Claim:
    """The claim that ``lock.local.token = token`` creates."""
    return claim_on(KEY, PROVISIONAL, token)


def excess(port: SimulatedPort, claim: Claim) -> float:
    """The seconds by which the holder's deadline exceeds the end in the server."""
    return claim.deadline - port.now() - port.server.left(KEY)
