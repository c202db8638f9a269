"""Letting go where one way of it is refused: by the next. What was taken can be let go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.release_methods import CANNOT_WATCH, by_script, native, transaction
from redis_lock_decorators._flow.requests import Refusal, is_torn, unlock
from redis_lock_decorators._rules import durations
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators.errors import ConfigurationError, shown

#: A way to let go the keys that it is called with.
Way = Callable[[], Awaitable[Refusal | None]]


def refuse_unfit(port: Port, method: ReleaseMethod) -> None:
    """Refuse a way to let go that the client does not have, before anything is taken."""
    if method == "transaction" and not port.transacts:
        raise ConfigurationError(f"{CANNOT_WATCH}: release by release_method='script'")


async def with_fallbacks(
    port: Port,
    claim: Claim,
    part: tuple[bytes, ...],
    method: ReleaseMethod,
    until: float,
    work: Awaitable[Refusal | None],
) -> Refusal | None:
    """Let keys go by ``work``, or else in another way.

    Each key is let go by itself if their slot is moving, so that no script may touch several.
    """
    try:
        return await work
    except Exception as error:
        if is_torn(port, error):
            return await unlock(port, claim, part, _rest(port, claim), until)
        if not _is_barred(port, error):
            raise
        barred = error
    for way in _others(port, claim, part, method, until):
        try:
            refusal = await way()
        except ConfigurationError:  # the server does not have it
            continue
        except Exception as error:
            if not _is_barred(port, error):
                raise
            continue
        log.info(
            "lock %s was let go in another way than usual, which failed (%s: %s)",
            *(shown(claim.lock_name), type(barred).__name__, barred),
        )
        return refusal
    raise barred


def _is_barred(port: Port, error: Exception) -> bool:
    """Whether the server will not do it in this way, though perhaps in another."""
    return port.lacks(error) in ("command", "right", "memory")


def _others(
    port: Port, claim: Claim, part: tuple[bytes, ...], method: ReleaseMethod, until: float
) -> Iterator[Way]:
    """All other ways, those that leave least behind first.

    The scripts come first, for what they touch in the end is but what the lock was taken by.
    """
    rest = _rest(port, claim)
    if method != "script" and rest == 0:
        yield partial(_one_by_one, by_script, port, claim, part, until)
    yield partial(unlock, port, claim, part, rest, until)
    if rest == 0:  # it is not even allowed to delete
        yield partial(unlock, port, claim, part, 1, until)
    if method != "transaction" and port.transacts:
        yield partial(_one_by_one, transaction, port, claim, part, until)
    if method != "native":
        yield partial(_one_by_one, native, port, claim, part, until)


async def _one_by_one(
    way: Callable[[Port, Claim, bytes, float], Awaitable[Refusal | None]],
    port: Port,
    claim: Claim,
    part: tuple[bytes, ...],
    until: float,
) -> Refusal | None:
    found = [await way(port, claim, key, until) for key in part]
    refusals = [refusal for refusal in found if refusal is not None]
    return max(refusals, key=lambda refusal: refusal.holder or "", default=None)


def _rest(port: Port, claim: Claim) -> int:
    """For how many milliseconds the lock is to stand though nobody holds it."""
    left = claim.held_until - port.now()
    return durations.milliseconds(left) if left > 0 else 0
