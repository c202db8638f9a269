"""Count the steps of the package: a measure of cost that machine load does not change."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from support.interruptions import is_of_package


class Steps:
    """Counts the instructions that the interpreter executes in functions of the package.

    Calls would not show a loop inside one function.
    """

    def __init__(self) -> None:
        self.count = 0

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not is_of_package(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._on_step

    def _on_step(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.count += event == "opcode"
        return self._on_step

    def of(self, work: Callable[[], object]) -> int:
        """Run some work and return its steps, without those of garbage collections."""
        former, before = sys.gettrace(), self.count
        gc.collect()
        gc.disable()
        sys.settrace(self._on_call)
        try:
            work()
        finally:
            sys.settrace(former)
            gc.enable()
        return self.count - before
