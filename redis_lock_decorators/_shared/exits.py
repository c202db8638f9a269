"""Detect an exit that a signal handler interrupts before its first line.

From Python 3.11 a signal handler may run, and raise, after a function was called but before its
first line, so before any ``try`` in it. The traceback of the exception then keeps the function's
frame and its arguments alive. So the bound exit method owns the block, and passes the call only a
weak reference (``BlockRef``): the ``with`` statement drops the method in any case. If the block is
collected while the frame's ``BlockRef`` is alive, the exit was called and interrupted.

The garbage collector clears the weak references of objects in a reference cycle before it closes
their generators, whose exits it then calls. So the ``BlockRef`` also refers to what the block
holds.

An ``async with`` statement calls its exit and awaits the result: a signal handler may raise between
the two, when the coroutine has not begun. It owns the block. It drops its arguments in their order,
so the block is collected while the ``BlockRef`` is alive; a bound method that was not called drops
them in the opposite order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from types import MethodType
from typing import Any, Protocol, TypeVar
from weakref import ref

B = TypeVar("B", bound="Owned")
#: The key of the bound exit of an unbound one.
BOUND = "bound"


class Owned(Protocol):
    """A block, or a ``LeaseGuard``, that is owned by its bound exit method.

    Attributes:
        call: a weak reference to the ``BlockRef`` of its exit; None if it has no such exit.
    """

    call: ref[BlockRef[Any]] | None


class BlockRef(ref[B]):
    """The weak reference to the block that a call of its exit gets.

    Attributes:
        held: what was entered, even after the block was left.
    """

    __slots__ = ("__weakref__", "held")

    held: Any


def owning(function: Callable[..., Any], block: Owned, *first: object) -> Callable[..., Any]:
    """Return an exit that owns its block and calls ``function(*first, BlockRef, …)``."""
    reference = BlockRef(block)
    reference.held = None
    block.call = ref(reference)
    bound = partial(function, *first, reference)
    bound.__dict__["block"] = block  # a partial drops its arguments before its __dict__
    return bound


class UnboundExit(dict[str, Callable[..., Any]]):
    """An unbound exit, which an exit stack keeps and calls with the lock.

    The frame of the stack keeps it, in the traceback of an exception. So the first call removes the
    bound exit, which owns the block, in C code: no signal handler can raise before that. The block
    is collected at the end of the call, even if the exception is kept.
    """

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__  # type: ignore[assignment]

    @staticmethod
    def kind(again: Callable[..., Any]) -> type[UnboundExit]:
        """Return a class of unbound exits whose later calls call ``again``."""
        call = property(methodcaller("pop", BOUND, again))
        parts = {
            "__slots__": (),
            "__name__": "__exit__",
            "__call__": call,
            "__signature__": inspect.signature(again),
        }
        return type("UnboundExit", (UnboundExit,), parts)

    def __get__(self, lock: object, kind: type | None = None) -> Callable[..., Any]:
        """Become a method of another class, as functions do."""
        made: Any = self
        return made if lock is None else MethodType(made, lock)


def has_begun(call: ref[BlockRef[Any]] | None) -> bool:
    """Whether the exit of a collected block was called; an exception's traceback has its frame."""
    return call is not None and call() is not None


class LeaseGuard:
    """The substitute for a block where a lease itself is entered: ``with lease:``."""

    __slots__ = ("__weakref__", "call")

    def __init__(self) -> None:
        self.call: ref[BlockRef[Any]] | None = None


class LeaseExit:
    """The descriptor of ``Lease.__exit__``: ``function(lease, BlockRef, kind, error, trace)``.

    Args:
        function: the exit. It releases also if it is interrupted, except before its first line.
        interrupted: called with the lease after an unbound exit has raised.
    """

    __slots__ = ("_function", "_interrupted")

    def __init__(self, function: Callable[..., Any], interrupted: Callable[[Any], object]) -> None:
        self._function = function
        self._interrupted = interrupted

    def __get__(self, lease: Any, kind: type) -> Callable[..., Any]:
        if lease is None:
            return self._of_class
        guard = LeaseGuard()
        bound = owning(self._function, guard, lease)
        if lease._block is None:
            lease._leaving = guard.call
            lease._block = ref(guard, lease._on_exit_gone)
        return bound

    @property
    def _of_class(self) -> Callable[..., Any]:
        """The unbound method, as of an exit stack."""
        function, interrupted = self._function, self._interrupted

        def leave(self: object, kind: object, error: object, trace: object) -> None:
            try:
                function(self, None, kind, error, trace)
            except BaseException:
                interrupted(self)
                raise

        return leave
