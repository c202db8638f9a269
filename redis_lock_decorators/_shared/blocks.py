"""Find out which ``with`` block of a lock is being left: each block has a separate exit.

A ``with`` statement, like contextlib's exit stacks, looks up ``__enter__`` and ``__exit__`` before
it calls the first, and keeps the second until the block is left. The descriptors here create a
``Block`` at the first look-up and find it again at the second one. So the exit knows what was
entered, even if it runs in another thread, task or context::

    stack.enter_context(lock)  # one block: the stack keeps its exit
    with lock:                 # another one, as in a thread that waits for the first
        ...
    stack.close()              # leaves the first block, whatever became of the other

A subclass with methods of its own may let other code run between the two look-ups. So only look-ups
of the same thread, task or greenlet form a pair: each has its own context or a copy of one.
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
from redis_lock_decorators._shared.context_variables import assign
from redis_lock_decorators._shared.exits import (
    BOUND,
    BlockRef,
    UnboundExit,
    owning,
)

L = TypeVar("L")

#: The methods of a block that were looked up, and whether ``__enter__`` was called.
ENTER, EXIT, BEGUN = 1, 2, 4
PAIR = ENTER | EXIT


class Block(Generic[L]):
    """One ``with`` block of a lock.

    Only the bound methods refer to it. So if a signal handler raises before the first line of the
    exit, the block is collected, and what it holds is abandoned.

    Attributes:
        held: what was entered; None before and after.
        ownership: what shows the renewer that ``held`` can be released.
        call: a weak reference to the ``BlockRef`` of its exit (``exits.py``); None if it has none.
        is_shared: its methods were also called for other blocks, so the lock owns what it enters.
    """

    __slots__ = (
        "__weakref__",
        "_outer",
        "_owner",
        "_seen",
        "_target",
        "call",
        "held",
        "is_shared",
        "ownership",
    )

    def __init__(
        self, target: Any, seen: int, outer: ref[Block[Any]] | None = None, owner: object = None
    ) -> None:
        self._target = target
        self._seen = seen
        self._outer = outer
        self._owner = owner  # the thread or task that looked up __exit__ first; None once entered
        self.held: L | None = None
        self.ownership: object = None
        self.call: ref[BlockRef[Any]] | None = None
        self.is_shared = False  #: any thread

    def begin(self) -> bool:
        """Mark the block as used; return whether its own exit belongs to what is entered now.

        It does not if the methods are called directly, or repeatedly after one look-up.
        """
        newest = _newest.get()
        if newest is not None and newest() is self:
            assign(_newest, self._outer)
        seen, self._seen, self._owner = self._seen, BEGUN, None
        return seen == PAIR

    def share(self) -> None:
        """Have the lock own what was entered, or is being entered by another thread."""
        self.is_shared = True
        if self.held is not None:
            self._target._share(self)

    def disown(self) -> None:
        """No longer own what was entered; it is not what the exit releases."""
        self.held = self.ownership = None
        if self.call is not None and (reference := self.call()) is not None:
            reference.held = None

    def is_exit_of(self, owner: object) -> bool:
        """Whether only ``__exit__`` was looked up, by this owner."""
        return self._seen == EXIT and self._owner == owner


#: The unused block whose methods were looked up last in this context.
_newest: ContextVar[ref[Block[Any]] | None] = ContextVar(
    "redis_lock_decorators.newest", default=None
)


def _running_thread() -> object:
    return get_ident()


def _running_task() -> object:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop: the coroutine is run by hand
        return get_ident()


class _Method:
    """The descriptor of one of the two methods of a block."""

    __slots__ = ("_function", "_is_async", "_name", "_owner")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)

    def __set_name__(self, kind: type, name: str) -> None:
        self._name = name
        self._owner = _running_task if name.startswith("__a") else _running_thread

    def _of_class(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the unbound method."""
        return known_as_async(function) if self._is_async else function


class EnterMethod(_Method):
    """The descriptor of ``__enter__`` or ``__aenter__``: ``function(lock, block)``."""

    __slots__ = ()

    def __get__(self, lock: Any, kind: type) -> Callable[..., Any]:
        target, newest = kind if lock is None else lock, _newest.get()
        block = None if newest is None else newest()
        if block is None or block._seen != EXIT or not self._is_ours(block, target, kind):
            block = _offered(target, ENTER)
        else:
            block._target, block._seen = target, PAIR
        if lock is None:
            return self._unbound(block)
        return partial(self._function, lock, block)

    def _unbound(self, block: Block[Any]) -> Callable[..., Any]:
        """Return the unbound method: the block belongs to its first call, of any thread."""
        unused, first = [block], ref(block)
        del block  # the exit owns it

        def enter(lock: Any) -> Any:
            try:
                own = unused.pop()
            except IndexError:
                return self._function(lock, _another(lock, ENTER, first()))
            return self._function(lock, _entered(lock, own, self._owner()))

        enter.__name__ = self._name
        return self._of_class(enter)

    def _is_ours(self, block: Block[Any], target: object, kind: type) -> bool:
        """Whether the block, whose exit was looked up first, has this lock and this owner."""
        return (block._target is target or block._target is kind) and block.is_exit_of(
            self._owner()
        )


class ExitMethod(_Method):
    """The descriptor of ``__exit__``: ``function(lock, BlockRef, …)``.

    That of tasks is ``function(lock, Block, BlockRef, …)``.

    Args:
        function: the exit. It releases also if it is interrupted, except before its first line.
        interrupted: called with the lock and a block that is still held after an unbound exit was
            interrupted; none for tasks.
    """

    __slots__ = ("_enter", "_interrupted", "_kind")

    def __init__(
        self,
        function: Callable[..., Any],
        interrupted: Callable[[Any, Block[Any]], object] | None = None,
    ) -> None:
        super().__init__(function)
        self._interrupted = interrupted
        self._kind = None if interrupted is None else UnboundExit.kind(self._leave_again)

    def __set_name__(self, kind: type, name: str) -> None:
        super().__set_name__(kind, name)
        self._enter = name.replace("exit", "enter")

    def __get__(self, lock: Any, kind: type) -> Callable[..., Any]:
        target, newest = kind if lock is None else lock, _newest.get()
        block = None if newest is None else newest()
        if block is not None and block._target is target and block._seen == ENTER:
            block._seen = PAIR
        elif self._may_be_first(lock, kind):
            block = _offered(target, EXIT, self._owner())
        else:
            block = Block(target, EXIT)
        if lock is None:
            return self._unbound(block)
        if self._is_async:  # the coroutine outlives the bound method
            reference = BlockRef(block)
            block.call = ref(reference)
            return partial(self._function, lock, block, reference)
        return owning(self._function, block, lock)

    def _unbound(self, block: Block[Any]) -> Callable[..., Any]:
        """Return the unbound exit of a block, which an exit stack keeps and calls with the lock."""
        if self._kind is None:
            return self._of_class(
                lambda lock, *rest: self._function(lock, _left(lock, block), None, *rest)
            )
        unbound: Any = self._kind({BOUND: owning(self._leave, block)})
        return self._of_class(unbound)

    def _leave(
        self,
        reference: BlockRef[Block[Any]],
        lock: Any,
        *failure: object,
        own: Block[Any] | None = None,
    ) -> object:
        """Leave a block by its unbound exit.

        All its own lines are in one ``try``, as an exception may come before that of the function.
        ``own`` is never passed: as a parameter it is set before any interruption.
        """
        try:
            own = _left(lock, owned(reference))
            return self._function(
                lock, reference if reference() is own else BlockRef(own), *failure
            )
        except BaseException:
            block = own or owned(reference)
            if block.held is not None and self._interrupted is not None:
                self._interrupted(lock, block)
            raise

    def _leave_again(self, lock: Any, *failure: object) -> object:
        """Leave a block by an unbound exit that was called before."""
        block: Block[Any] = Block(lock, EXIT)
        return self._leave(BlockRef(block), lock, *failure)

    def _may_be_first(self, lock: Any, kind: type) -> bool:
        """Whether a ``with`` statement may look up the exit first."""
        if sys.version_info >= (3, 14) or (sys.version_info < (3, 11) and lock is None):
            return True
        found = (vars(base)[self._enter] for base in kind.__mro__ if self._enter in vars(base))
        return not isinstance(next(found), EnterMethod)  # a subclass overrides it and calls ours


def owned(reference: BlockRef[Block[L]]) -> Block[L]:
    """Return the block of a call of its exit.

    The bound exit keeps the block alive. But if the garbage collector closes a generator in a
    reference cycle, it has cleared the weak reference: then a new block replaces the old one.
    """
    block = reference()
    if block is None:
        block = Block(None, BEGUN)
        block.held, block.call = reference.held, ref(reference)
    return block


def _offered(target: object, method: int, owner: object = None) -> Block[Any]:
    """Create a block for a lock or class, whose other method may be looked up next."""
    block: Block[Any] = Block(target, method, _newest.get(), owner)
    assign(_newest, ref(block))
    return block


def _entered(lock: object, block: Block[Any], owner: object) -> Block[Any]:
    """Return the block of an unbound ``__enter__`` that is called with the lock.

    A subclass may call it so from its own method. Then the block's exit was looked up before.
    """
    outer = None if block._outer is None or block._seen != ENTER else block._outer()
    if outer is not None and outer.is_exit_of(owner) and outer._target in (lock, type(lock)):
        assign(_newest, block._outer)
        outer._seen, block = PAIR, outer
    block._target = lock
    return block


def _left(lock: object, block: Block[Any]) -> Block[Any]:
    """Return the block of an unbound ``__exit__`` that is called with the lock.

    Since the look-up, another lock of the class may have been entered with the block. The lock of a
    block that was garbage-collected is not known.
    """
    return block if block._target is lock or block._target is None else _another(lock, EXIT, block)


def _another(lock: object, method: int, block: Block[Any] | None) -> Block[Any]:
    """Return a new block for an unbound method whose own block is not that of this call."""
    if block is not None:
        block.share()
    return Block(lock, method)
