"""One release of a claim at a time: a second one waits for the first, or leaves the claim to it."""

from __future__ import annotations

from redis_lock_decorators._flow.claim import FLOW, Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.retries import CLEANUP

#: Seconds between two checks whether the other release has ended: at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.05


async def wait_for_other(port: Port, claim: Claim, flow: object) -> None:
    """Wait for another release of the claim, then set ``flow`` as the one that is under way.

    It is not set if the other one has ended the claim, or is suspended on this same stack, until a
    signal handler or a finalizer returns: then it completes the release, and reports a loss.
    """
    if sum(other is claim for other in port.interrupted()) > 1:  # one is the caller itself
        return
    pause, stop = FIRST_PAUSE, port.now() + CLEANUP
    while claim.state is not ENDED and claim.release_flow.setdefault(FLOW, flow) is not flow:
        if port.now() >= stop:
            claim.release_flow[FLOW] = flow
        await port.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
