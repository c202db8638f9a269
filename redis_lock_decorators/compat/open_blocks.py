"""The open ``with`` blocks of a lock object that threads or tasks share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import ref

from redis_lock_decorators._flow import fork
from redis_lock_decorators._shared.block_calls import BlockCall
from redis_lock_decorators._shared.blocks import Block
from redis_lock_decorators._shared.exits import BlockRef

#: What a block holds.
H = TypeVar("H")
#: The type of ``Block.call``.
Call = ref[BlockRef[Any]] | None


class OpenBlock(Generic[H]):
    """One block, or what was acquired by a call of ``acquire`` in it.

    Attributes:
        owner: the thread or task that entered it.
        process: the process in which it did.
        hold: what the block holds; None if that was released, or nothing was acquired.
        is_block: it is a block.
        is_empty: nothing was acquired: a subclass has entered it by other means.
        is_left: an exit that was called directly has left it.
        ownership: what lets the hold be renewed; None if it is not.
        exit: the weak reference to its ``Block``; None if it was entered by a direct call.
    """

    def __init__(self, owner: object, hold: H | None, ownership: object = None) -> None:
        self.owner = owner
        self.process = fork.process_id
        self.hold = hold
        self.is_block, self.is_empty, self.is_left = True, hold is None, False
        self.ownership = ownership
        self.exit: object = None


class OpenBlocks(Generic[H]):
    """The open blocks of one object, so that each releases only what it has acquired.

    Args:
        gone: called if a block was deleted, as an exception from outside has interrupted its entry
            or exit: with what it holds and ``Block.call``.
        is_over: whether what a block holds was released or abandoned.
    """

    def __init__(self, gone: Callable[[H, Call], object], is_over: Callable[[H], bool]) -> None:
        self._open: list[OpenBlock[H]] = []  #: any thread
        self._gone, self._is_over = gone, is_over
        #: any thread: what was acquired last and no block has: by a call of ``acquire``, or what a
        #: subclass has kept at the end of its block
        self._free: H | None = None

    def enter(
        self,
        block: Block[OpenBlock[H]],
        has_exit: bool,
        owner: object,
        hold: H | None,
        ownership: object = None,
    ) -> None:
        """Note that a thread or task has entered a block."""
        entered = OpenBlock(owner, hold, ownership)
        if has_exit and block.held is None:  # else the same bound methods are called repeatedly
            block.held = entered
            if block.call is not None and (reference := block.call()) is not None:
                reference.held = entered
            entered.exit = ref(block, partial(self._on_exit_gone, entered, block.call))
        else:
            self._remove_left(owner)
            block.is_shared = True
        self._open.append(entered)
        if block.is_shared:
            self.share(block)

    def share(self, block: Block[OpenBlock[H]]) -> None:
        """Separate a block from its exit, as that is called for several blocks."""
        if block.held is not None:
            block.held.exit = None
        block.disown()

    def innermost(self, owner: object) -> OpenBlock[H] | None:
        """Return the last block that a thread or task has entered and not left; None for none.

        Or what it has acquired in that and not released. Not of the process that this one was
        forked from.
        """
        return next(
            (one for one in self._own(owner) if one.is_block or not self._is_left(one)), None
        )

    def note_acquired(self, owner: object, hold: H) -> None:
        """Note what a thread or task has acquired by ``acquire``.

        It belongs to the block that it is in, if that has released what it held. Otherwise that
        block may have lost its own lock, and its exit must not release this one.
        """
        self._free = hold
        block = next((one for one in self._own(owner) if one.is_block), None)
        if block is not None and self._is_left(block):
            block.hold = hold
        elif block is not None:
            self._open.append(self.acquired(owner, hold))

    def _own(self, owner: object) -> list[OpenBlock[H]]:
        """Return what a thread or task of this process has entered, the last one first."""
        own = [one for one in reversed(list(self._open)) if one.owner is owner]
        return [one for one in own if one.process == fork.process_id and not one.is_empty]

    def forget(self, hold: H | None) -> None:
        """Note that a hold was released."""
        for block in list(self._open):
            if hold is not None and block.hold is hold:
                block.hold = None
            if not block.is_block and self._is_left(block):
                self._remove(block)

    def begin_exit(self, block: Block[OpenBlock[H]]) -> OpenBlock[H] | None:
        """Return what a block with an exit of its own has entered, before it is left.

        Not what an earlier call of the same bound exit has left.
        """
        if block.held is not None and block.held.is_left:
            block.disown()
        return block.held

    def leave(self, block: Block[OpenBlock[H]], owner: object) -> OpenBlock[H] | None:
        """Return what the thread or task leaves; None if nothing is open.

        It can be called again if it was interrupted, as long as it has not returned.
        """
        if block.held is not None:
            return self.drop(block)
        while (found := self._to_leave_by_hand(owner)) is not None:
            block.held = found  # first: the next line may be interrupted
            if self._remove(found):
                found.is_left = True
                return found
            block.held = None  # another thread has left it
        return None

    def to_release(
        self, left: OpenBlock[H] | None, last: H | None, by_subclass: bool
    ) -> OpenBlock[H] | None:
        """Return what is released at the end of a block, which may have acquired nothing.

        Then it is what the object has acquired ``last``, if no block has that: its thread may have
        acquired it before or in the block, or another block may have left it to the last one. The
        ``release`` of a subclass may count the blocks of its thread or task, and release what an
        outer one has.
        """
        if left is None or not left.is_empty:
            return left
        if by_subclass and (outer := self.innermost(left.owner)) is not None:
            return outer
        if last is None or last is not self._free:
            return left
        return self.acquired(left.owner, last)

    def keep(self, left: OpenBlock[H] | None) -> None:
        """Note that a block was left; a subclass may have kept what it holds."""
        if left is not None and not self._is_left(left):
            self._free = left.hold

    @staticmethod
    def acquired(owner: object, hold: H | None) -> OpenBlock[H]:
        """Return what was acquired, as for a block."""
        acquired = OpenBlock(owner, hold)
        acquired.is_block = False
        return acquired

    def to_abandon(
        self,
        block: Block[OpenBlock[H]],
        owner: object,
        left: OpenBlock[H] | None,
        held: OpenBlock[H] | None,
        call: BlockCall | None,
        is_interrupted: bool,
    ) -> list[H]:
        """Return what to release after an exit has failed.

        Args:
            left: what the exit has left, if known.
            held: what it was to release, if known.
            call: of the ``release`` of a subclass.
            is_interrupted: by an exception from outside; otherwise a release that has begun has an
                outcome, and can be repeated.
        """
        found: list[OpenBlock[H] | None] = []
        is_begun = call is None or call.is_begun
        if is_interrupted or not is_begun:
            found.append(self.drop(block) or left or self.leave(block, owner))
        if is_interrupted and is_begun:
            found.append(held)
        if call is not None:
            found.append(call.acquired_instead)
        return [one.hold for one in found if one is not None and one.hold is not None]

    def drop(self, block: Block[OpenBlock[H]]) -> OpenBlock[H] | None:
        """Return what a block with an exit of its own has entered, which is no longer open."""
        entered = block.held
        if entered is not None:
            self._remove(entered)
            entered.exit = None
            block.disown()
        return entered

    def _to_leave_by_hand(self, owner: object) -> OpenBlock[H] | None:
        """Return the block whose ``__exit__`` is called directly.

        If the thread or task has entered several, or none, it is the oldest one, of those that were
        not released. Only one block can hold the lock: that is the newest, and the others have lost
        it. So none releases it too soon.
        """
        every = [block for block in list(self._open) if block.is_block and block.exit is None]
        own = [block for block in every if block.owner is owner]
        here = [block for block in own if block.process == fork.process_id]
        found = here or own or every
        return next((block for block in found if not self._is_left(block)), next(iter(found), None))

    def _remove_left(self, owner: object) -> None:
        """Forget blocks of a thread or task that it has released, but not left; not the last one.

        Its exit may be called still. It must not take that for the exit of another block.
        """
        own = [one for one in self._own(owner) if one.is_block and one.exit is None]
        for block in [block for block in own if self._is_left(block)][1:]:
            self._remove(block)

    def _is_left(self, block: OpenBlock[H]) -> bool:
        return block.hold is None or self._is_over(block.hold)

    def _remove(self, block: OpenBlock[H]) -> bool:
        """Remove a block; return False if another thread has done so."""
        with suppress(ValueError):
            self._open.remove(block)
            return True
        return False

    def _on_exit_gone(self, block: OpenBlock[H], call: Call, _: object) -> None:
        block.exit = None
        self._remove(block)
        if block.hold is not None:
            self._gone(block.hold, call)


def acquired_by(call: BlockCall) -> Any:
    """Return what a subclass's ``acquire`` has acquired for a block; None if nothing."""
    return None if call.held is None else call.held.hold
