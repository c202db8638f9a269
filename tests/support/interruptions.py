"""An exception from outside, as a signal handler raises it, at a line of our code."""

from __future__ import annotations

import linecache
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import redis_lock_decorators

PACKAGE = str(pathlib.Path(redis_lock_decorators.__file__).parent)


class Interrupted(BaseException):
    """What the signal handler raises."""


class Limited(Exception):
    """What it raises where it ends work that takes too long."""


class Interruption:
    """Raises at the n-th line that runs in the package, once.

    Attributes:
        kind: what it raises.
    """

    kind: type[BaseException] = Interrupted

    def __init__(self, number: int) -> None:
        self.left = number
        self.queue_entry = "nowhere"

    def __enter__(self) -> Interruption:
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *failure: object) -> None:
        sys.settrace(self._before)

    @property
    def happened(self) -> bool:
        """Whether there were so many lines."""
        return self.left < 0

    def _call(self, frame: Any, event: str, argument: object) -> Any:
        return self._subscription if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _subscription(self, frame: Any, event: str, argument: object) -> Any:
        code = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        # No signal handler runs on a "try:", which is no instruction.
        if event == "line" and code != "try:":
            self.left -= 1
            if self.left == -1:
                self.queue_entry = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise self.kind
        return self._subscription


def interrupt_every_line(work: Callable[[Interruption], object]) -> int:
    """Run ``work(interruption)`` with an interruption at each line; how many there were.

    It must come out of the work each time.
    """
    for number in range(2_000):
        interruption, is_notified = Interruption(number), False
        try:
            work(interruption)
        except interruption.kind:
            is_notified = True
        if not interruption.happened:
            return number
        assert is_notified, f"it was kept at {interruption.queue_entry}"
    raise AssertionError("the work never ends")
