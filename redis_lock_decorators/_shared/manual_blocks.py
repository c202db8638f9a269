"""Blocks that are entered and left by hand, whose exits do not know what was entered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._shared.lease_base import LeaseBase, held_around
from redis_lock_decorators.errors import LockError

L = TypeVar("L", bound=LeaseBase)


def left(blocks: dict[L, bool | None], running: Callable[[], object]) -> L | None:
    """The lease whose block is being left by hand, of those that were entered so.

    It is the only one, else the only one of this context, which tasks may share: then that of the
    one that leaves. None if that does not tell: threads of pools leave what others have entered, so
    the last one that this thread entered may be another's.
    """
    _forget_reported(blocks)
    found = _open(blocks)
    if len(found) > 1:
        context, owner = held_around(), running()
        found = [lease for lease in found if lease in context]
        found = [lease for lease in found if lease._claim.is_of(owner)] or found
    return found[0] if len(found) == 1 else None


def refuse_ambiguous(lock: object, blocks: dict[L, bool | None], kind: object) -> None:
    """Refuse to leave a block of which it is not known which it is; none outlives its lease.

    Until then they stay in ``blocks``, so that their holders are told.

    Raises:
        LockError: the body succeeded.
    """
    here = _open(blocks)
    for lease in here:
        lease._stop_renewing()
        blocks[lease] = True
    names = ", ".join(dict.fromkeys(lease.lock_name for lease in here))
    problem = "which has no open block"
    if here:
        problem = (
            f"and {len(here)} blocks of it are open: none is renewed any more; leave blocks by "
            "a with statement or an exit stack, or make a RedisLock for each"
        )
    error = LockError(
        f"{lock!r} is left by a thread or task that did not enter it, {problem}", names or None
    )
    if kind is None:
        raise error
    log.warning("%s", error)


def _open(blocks: dict[L, bool | None]) -> list[L]:
    """Those that may be left: in a forked child its own, else those it has from its parent."""
    found = [
        lease for lease in list(blocks) if not blocks.get(lease) and lease._claim.state is not ENDED
    ]
    return [lease for lease in found if lease._claim.is_of_this_process()] or found


def _forget_reported(blocks: dict[L, bool | None]) -> None:
    """Keep those that cannot be left no longer than until their holders are told."""
    for lease in list(blocks):
        if lease._claim.state is ENDED or (blocks.get(lease) and lease._is_reported()):
            blocks.pop(lease, None)
