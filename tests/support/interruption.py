"""An exception from outside, as a signal handler raises it, at a chosen line of the package."""

from __future__ import annotations

import linecache
import pathlib
import sys
from typing import Any

import redis_lock_decorators

PACKAGE = str(pathlib.Path(redis_lock_decorators.__file__).parent)


class Interrupted(BaseException):
    """What the signal handler raises."""


class Interruption:
    """Raises at the n-th line that this thread runs in the package, once.

    Attributes:
        place: where it was raised.
    """

    def __init__(self, number: int) -> None:
        self._left = number
        self.place = "nowhere"

    def __enter__(self) -> Interruption:
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *failure: object) -> None:
        sys.settrace(self._before)

    @property
    def happened(self) -> bool:
        """Whether it was raised."""
        return self._left < 0

    def _call(self, frame: Any, event: str, argument: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _line(self, frame: Any, event: str, argument: object) -> Any:
        code = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        # No signal handler runs on a "try:", which is no instruction.
        if event == "line" and code != "try:":
            self._left -= 1
            if self._left == -1:
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise Interrupted
        return self._line
