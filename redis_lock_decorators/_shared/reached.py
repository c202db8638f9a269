"""Whether a call began before a signal handler raised an exception."""

from __future__ import annotations

import signal
from functools import partial
from inspect import getattr_static
from traceback import walk_tb
from types import CodeType


def is_from_within(error: BaseException, called: object) -> bool:
    """Whether a caught error was raised in ``called``, and not before the call began.

    A signal handler may raise in between: then the next frame of the traceback is the handler's, or
    there is none. A callable without a Python frame counts as called.
    """
    trace, code = error.__traceback__, _code_of(called)
    if code is None or trace is None:
        return True
    if trace.tb_next is None:
        return isinstance(error, TypeError)  # the arguments did not fit
    return trace.tb_next.tb_frame.f_code is code


def is_of_signal_handler(error: BaseException) -> bool:
    """Whether a signal handler raised a caught error, as a time limit of the program does."""
    handlers = [_code_of(signal.getsignal(number)) for number in signal.valid_signals()]
    codes = {code for code in handlers if code is not None}
    return any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__))


def _code_of(called: object) -> CodeType | None:
    """Return the code object that a call runs; None if it is not Python code."""
    while isinstance(called, partial):
        called = called.func
    called = getattr(called, "__func__", called)
    if not hasattr(called, "__code__"):
        called = getattr_static(type(called), "__call__", None)
    code = getattr(called, "__code__", None)
    return code if isinstance(code, CodeType) else None
