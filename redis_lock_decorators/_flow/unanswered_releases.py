"""Releases without a reply: what they may have done, and which later refusals that explains."""

from __future__ import annotations

import math
from typing import Any

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.identifiers import REST
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.requests import Refusal, Send, may_have_run


def note(port: Port, claim: Claim, part: tuple[bytes, ...], error: Exception, sent: float) -> None:
    """Record that a request of ours, ``sent`` and not answered, may have released these keys."""
    # A request sent after the deadline explains nothing: the keys may have expired before.
    if sent < claim.deadline and may_have_run(port, error):
        claim.maybe_released += part


async def send_checked(
    port: Port, claim: Claim, part: tuple[bytes, ...], send: Send, *command: Any, until: float
) -> Any:
    """Repeat a request, and check that the server may have run it before.

    A server that does not know the script has not run it, unless it was restarted or its scripts
    were flushed. A missing key may then be a loss just as well, so it is reported as one.
    """
    try:
        return await send(*command, until=until)
    except Exception as error:
        if port.lacks(error) == "script":
            claim.maybe_released = tuple([key for key in claim.maybe_released if key not in part])
        raise


def explains(claim: Claim, part: tuple[bytes, ...], refusal: Refusal) -> bool:
    """Whether the keys are as an earlier request of ours would have left them.

    If another client holds a key, it may have acquired it before our request or after it, which
    counts as a loss. Requests that the client itself repeats need no explanation here: the script
    knows them by what the first of them recorded.
    """
    if refusal.is_taken:
        return claim.held_until > -math.inf and refusal.holder == min_hold_placeholder(claim)
    return part[0] in claim.maybe_released


def min_hold_placeholder(claim: Claim) -> str:
    """The value of a released key until the end of its ``min_hold``."""
    return claim.identifier + REST
