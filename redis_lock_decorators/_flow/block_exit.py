"""The release at the end of a block: its failures are reported, but never hide the result."""

from __future__ import annotations

from redis_lock_decorators._flow import unanswered_releases
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.extend import holders
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.losses import reported_loss, why_refused
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.release import Notify, end, release
from redis_lock_decorators._flow.requests import Refusal, is_unknown
from redis_lock_decorators._flow.timeouts import ROUND_TRIP
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators._rules.redaction import described
from redis_lock_decorators.errors import LockNotOwnedError, shown

#: The cure for a release that was refused, by what is missing.
CURES = {
    "right": "; give its user the rights that SECURITY.rst lists",
    "command": "; give its user the rights that SECURITY.rst lists",
    "memory": "; give the server more memory",
}


async def leave(
    port: Port,
    claim: Claim,
    method: ReleaseMethod,
    failed: bool,
    notify: Notify | None = None,
) -> None:
    """Release a lock at the end of its block.

    If the block ``failed``, its own exception goes on: the failure of the release is only logged.
    ``notify`` is called after a separate task has completed the release, as by ``release``.

    Raises:
        LockLostError: the block succeeded, but its lease had ended.
    """
    # ``asyncio/lease.py`` repeats these lines, as another coroutine would cost each block time.
    try:
        await release(port, claim, method, notify)
    except Exception as error:
        if not await report_failure(port, claim, error, failed):
            raise
    if not failed and claim.lost_reason is not None:
        raise reported_loss(claim)  # other code, such as ``on_lost``, has released it before


async def report_failure(port: Port, claim: Claim, error: Exception, failed: bool) -> bool:
    """Report the error of a release; return whether that is done, so that none is raised.

    Raises:
        LockLostError: the block succeeded, but its lease had ended.
    """
    if not port.is_outcome(error):
        return False
    if isinstance(error, LockNotOwnedError):
        if failed:
            log.warning("%s", error)
        return failed
    why = await _why_lost(port, claim, error)
    if claim.observer is not None and why is None:
        claim.observer.ended(claim, port.now(), type(error).__name__)
    claim.lost_reason = claim.lost_reason or why
    end(port, claim)
    log.warning(
        "lock %s could not be released (%s); %s",
        *(shown(claim.lock_name), described(error), _outlook(port, error, why)),
    )
    if why is not None and not failed:
        raise reported_loss(claim) from error
    return True


async def _why_lost(port: Port, claim: Claim, error: Exception) -> str | None:
    """Ask who holds a lock that the server refused to release: why it is lost, or None.

    The lease is no longer renewed, so a loss would not be noticed later.
    """
    if is_unknown(port, error):
        return None  # a server that did not answer all this time would not answer now
    keys = tuple([key for key in claim.keys if key not in claim.released_keys])
    try:
        found = await holders(port, keys, ROUND_TRIP)
    except Exception as failure:
        if not port.is_outcome(failure):
            raise
        return None
    for key, holder in zip(keys, found, strict=True):
        refusal = Refusal(holder)
        if holder != claim.identifier and not unanswered_releases.explains(claim, key, refusal):
            return why_refused(claim, refusal, port.now())
    return None


def _outlook(port: Port, error: Exception, why: str | None) -> str:
    """What becomes of a lock that could not be released, and the cure."""
    if why is not None:
        return "it was lost before"
    cure = CURES.get(port.lacks(error), "")
    return f"it will expire with its lease{cure}"
