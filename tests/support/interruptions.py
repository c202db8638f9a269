"""An exception at a chosen line of the package, as if a signal handler had raised it."""

from __future__ import annotations

import gc
import linecache
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import redis

import redis_lock_decorators
from redis_lock_decorators import LockLostError, LockTimeoutError

PACKAGE = str(pathlib.Path(redis_lock_decorators.__file__).parent)
#: The part of it that simulates servers.
TESTING = str(pathlib.Path(PACKAGE, "testing"))


def is_of_package(path: str) -> bool:
    """Whether a file is one of the package, without its testing tools."""
    return path.startswith(PACKAGE) and not path.startswith(TESTING)


class Interrupted(BaseException):
    """Raised by the signal handler."""


class Limited(Exception):
    """Raised by a signal handler that limits how long work takes."""


class Busy(LockTimeoutError):
    """Raised by a signal handler that uses a lock of its own, which another client holds."""

    def __init__(self) -> None:
        super().__init__("another")


class LostInHandler(LockLostError):
    """Raised by a signal handler whose own lock was lost."""

    def __init__(self) -> None:
        super().__init__("another")


class Unreachable(redis.ConnectionError):
    """Raised by a signal handler whose own request reaches no server."""


class NoScript(redis.exceptions.NoScriptError):
    """Raised by a signal handler whose own script the server does not have."""


#: Classes of exceptions that a signal handler may raise.
RAISED = [Interrupted, Limited, Busy, LostInHandler, Unreachable, NoScript]
#: Each class is raised at every third line, and each line raises two classes; ALL_LINES=1: all.
STEP = 1 if "ALL_LINES" in os.environ else 3
MOST_LINES = 2_000


class Interruption:
    """Raises once, at the n-th line that runs in the package.

    Attributes:
        kind: the class of the exception.
        numbers: those of the lines at which ``interrupt_every_line`` raises it.
        location: the file and line where it was raised.
    """

    kind: type[BaseException] = Interrupted
    numbers = range(MOST_LINES)

    def __init__(self, number: int) -> None:
        self.left = number
        self.location = "nowhere"

    def __enter__(self) -> Interruption:
        # Python ignores exceptions of callbacks, as of those of what earlier tests left.
        self._collects = gc.isenabled()
        gc.disable()
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *failure: object) -> None:
        sys.settrace(self._before)
        if self._collects:
            gc.enable()

    @property
    def happened(self) -> bool:
        """Whether the exception was raised: the n-th line was reached."""
        return self.left < 0

    def _call(self, frame: Any, event: str, argument: object) -> Any:
        # Python itself only reports what is raised in a finalizer or callback of a weak reference,
        # which runs at any time.
        is_finalizer = frame.f_code.co_name in {"__del__", "forget"}
        is_ours = is_of_package(frame.f_code.co_filename)
        return self._line if is_ours and not is_finalizer else None

    def _line(self, frame: Any, event: str, argument: object) -> Any:
        code = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        # No signal handler runs at a "try:", which compiles to no instruction.
        if event == "line" and code != "try:":
            self.left -= 1
            if self.left == -1:
                self.location = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise self.kind
        return self._line


def raise_by_turns(monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]) -> None:
    """Raise a class of ``RAISED`` in a test that runs with each of them."""
    monkeypatch.setattr(Interruption, "kind", kind)
    numbers = range(RAISED.index(kind) % STEP, MOST_LINES, STEP)
    monkeypatch.setattr(Interruption, "numbers", numbers)


def interrupt_every_line(work: Callable[[Interruption], object]) -> int:
    """Run ``work(interruption)`` once for each line, interrupted there; the number of lines.

    The work must let the exception through each time.
    """
    for number in Interruption.numbers:
        interruption, was_raised = Interruption(number), False
        try:
            work(interruption)
        except interruption.kind:
            was_raised = True
        if not interruption.happened:
            return number
        assert was_raised, f"the exception was swallowed at {interruption.location}"
    raise AssertionError("the work never ends")
