"""Which ``with`` block of a lock is being left: each block has an exit of its own.

A ``with`` statement, and contextlib's stacks, look up both methods of a block before they call the
first, and keep the second until the block is left. Here each look-up makes a ``Block``, or finds
the one of the other look-up, so what is called at the end knows what was entered at the beginning,
in whichever thread, task or context that is.

A subclass with methods of its own may let others go on between the two look-ups. So only look-ups
of one task, thread or greenlet make a pair: each has a context, and a copy of it is another's.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from threading import get_ident
from typing import Any, Generic, TypeVar
from weakref import ref

from redis_lock_decorators._rules.awaited import known_as_async
from redis_lock_decorators._shared.exits import BlockRef, owning

L = TypeVar("L")

#: Which methods of a block were looked up, and that the first was called.
ENTER, EXIT, BEGUN = 1, 2, 4
PAIR = ENTER | EXIT


class Block(Generic[L]):
    """One block of a lock.

    Only who can enter or leave it refers to it. So what it holds is given up where it is left
    without its exit: an exception from outside may come before the first line of that.

    Attributes:
        held: what was entered; None before and after.
        call: refers to what a call of its exit has (``exits.py``); None if that owns no block.
    """

    __slots__ = ("__weakref__", "_of", "_outer", "_owner", "_seen", "call", "held")

    def __init__(
        self, of: object, seen: int, outer: ref[Block[Any]] | None = None, owner: object = None
    ) -> None:
        self._of = of
        self._seen = seen
        self._outer = outer
        self._owner = owner  # who looked up its last method first, until it is begun
        self.held: L | None = None
        self.call: ref[BlockRef[Any]] | None = None

    def begin(self) -> bool:
        """Whether the exit of what is entered now will be this block's.

        It is not where the methods are called by hand: by names, or again and again. An exit that
        is called is offered to no later entry.
        """
        newest = _newest.get()
        if newest is not None and newest() is self:
            _newest.set(self._outer)
        seen, self._seen, self._owner = self._seen, BEGUN, None
        return seen == PAIR

    def is_exit_of(self, owner: object) -> bool:
        """Whether only its last method was looked up, by an owner whose entry may follow late."""
        return self._seen == EXIT and self._owner == owner


#: The block whose methods were looked up last in this context, of those not begun.
_newest: ContextVar[ref[Block[Any]] | None] = ContextVar(
    "redis_lock_decorators.newest", default=None
)


def _running_thread() -> object:
    return get_ident()


def _running_task() -> object:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop: its steps are taken by hand
        return get_ident()


class _Method:
    """One of the two methods of a block."""

    __slots__ = ("_function", "_is_async", "_owner")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)

    def __set_name__(self, kind: type, name: str) -> None:
        self._owner = _running_task if name.startswith("__a") else _running_thread

    def _of_class(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What is looked up at the class, and called with the lock."""
        return known_as_async(function) if self._is_async else function


class EnterMethod(_Method):
    """The first method of a block, which is called with it: ``function(lock, block)``."""

    __slots__ = ()

    def __get__(self, lock: Any, kind: type) -> Callable[..., Any]:
        of, newest = kind if lock is None else lock, _newest.get()
        block = None if newest is None else newest()
        if block is None or block._seen != EXIT or not self._is_ours(block, of, kind):
            block = _offered(of, ENTER)
        else:
            block._of, block._seen = of, PAIR
        if lock is None:
            return self._of_class(
                lambda lock: self._function(lock, _entered(lock, block, self._owner()))
            )
        return partial(self._function, lock, block)

    def _is_ours(self, block: Block[Any], of: object, kind: type) -> bool:
        """Whether an exit that was looked up first is of this lock, and of who looks this up."""
        return (block._of is of or block._of is kind) and block.is_exit_of(self._owner())


class ExitMethod(_Method):
    """The last method of a block: ``function(lock, BlockRef, …)``; tasks' has the block itself."""

    __slots__ = ("_enter",)

    def __set_name__(self, kind: type, name: str) -> None:
        super().__set_name__(kind, name)
        self._enter = name.replace("exit", "enter")

    def __get__(self, lock: Any, kind: type) -> Callable[..., Any]:
        of, newest = kind if lock is None else lock, _newest.get()
        block = None if newest is None else newest()
        if block is not None and block._of is of and block._seen == ENTER:
            block._seen = PAIR
        elif self._may_be_first(lock, kind):
            block = _offered(of, EXIT, self._owner())
        else:
            block = Block(of, EXIT)
        if lock is None:
            return self._of_class(
                lambda lock, *failure: self._bound(lock, _left(lock, block))(*failure)
            )
        return self._bound(lock, block)

    def _bound(self, lock: object, block: Block[Any]) -> Callable[..., Any]:
        if self._is_async:  # the coroutine goes on when the method is gone
            return partial(self._function, lock, block)
        return owning(self._function, lock, block)

    def _may_be_first(self, lock: Any, kind: type) -> bool:
        """Whether it is looked up before the other where not by hand."""
        if sys.version_info >= (3, 14) or (sys.version_info < (3, 11) and lock is None):
            return True
        found = (vars(base)[self._enter] for base in kind.__mro__ if self._enter in vars(base))
        return not isinstance(next(found), EnterMethod)  # a subclass has its own, which calls ours


def _offered(of: object, method: int, owner: object = None) -> Block[Any]:
    """A block of a lock or a class whose other method will be looked up next."""
    block: Block[Any] = Block(of, method, _newest.get(), owner)
    _newest.set(ref(block))
    return block


def _entered(lock: object, block: Block[Any], owner: object) -> Block[Any]:
    """The block of a first method that was looked up at the class, and is called with the lock.

    A subclass's own may call it so. Then the block's last method was looked up before.
    """
    outer = None if block._outer is None or block._seen != ENTER else block._outer()
    if outer is not None and outer.is_exit_of(owner) and outer._of in (lock, type(lock)):
        _newest.set(block._outer)
        outer._seen, block = PAIR, outer
    block._of = lock
    return block


def _left(lock: object, block: Block[Any]) -> Block[Any]:
    """The block of a last method that was looked up at the class, and is called with the lock.

    Meanwhile a subclass's own first method may have entered another lock of the class with it.
    """
    return block if block._of is lock or isinstance(block._of, type) else Block(lock, EXIT)
