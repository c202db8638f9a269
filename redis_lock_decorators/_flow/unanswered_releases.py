"""What became of requests to let go that were not answered, and what they can explain."""

from __future__ import annotations

import math
from typing import Any

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.identifiers import REST
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.requests import Refusal, Send, may_have_run


def note(port: Port, claim: Claim, part: tuple[bytes, ...], error: Exception, sent: float) -> None:
    """Note that these keys may be gone by a request of ours, ``sent`` and not answered."""
    # What was sent after the deadline explains nothing: the keys may have lapsed before.
    if sent < claim.deadline and may_have_run(port, error):
        claim.maybe_released += part


async def send_checked(
    port: Port, claim: Claim, part: tuple[bytes, ...], send: Send, *command: Any, until: float
) -> Any:
    """Send a repeated request; a server that does not know its script has not run it before.

    If one did, that was another server, or it was restarted or had its scripts flushed since. Then
    a key that is gone may as well have been lost: the doubt is no excuse for it.
    """
    try:
        return await send(*command, until=until)
    except Exception as error:
        if port.lacks(error) == "script":
            claim.maybe_released = tuple([key for key in claim.maybe_released if key not in part])
        raise


def explains(claim: Claim, part: tuple[bytes, ...], refusal: Refusal) -> bool:
    """Whether the keys are as our own earlier request left them, as far as anybody can know.

    Another's key may have been taken before our request or after it: the worse is told. What a
    client repeats by itself is explained by a note that the first of its requests has left.
    """
    if refusal.is_taken:
        return claim.held_until > -math.inf and refusal.holder == min_hold_placeholder(claim)
    return part[0] in claim.maybe_released


def min_hold_placeholder(claim: Claim) -> str:
    """What a key holds that its holder let go, and that stands for a while yet."""
    return claim.identifier + REST
