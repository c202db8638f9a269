"""An event loop in virtual time that cancels tasks of the package at a chosen iteration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from support.batching import FILES
from support.virtual_loop import VirtualLoop


class CancellingLoop(VirtualLoop):
    """Cancels the tasks that ``chosen`` picks before one iteration: at one of their awaits.

    Args:
        at: the number of the iteration.
    """

    def __init__(self, at: int, chosen: Callable[[set[asyncio.Task[Any]]], Any]) -> None:
        super().__init__()
        self.iteration = 0
        self.cancelled = 0
        self._at, self._chosen = at, chosen

    def _run_once(self) -> None:
        self.iteration += 1
        if self.iteration == self._at:
            for task in self._chosen(asyncio.all_tasks(self)):
                self.cancelled += task.cancel()
        super()._run_once()  # type: ignore[misc]


def of_the_package(tasks: set[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """The tasks that a batcher started."""
    return [task for task in tasks if code_of(task.get_coro()).co_filename in FILES]


def code_of(work: Any) -> Any:
    """The code of a coroutine."""
    assert isinstance(work, Coroutine)
    return work.cr_code  # type: ignore[attr-defined]
