"""Letting go at the end of a block, where a failure is told but never keeps its result."""

from __future__ import annotations

from redis_lock_decorators._flow import unanswered_releases
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.extend import holders
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.release import (
    end,
    release,
    reported_loss,
    why_expired,
    why_refused,
)
from redis_lock_decorators._flow.requests import ROUND_TRIP, Refusal, is_unknown
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import LockNotOwnedError, shown

#: What helps against a release that was refused, by what is missing.
CURES = {
    "right": "; give its user the rights that SECURITY.rst lists",
    "command": "; give its user the rights that SECURITY.rst lists",
    "memory": "; give the server more memory",
}


async def leave(port: Port, claim: Claim, method: ReleaseMethod, failed: bool) -> None:
    """Let go at the end of a block; never in place of the exception that ``failed`` it.

    Raises:
        LockLostError: the block succeeded, but its lease had ended.
    """
    was_lost = claim.is_lost(port.now())
    try:
        await release(port, claim, method)
    except Exception as error:
        if not await is_told(port, claim, error, was_lost, failed):
            raise


async def is_told(port: Port, claim: Claim, error: Exception, was_lost: bool, failed: bool) -> bool:
    """Whether all is told of a release that ended with an error, which is not to be raised then.

    Raises:
        LockLostError: the block succeeded, but its lease had ended.
    """
    if isinstance(error, LockNotOwnedError):
        if failed:
            log.warning("%s", error)
        return failed
    if not port.is_outcome(error):
        return False
    why = why_expired(claim) if was_lost else await _why_lost(port, claim, error)
    end(port, claim)
    log.warning(
        "lock %s could not be let go (%s: %s); %s",
        *(shown(claim.lock_name), type(error).__name__, error, _outlook(port, error, why)),
    )
    if why is not None:
        claim.lost_reason = claim.lost_reason or why
        if not failed:
            raise reported_loss(claim) from error
    return True


async def _why_lost(port: Port, claim: Claim, error: Exception) -> str | None:
    """Why the lease is lost that a server has refused to let go; None if that is not known.

    It may well say who holds the lock: nobody else will, for nobody looks after the lease now.
    """
    if is_unknown(port, error):
        return None  # it was asked again and again
    keys = tuple([key for key in claim.keys if key not in claim.released])
    try:
        found = await holders(port, keys, ROUND_TRIP)
    except Exception as failure:
        if not port.is_outcome(failure):
            raise
        return None
    for key, holder in zip(keys, found, strict=True):
        refusal = Refusal(holder)
        if holder != claim.identifier and not unanswered_releases.explains(claim, (key,), refusal):
            return why_refused(claim, refusal, port.now())
    return None


def _outlook(port: Port, error: Exception, why: str | None) -> str:
    """What becomes of a lock that could not be let go, and what helps."""
    if why is not None:
        return "it was lost before"
    cure = CURES.get(port.lacks(error), "")
    return f"it frees itself when its lease ends{cure}"
