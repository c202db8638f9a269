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
        """Note that a thread or task has entered a block."""
        self._open.append(OpenBlock(owner, hold))

    def innermost(self, owner: object) -> OpenBlock[H] | None:
        """Return the last block that a thread or task has entered and not left; None for none."""
        return next((block for block in reversed(self._open) if block.owner is owner), None)

    def replace(self, owner: object, hold: H | None) -> None:
        """Note what a thread or task has acquired; its block, if it is in one, holds that now."""
        if (block := self.innermost(owner)) is not None:
            block.hold = hold

    def forget(self, hold: H) -> None:
        """Note that a hold was released."""
        for block in list(self._open):
            if block.hold is hold:
                block.hold = None

    def leave(self, owner: object) -> OpenBlock[H] | None:
        """Remove and return the block that a thread or task leaves; None if none is open.

        If it has entered none, another one has, as for a generator or an exit stack that is closed
        elsewhere. Then it is the oldest: as only one block can hold the lock, the others have lost
        theirs, and the newest has not.
        """
        block = self.innermost(owner) or next(iter(list(self._open)), None)
        if block is not None:
            with suppress(ValueError):
                self._open.remove(block)
        return block
