"""Waiters in a queue that this code interrupts, as a signal handler or finalizer does."""

from __future__ import annotations

from functools import partial

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue import entry_requests
from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._flow.requests import get, text
from redis_lock_decorators._flow.retries import with_repeats
from redis_lock_decorators._flow.self_waits import refuse_interrupted


async def suspend_interrupted(port: Port, claim: Claim, holder: str | None, stop: float) -> None:
    """Take the queue entries of interrupted code, so that it is granted no lock of the claim.

    It could not act on the grant before this code returns. Then it joins the queue again.

    Raises:
        LockError: it is the ``holder``, or was granted the lock before.
    """
    for other in refuse_interrupted(port, claim, holder):
        if other.keys[0] in claim.keys and other.queue_wait is not None:
            await _suspend(port, claim, other, stop)


async def _suspend(port: Port, claim: Claim, other: Claim, stop: float) -> None:
    key, waiting = other.keys[0], other.queue_wait
    entries = waiting.entries()
    if not entries:
        return
    try:
        for entry in entries:
            await with_repeats(port, partial(entry_requests.remove, port, key, entry), stop)
    finally:
        waiting.waiter.wakeup.notify(Signal.RETRY)
    ask_holder = partial(get, port, key, claim.lock_name)
    refuse_interrupted(port, claim, text(await with_repeats(port, ask_holder, stop)))
