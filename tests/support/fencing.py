"""Claims with fences for tests."""

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._rules.keys import companion
from support.simulation import SimulatedPort, new_claim

KEY = b"sys:lock:a"
#: The key of the last fence.
NUMBER = companion(KEY, b"fence")


def fenced(*names: str, expire: float = 10) -> Claim:
    """A claim that asks for a fence."""
    claim = new_claim(*names, expire=expire, owner=object())
    claim.fencing = True
    return claim


def attempt(port: SimulatedPort, claim: Claim, wait: float = 0) -> Refusal | None:
    """Try to acquire the claim."""
    return run(acquire(port, claim, wait, 0.1))
