"""The plain recipe: SET NX PX, compare and delete. No state but the identifier."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from redis_lock_decorators._flow import error_notes
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.identifiers import is_generated, new_identifier
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.release_methods import NATIVE
from redis_lock_decorators._flow.release_requests import release_keys
from redis_lock_decorators._flow.requests import (
    OtherData,
    Refusal,
    ReplyMismatch,
    ask,
    get,
    is_forbidden,
    may_have_run,
    text,
)
from redis_lock_decorators._flow.retries import OUTAGE, with_repeats
from redis_lock_decorators._flow.undo import undo
from redis_lock_decorators._rules import delays
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import ConfigurationError, shown

#: Argument of the script ``acquire``: other clients may use the identifier too.
SHARED = 2


async def acquire_lock(port: Port, claim: Claim, wait: float, delta: float) -> bool:
    """Acquire the one key of the claim within ``wait`` seconds."""
    began = port.now()
    stop = began + wait
    attempt = partial(_attempt, port, claim)
    try:
        acquired = await with_repeats(port, attempt, stop)
        pauses = delays.waiting(delta, port.random)
        while not acquired and (left := stop - port.now()) > 0:
            await port.sleep(min(next(pauses), left))
            acquired = await with_repeats(port, attempt, stop)
        if not acquired:
            await _undo(port, claim)
        return acquired
    except BaseException as error:
        error_notes.add_note(port, claim, error, "acquired", began)
        await _undo(port, claim, error)
        raise


async def release_lock(
    port: Port,
    claim: Claim,
    method: ReleaseMethod | None,
    may_repeat: Callable[[], bool] = lambda: True,
) -> bool:
    """Delete the key if it is ours; False if it holds another identifier.

    A release that is interrupted or cancelled is completed before that exception is raised. With an
    identifier of the caller's own no request is repeated for that: the next holder may have it too.
    ``may_repeat`` tells whether a request without a reply may be repeated still.
    """
    method = method or ("transaction" if port.transacts else "script")
    failures: list[Exception] = []

    def failed(error: Exception, sent: float) -> None:
        if may_have_run(port, error):  # then no message was sent to waiters
            claim.maybe_released = claim.keys
        failures.append(error)

    async def work(until: float) -> Refusal | None:
        if failures and not may_repeat():
            raise failures[-1]
        return await release_keys(port, claim, method, until)

    try:
        with error_notes.adding_notes(port, claim, "released"):
            refusal = await with_repeats(port, work, port.now() + OUTAGE, failed)
    except BaseException as error:
        is_repeatable = is_generated(claim.identifier) or not _may_be_released(claim)
        if is_repeatable and not port.is_outcome(error):
            await undo(port, claim, error)
        raise
    if refusal is not None and refusal.why:
        raise OtherData(claim.lock_name)
    return refusal is None or refusal.holder is None


def _may_be_released(claim: Claim) -> bool:
    """Whether a request that releases the lock was sent before the release was interrupted."""
    return claim.release_sent is not None or bool(claim.maybe_released)


async def extend_lock(port: Port, claim: Claim) -> bool:
    """Extend the key to the claim's lease from now; False if it is not ours."""
    attempt = partial(_extend, port, claim)
    with error_notes.adding_notes(port, claim, "extended"):
        return await with_repeats(port, attempt, port.now() + OUTAGE) is None


async def _attempt(port: Port, claim: Claim, until: float) -> bool:
    sent = port.now()
    acquired = await _acquire(port, claim, until)
    if acquired:
        claim.mark_held(sent)
    return acquired and port.now() < claim.deadline


async def _acquire(port: Port, claim: Claim, until: float) -> bool:
    if not port.may_resend:
        return await _set(port, claim, until)
    # This client's connections are not ours: the "OK" of another command may arrive for a SET.
    try:
        how = () if claim.unique else (SHARED,)
        request = ask(port, "acquire", claim, claim.keys, claim.expire_ms, *how, until=until)
        return await request is None
    except Exception as error:
        if not is_forbidden(port, error):
            raise
    (key,) = claim.keys
    if not port.transacts:
        await _refuse_unreleasable(port, claim, key, until)
    done = await _set(port, claim, until)
    if done and text(await port.send("GET", key, until=until)) != claim.identifier:
        await port.drop_idle_connections()
        raise ReplyMismatch("a reply to another command arrived for SET", claim.lock_name)
    return done


async def _refuse_unreleasable(port: Port, claim: Claim, key: bytes, until: float) -> None:
    """Refuse a lock that could not be released: by no script, WATCH or native command."""
    for command, condition in NATIVE.items():
        try:
            await port.send(command, key, *condition, new_identifier(), until=until)  # unused
            return
        except Exception as error:
            if not is_forbidden(port, error):
                raise
    raise ConfigurationError(
        f"lock {shown(claim.lock_name)} could be acquired, but not released: on a cluster that "
        f"needs the right to run scripts (EVALSHA, EVAL), or {' or '.join(NATIVE)}",
        claim.lock_name,
    )


async def _set(port: Port, claim: Claim, until: float) -> bool:
    (key,) = claim.keys
    command = ("SET", key, claim.identifier, "NX", "PX", claim.expire_ms)
    try:
        done = await port.send(*command, until=until)
    except BaseException as error:
        port.withdraw(claim.identifier, error)
        raise
    if not done and claim.unique:
        # If the reply of a first SET was lost, the client's second one finds its own key.
        found = text(await get(port, key, claim.lock_name, until))
        done = found == claim.identifier and await _extend(port, claim, until) is None
    return bool(done)


async def _undo(port: Port, claim: Claim, cause: BaseException | None = None) -> None:
    """Release what may be held, unless another client may hold it by the same identifier."""
    granted = claim.deadline > -math.inf
    if granted or (claim.unique and cause is not None):
        await undo(port, claim, cause)


async def _extend(port: Port, claim: Claim, until: float) -> Refusal | None:
    return await ask(port, "extend", claim, claim.keys, claim.expire_ms, until=until)
