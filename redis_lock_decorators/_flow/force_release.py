"""Release a lock of another client, by the identifier found in its key."""

from __future__ import annotations

from functools import partial

from redis_lock_decorators._flow.claim import claim_on
from redis_lock_decorators._flow.extend import holders
from redis_lock_decorators._flow.identifiers import released_by
from redis_lock_decorators._flow.owner_info import removing
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.requests import Refusal, ask, is_slot_moving, unlock
from redis_lock_decorators._flow.retries import OUTAGE, with_repeats
from redis_lock_decorators._rules.keys import with_queue


async def force(
    port: Port,
    keys: tuple[bytes, ...],
    identifier: str | None,
    lock_names: tuple[str, ...] | None = None,
) -> bool:
    """Release each key that holds ``identifier``, or any (None); whether there was one.

    A min-hold placeholder counts as the identifier that released the key.
    """
    found = await holders(port, keys, lock_names=lock_names)
    seen = [(key, holder) for key, holder in zip(keys, found, strict=True) if holder is not None]
    wanted = [
        (key, holder) for key, holder in seen if identifier in (None, holder, released_by(holder))
    ]
    for key, holder in wanted:
        await with_repeats(port, partial(_attempt, port, key, holder), port.now() + OUTAGE)
    return bool(wanted)


async def _attempt(port: Port, key: bytes, holder: str, until: float) -> Refusal | None:
    claim = claim_on(key, 1.0, holder)
    send = removing(port, "force", key, holder)
    try:
        return await ask(port, "force", claim, with_queue((key,)), until=until, send=send)
    except Exception as error:
        if not is_slot_moving(
            port, error
        ):  # while its slot is moving it cannot be granted to a waiter
            raise
    return await unlock(port, claim, key, until)
