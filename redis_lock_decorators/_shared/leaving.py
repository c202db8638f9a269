"""What a block releases that calls the ``release`` of a subclass when it is left.

That method has no argument which says what to release. What the lock object has acquired last may
belong to another thread or task by then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from redis_lock_decorators._shared.context_variables import assign

H = TypeVar("H")

#: A lock object whose block is being left here, and what that holds.
_leaving: ContextVar[tuple[object, Any] | None] = ContextVar("leaving", default=None)


def to_release(lock: object, usual: Callable[[], H]) -> H:
    """Return what ``release`` of a lock object releases here; outside of an exit, ``usual()``."""
    leaving = _leaving.get()
    return leaving[1] if leaving is not None and leaving[0] is lock else usual()


def leave_by(release: Callable[[], object], lock: object, held: object) -> None:
    """Call the ``release`` of a subclass for what a block holds."""
    before = _leaving.get()
    try:
        assign(_leaving, (lock, held))
        release()
    finally:
        _end(before)


async def leave_by_awaiting(
    release: Callable[[], Awaitable[object]], lock: object, held: object
) -> None:
    """As ``leave_by``, for tasks."""
    before = _leaving.get()
    try:
        assign(_leaving, (lock, held))
        await release()
    finally:
        _end(before)


def release_completely(
    find: Callable[[], H | None],
    release: Callable[[H | None], object],
    abandon: Callable[[H | None], object],
    is_result: Callable[[BaseException], bool],
    held: H | None = None,
    is_found: bool = False,
) -> None:
    """Release what ``find`` returns; abandon it if an exception from outside comes meanwhile.

    It is not looked for again: what is found then may belong to another thread.
    """
    # The last two are never passed: as parameters they are set before any interruption.
    try:
        held = find()
        is_found = True
        release(held)
    except BaseException as error:
        if not is_result(error):
            abandon(held if is_found or held is not None else find())
        raise


def _end(before: tuple[object, Any] | None) -> None:
    try:
        assign(_leaving, before)
    finally:  # again, as an exception from outside may come before the line above
        assign(_leaving, before)
