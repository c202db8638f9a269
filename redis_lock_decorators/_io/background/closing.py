"""Detect that a coroutine is being closed, as by the garbage collector, and so must not await."""

from __future__ import annotations

import inspect
import sys
from types import TracebackType


def is_being_closed() -> bool:
    """Whether the caller, a coroutine, handles the GeneratorExit by which it is being closed.

    An async generator that is being closed may await: its ``aclose()`` is awaited. That raises
    GeneratorExit at a ``yield`` of the generator, and at no other place.
    """
    error = sys.exc_info()[1]
    return isinstance(error, GeneratorExit) and not _is_from_async_generator(error.__traceback__)


def _is_from_async_generator(trace: TracebackType | None) -> bool:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and bool(trace.tb_frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR)
