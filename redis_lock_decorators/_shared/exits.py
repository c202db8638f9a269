"""Exits that are noticed when an exception from outside ends them before their first line.

From Python 3.11 a signal handler may run, and raise, when a function was called, before its first
line, so before any ``try`` in it. The trace of that exception keeps the function's frame, and what
the frame refers to, for as long as somebody keeps the exception. So the call of an exit refers to
its block weakly: the block belongs to the exit itself, which a ``with`` statement lets go in any
case. That the block is gone while the frame is there tells that it was being left.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar, cast
from weakref import ref

B = TypeVar("B", bound="Owned")


class Owned(Protocol):
    """A block, or what stands for it, that its exit owns.

    Attributes:
        call: refers to what a call of its exit has; None if it has no such exit.
    """

    call: ref[BlockRef[Any]] | None


class BlockRef(ref[B]):
    """What a call of an exit has of its block."""

    __slots__ = ("__weakref__",)


def owning(function: Callable[..., Any], lock: object, block: Owned) -> Callable[..., Any]:
    """An exit that owns its block, and calls ``function(lock, BlockRef, …)``."""
    of = BlockRef(block)
    block.call = ref(of)
    bound = partial(function, lock, of)
    bound.__dict__["block"] = block  # it lets go its arguments before this
    return bound


def owned(of: BlockRef[B]) -> B:
    """The block of a call: the exit that is called has it."""
    return cast(B, of())


def has_begun(call: ref[BlockRef[Any]] | None) -> bool:
    """Whether an exit whose block is gone was called, and is in the trace of an exception."""
    return call is not None and call() is not None


class LeaseGuard:
    """Stands for the block of a lease that is entered itself, without a lock."""

    __slots__ = ("__weakref__", "call")

    def __init__(self) -> None:
        self.call: ref[BlockRef[Any]] | None = None


class LeaseExit:
    """The exit of a lease: ``function(lease, BlockRef, kind, error, trace)``."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __get__(self, lease: Any, kind: type) -> Callable[..., Any]:
        if lease is None:
            return self._of_class
        guard = LeaseGuard()
        bound = owning(self._function, lease, guard)
        if lease._block is None:
            lease._leaving = guard.call
            lease._block = ref(guard, lease._on_exit_gone)
        return bound

    @property
    def _of_class(self) -> Callable[..., Any]:
        """What is looked up at the class, and called with the lease."""
        function = self._function

        def leave(self: object, kind: object, error: object, trace: object) -> None:
            function(self, None, kind, error, trace)

        return leave
