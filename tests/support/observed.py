"""Claims whose events are recorded."""

from __future__ import annotations

from typing import Any

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_observer import ClaimObserver
from redis_lock_decorators.events import LockEvent

#: What each event has; tests compare what one kind has in addition.
COMMON = ("lock_name", "key", "label", "acquisition", "at", "time")


def observed(claim: Claim, seen: list[LockEvent]) -> Claim:
    """Record the events of a claim; the wall clock always shows 5."""
    claim.observer = ClaimObserver(claim, "label", lambda: 5.0, lambda take: seen.extend(take()))
    return claim


def kinds(seen: list[LockEvent]) -> list[str]:
    """The names of the events' classes."""
    return [type(event).__name__ for event in seen]


def facts(event: Any) -> dict[str, object]:
    """What an event has in addition to what all have; durations in milliseconds."""
    found = {name: getattr(event, name) for name in type(event).__dataclass_fields__}
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in found.items()
        if name not in COMMON
    }
