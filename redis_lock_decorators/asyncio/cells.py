"""The tokens of tasks: where a lock for redis-py's clients keeps what each task holds."""

from __future__ import annotations

import asyncio
import math
import threading
from weakref import WeakKeyDictionary, ref

from redis_lock_decorators.drop_in import Cell
from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.world.clock import monotonic


class _TaskCell(Cell):
    """A task's cell, which is kept while it holds a claim though its task may have ended."""

    __slots__ = ("_kept", "_runner", "thread")

    def __init__(self, runner: object, kept: dict[_TaskCell, None]) -> None:
        super().__init__()
        self._runner = ref(runner)
        self._kept = kept
        self.thread = threading.get_ident()

    def put(self, claim: Claim | None) -> None:
        super().put(claim)
        if claim is None:
            self._kept.pop(self, None)
        else:
            self._kept[self] = None

    def is_over(self) -> bool:
        """Whether what it holds is known to have ended."""
        claim = self.claim
        if claim is None or claim.ended:
            return True
        if claim.deadline == -math.inf:  # of a token from elsewhere: its end is not known here
            return self._runner() is None
        return claim.deadline < monotonic()


class TaskCells:
    """The cells of a lock's tasks. Called, it finds the one to release or extend.

    A task that has acquired, or tried to, has its own: what another holds is not let go by mistake.
    """

    def __init__(self) -> None:
        self._own: WeakKeyDictionary[object, _TaskCell] = WeakKeyDictionary()
        self._kept: dict[_TaskCell, None] = {}

    def __call__(self) -> Cell:
        return self._own.get(_runner()) or self._held()

    def own(self) -> Cell:
        """That of the running task."""
        runner = _runner()
        cell = self._own.get(runner)
        if cell is None:
            for other in list(self._kept):
                if other.is_over():  # its task keeps it, if that has not ended
                    self._kept.pop(other, None)
            cell = self._own[runner] = _TaskCell(runner, self._kept)
        return cell

    def left(self) -> Cell:
        """The one of the block that the running task leaves."""
        own = self._own.get(_runner())
        return self._held() if own is None or own.claim is None else own

    def _held(self) -> Cell:
        """That of the only task of this thread that holds the lock; else one that is empty."""
        here = threading.get_ident()
        kept = [cell for cell in list(self._kept) if cell.thread == here]
        found = [cell for cell in kept if not cell.is_over()] or kept
        return found[0] if len(found) == 1 else Cell()


def _runner() -> object:
    """The running task; outside tasks, the thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return task or threading.current_thread()
