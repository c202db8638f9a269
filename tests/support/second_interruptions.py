"""Two exceptions, as of two signal handlers: the second comes while the first is handled."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from support.interruptions import Interrupted, is_of_package


class TwoInterruptions:
    """Raises before the n-th function of the package that is called, and then before the m-th.

    Attributes:
        functions: before which functions exceptions were raised.
    """

    def __init__(self, first: int, second: int) -> None:
        self._left = [first, second]
        self.functions: list[str] = []

    def __enter__(self) -> TwoInterruptions:
        # A trace function that raises is removed; so the second exception has a profile function.
        sys.setprofile(self._second)
        sys.settrace(self._first)
        return self

    def __exit__(self, *failure: object) -> None:
        sys.settrace(None)
        sys.setprofile(None)

    def _first(self, frame: FrameType, event: str, argument: object) -> Any:
        if not self.functions:
            self._count(frame, event, 0)

    def _second(self, frame: FrameType, event: str, argument: object) -> None:
        if len(self.functions) == 1:
            self._count(frame, event, 1)

    def _count(self, frame: FrameType, event: str, which: int) -> None:
        if event != "call" or not is_of_package(frame.f_code.co_filename):
            return
        self._left[which] -= 1
        if self._left[which] == 0:
            self.functions.append(frame.f_code.co_name)
            raise Interrupted
