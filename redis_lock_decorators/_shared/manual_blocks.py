"""Blocks entered and left by direct calls, whose exits do not know what was entered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.logs import log
from redis_lock_decorators._shared.current_leases import held_around
from redis_lock_decorators._shared.lease_base import LeaseBase
from redis_lock_decorators.errors import LockError

L = TypeVar("L", bound=LeaseBase)


def left(blocks: dict[L, bool | None], running: Callable[[], object]) -> L | None:
    """Return the lease to release where ``__exit__`` is called by hand; None if it is ambiguous.

    The only open one; else the only one of this context; else, as tasks may share a context, the
    only one there of the running thread or task. The last one that this thread has entered is no
    evidence: threads of a pool leave blocks that others have entered.
    """
    _forget_reported(blocks)
    found = _open(blocks)
    if len(found) > 1:
        context, owner = held_around(), running()
        found = [lease for lease in found if lease in context]
        found = [lease for lease in found if lease._claim.is_of(owner)] or found
    return found[0] if len(found) == 1 else None


def refuse_ambiguous(lock: object, blocks: dict[L, bool | None], kind: object) -> None:
    """Refuse an ambiguous exit, and end the renewal of all blocks that it may mean.

    They stay in ``blocks`` until their loss is reported.

    Raises:
        LockError: the body succeeded; else the error is logged.
    """
    here = _open(blocks)
    for lease in here:
        lease._stop_renewing()
        blocks[lease] = True
    names = ", ".join(dict.fromkeys(lease.lock_name for lease in here))
    problem = "which has no open block"
    if here:
        problem = (
            f"and {len(here)} blocks of it are open: they are no longer renewed; use a with "
            "statement or an exit stack, or a RedisLock for each block"
        )
    error = LockError(
        f"{lock!r} is exited by a thread or task that did not enter it, {problem}", names or None
    )
    if kind is None:
        raise error
    log.warning("%s", error)


def _open(blocks: dict[L, bool | None]) -> list[L]:
    """Return the leases whose blocks are open; in a forked child, its own before the parent's."""
    found = [
        lease for lease in list(blocks) if not blocks.get(lease) and lease._claim.state is not ENDED
    ]
    return [lease for lease in found if lease._claim.is_of_this_process()] or found


def _forget_reported(blocks: dict[L, bool | None]) -> None:
    """Remove the leases that have ended, and the ambiguous ones whose loss is reported."""
    for lease in list(blocks):
        if lease._claim.state is ENDED or (blocks.get(lease) and lease._is_reported()):
            blocks.pop(lease, None)
