"""The bare recipe: SET NX PX, compare and delete. No state but the identifier."""

from __future__ import annotations

import math
from functools import partial

from redis_lock_decorators._flow import error_notes
from redis_lock_decorators._flow.acquire import undo
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.identifiers import new_identifier
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.release import release_keys
from redis_lock_decorators._flow.release_methods import NATIVE
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
from redis_lock_decorators._flow.retries import OUTAGE, persist
from redis_lock_decorators._rules import delays
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import ConfigurationError, shown

#: Said to the script that takes a lock: others may use the identifier too.
SHARED = 2


async def acquire_lock(port: Port, claim: Claim, wait: float, delta: float) -> bool:
    """Take the one key of the claim within ``wait`` seconds."""
    began = port.now()
    stop = began + wait
    attempt = partial(_attempt, port, claim)
    try:
        taken = await persist(port, attempt, stop)
        pauses = delays.waiting(delta, port.random)
        while not taken and (left := stop - port.now()) > 0:
            await port.sleep(min(next(pauses), left))
            taken = await persist(port, attempt, stop)
        if not taken:
            await _undo(port, claim)
        return taken
    except BaseException as error:
        error_notes.note(port, claim, error, "acquired", began)
        await _undo(port, claim, error)
        raise


async def release_lock(port: Port, claim: Claim, method: ReleaseMethod | None) -> bool:
    """Delete the key if it is ours; False if it holds somebody else's identifier."""
    way = method or ("transaction" if port.transacts else "script")

    def failed(error: Exception, sent: float) -> None:
        if may_have_run(port, error):  # if it was, nobody has told those who wait for the lock
            claim.maybe_released = claim.keys

    work = partial(release_keys, port, claim, way)
    with error_notes.noted(port, claim, "released"):
        refusal = await persist(port, work, port.now() + OUTAGE, failed)
    if refusal is not None and refusal.why:
        raise OtherData(claim.lock_name)
    return refusal is None or refusal.holder is None


async def extend_lock(port: Port, claim: Claim) -> bool:
    """Let the key live for the claim's lease from now; False if it is not ours."""
    attempt = partial(_extend, port, claim)
    with error_notes.noted(port, claim, "extended"):
        return await persist(port, attempt, port.now() + OUTAGE) is None


async def _attempt(port: Port, claim: Claim, until: float) -> bool:
    sent = port.now()
    taken = await _take(port, claim, until)
    if taken:
        claim.mark_held(sent)
    return taken and port.now() < claim.deadline


async def _take(port: Port, claim: Claim, until: float) -> bool:
    if not port.may_resend:
        return await _set(port, claim, until)
    # Over others' connections any "OK" may come, and that of another command is no yes.
    try:
        how = () if claim.unique else (SHARED,)
        request = ask(port, "acquire", claim, claim.keys, claim.expire_ms, *how, until=until)
        return await request is None
    except Exception as error:
        if not is_forbidden(port, error):
            raise
    (key,) = claim.keys
    if not port.transacts:
        await _refuse_lasting(port, claim, key, until)
    done = await _set(port, claim, until)
    if done and text(await port.send("GET", key, until=until)) != claim.identifier:
        await port.drop_idle_connections()
        raise ReplyMismatch("a reply to another command arrived for SET", claim.lock_name)
    return done


async def _refuse_lasting(port: Port, claim: Claim, key: bytes, until: float) -> None:
    """Refuse to take what could not be let go: without scripts and WATCH one command is left."""
    for command, condition in NATIVE.items():
        try:
            await port.send(command, key, *condition, new_identifier(), until=until)  # nobody's
            return
        except Exception as error:
            if not is_forbidden(port, error):
                raise
    raise ConfigurationError(
        f"lock {shown(claim.lock_name)} could be taken, but not let go: on a cluster that needs "
        f"the right to run scripts (EVALSHA, EVAL), or {' or '.join(NATIVE)}",
        claim.lock_name,
    )


async def _set(port: Port, claim: Claim, until: float) -> bool:
    (key,) = claim.keys
    done = await port.send("SET", key, claim.identifier, "NX", "PX", claim.expire_ms, until=until)
    if not done and claim.unique:
        # A client that lost the reply sends SET again, and is then refused by its own key.
        found = text(await get(port, key, claim.lock_name, until))
        done = found == claim.identifier and await _extend(port, claim, until) is None
    return bool(done)


async def _undo(port: Port, claim: Claim, cause: BaseException | None = None) -> None:
    """Let go what may be held, unless another may hold it by the same identifier."""
    granted = claim.deadline > -math.inf
    if granted or (claim.unique and cause is not None):
        await undo(port, claim, cause)


async def _extend(port: Port, claim: Claim, until: float) -> Refusal | None:
    return await ask(port, "extend", claim, claim.keys, claim.expire_ms, until=until)
