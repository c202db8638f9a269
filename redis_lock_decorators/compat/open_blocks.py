"""The open ``with`` blocks of a lock object that threads or tasks share."""

from __future__ import annotations

from contextlib import suppress
from typing import Generic, TypeVar

from redis_lock_decorators._flow import fork

#: What a block holds.
H = TypeVar("H")


class OpenBlock(Generic[H]):
    """One block.

    Attributes:
        owner: the thread or task that entered it.
        process: the process in which it did.
        hold: what the block holds; None if that was released.
    """

    def __init__(self, owner: object, hold: H | None) -> None:
        self.owner = owner
        self.process = fork.process_id
        self.hold = hold


class OpenBlocks(Generic[H]):
    """The open blocks of one object, so that each releases only what it has acquired."""

    def __init__(self) -> None:
        self._open: list[OpenBlock[H]] = []  #: any thread

    def enter(self, owner: object, hold: H | None) -> None:
        """Note that a thread or task has entered a block, and no other one holds the same."""
        self.forget(hold)
        self._open.append(OpenBlock(owner, hold))

    def innermost(self, owner: object) -> OpenBlock[H] | None:
        """Return the last block that a thread or task has entered and not left; None for none.

        Not one of the process that this one was forked from.
        """
        own = (block for block in reversed(list(self._open)) if block.owner is owner)
        return next((block for block in own if block.process == fork.process_id), None)

    def replace(self, owner: object, hold: H | None) -> None:
        """Note what a thread or task has acquired by ``acquire``: for the block that it is in."""
        if (block := self.innermost(owner)) is not None:
            block.hold = hold

    def forget(self, hold: H | None) -> None:
        """Note that a hold was released."""
        for block in list(self._open):
            if block.hold is hold:
                block.hold = None

    def leave(self, owner: object) -> OpenBlock[H] | None:
        """Remove and return the block that a thread or task leaves; None if none is open.

        If it has entered several, as a thread of a pool does, or none, as one that closes the
        generator or exit stack of another, it is the oldest one. Only one block can hold the lock:
        that is the newest, and the others have lost it. So none releases it too soon.
        """
        while every := list(self._open):
            own = [block for block in every if block.owner is owner]
            here = [block for block in own if block.process == fork.process_id]
            block = (here or own or every)[0]
            with suppress(ValueError):  # another thread has taken it
                self._open.remove(block)
                return block
        return None
