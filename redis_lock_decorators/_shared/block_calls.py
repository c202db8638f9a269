"""Calls of a subclass's ``acquire`` and ``release`` by the blocks of a lock object.

These methods have no argument or result which says what they acquire and release. What the lock
object has acquired last may belong to another thread or task by the time it is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

from redis_lock_decorators._shared.context_variables import assign

H = TypeVar("H")
R = TypeVar("R")


class BlockCall:
    """One call. Code that it starts in other tasks or threads may refer to it after its end.

    Attributes:
        lock: the lock object; None once the call has ended.
        held: what it has acquired, or is to release; None if it has acquired nothing.
        is_release: it is the call of ``release``.
        acquired_instead: what ``release`` has acquired after it has released ``held``, or None.
        is_begun: the release of ``held`` has begun.
    """

    __slots__ = ("_before", "_first", "_owner", "held", "is_begun", "is_release", "lock")

    def __init__(
        self, lock: object, held: Any = None, is_release: bool = False, owner: object = None
    ) -> None:
        self.lock: object = lock
        self._owner = owner  # the thread or task that releases
        self.held = self._first = held
        self.is_release, self.is_begun = is_release, False
        self._before = _innermost()

    # A call ends by one store: an exception from outside may come at any call of a function.

    def run(self, method: Callable[[], R]) -> R:
        """Call a method."""
        try:
            assign(_call, self)
            return method()
        finally:
            self.lock = None
            assign(_call, self._before)

    async def run_awaiting(self, method: Callable[[], Awaitable[R]]) -> R:
        """Call a method and await its result."""
        try:
            assign(_call, self)
            return await method()
        finally:
            self.lock = None
            assign(_call, self._before)

    @property
    def acquired_instead(self) -> Any:
        return self.held if self.is_release and self.held is not self._first else None


#: The innermost call here, unless that has ended.
_call: ContextVar[BlockCall | None] = ContextVar("call", default=None)


def _innermost(lock: object = None) -> BlockCall | None:
    """Return the innermost call here that has not ended, of a lock object or of any."""
    call = _call.get()
    while call is not None and (call.lock is None or (lock is not None and call.lock is not lock)):
        call = call._before
    return call


def to_release(lock: object, usual: Callable[[], H], owner: object) -> H:
    """Return what ``release`` of a lock object releases here; outside of a call, ``usual()``."""
    call = _call_of(lock, owner)
    if call is None:
        return usual()
    call.is_begun = True
    held: H = call.held
    return held


def held_here(lock: object, usual: Callable[[], H], owner: object) -> H:
    """Return what other methods of a lock object are about; outside of a call, ``usual()``."""
    call = _call_of(lock, owner)
    return usual() if call is None else call.held


def _call_of(lock: object, owner: object) -> BlockCall | None:
    """Return the call whose hold a thread or task uses here.

    A ``release`` may have another one do its work. But once that has begun, others that it has
    started use the lock on their own.
    """
    call = _innermost(lock)
    if call is None or call.held is None:
        return None
    return None if call.is_begun and call._owner not in (None, owner) else call


def note_acquired(lock: object, held: object, owner: object) -> bool:
    """Note what ``acquire`` of a lock object has acquired; return whether it is for a block.

    A ``release`` may start other threads or tasks, whose acquisitions are not its own.
    """
    call = _innermost(lock)
    if call is None or (call.is_release and call._owner != owner):
        return False
    call.held = held
    return not call.is_release


def has_own(lock: object, method: str, originals: Mapping[str, object]) -> bool:
    """Whether a subclass, or a library that instruments code, has replaced a method."""
    return method in vars(lock) or getattr(type(lock), method) is not originals[method]


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
