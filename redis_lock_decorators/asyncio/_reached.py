"""Whether what was called was reached, where an exception from outside may come before it."""

from __future__ import annotations

from functools import partial
from inspect import getattr_static
from types import CodeType


def is_from_within(error: BaseException, called: object) -> bool:
    """Whether an error, where it is caught, came out of what was called there.

    Else a signal handler has raised it: then the next frame is that of the handler, if any. What is
    not written in Python has no frame, so it counts as reached.
    """
    trace, code = error.__traceback__, _code_of(called)
    if code is None or trace is None:
        return True
    return trace.tb_next is not None and trace.tb_next.tb_frame.f_code is code


def _code_of(called: object) -> CodeType | None:
    """The code of the frame that a call begins; None if there is none."""
    while isinstance(called, partial):
        called = called.func
    called = getattr(called, "__func__", called)
    if not hasattr(called, "__code__"):
        called = getattr_static(type(called), "__call__", None)
    code = getattr(called, "__code__", None)
    return code if isinstance(code, CodeType) else None
