"""Attempts to acquire simulated locks."""

from __future__ import annotations

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.requests import Refusal
from redis_lock_decorators._io.blocking_port import run
from support.simulation import SimulatedPort


def tried(port: SimulatedPort) -> list[float]:
    """The times at which the lock was tried."""
    return [sent.at for sent in port.log if sent.verb == "acquire"]


def attempt(
    port: SimulatedPort, claim: Claim, wait: float = 10, delta: float = 0.1
) -> Refusal | None:
    """Acquire the claim within ``wait`` seconds; returns the refusal, if any."""
    return run(acquire(port, claim, wait, delta))
