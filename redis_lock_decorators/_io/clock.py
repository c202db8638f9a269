"""The clock of all locks: monotonic seconds that go on while the machine is suspended.

A lease goes on to expire in Redis then. ``time.monotonic()`` stops on Linux and macOS.

Tests freeze time by replacing the functions of ``time`` in all modules, but a lease in Redis ends
in real time. Those used here come from a private copy of the module, which is not replaced, even
if the package is first imported while time is frozen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib.machinery import BuiltinImporter
from importlib.util import module_from_spec
from types import ModuleType

__all__ = ["monotonic", "suspended", "unix_time"]


def _untouched() -> ModuleType:
    """A private copy of the module ``time``."""
    spec = BuiltinImporter.find_spec("time")
    if spec is None or spec.loader is None:
        raise ImportError("this Python has no built-in module time")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_time = _untouched()


def _unsuspended() -> Callable[[], float]:
    number = getattr(
        _time, "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME", None
    )
    if number is None:  # such as Windows, where ``time.monotonic()`` goes on
        return _time.monotonic  # type: ignore[no-any-return]
    clock: Callable[[], float] = partial(_time.clock_gettime, number)
    try:
        clock()
    except OSError:  # the system forbids it
        return _time.monotonic  # type: ignore[no-any-return]
    return clock


monotonic = _unsuspended()
#: Unix time in seconds.
unix_time: Callable[[], float] = _time.time


def suspended() -> float:
    """How far this clock is ahead of ``time.monotonic()``, in seconds."""
    return round(monotonic() - _time.monotonic(), 3)  # type: ignore[no-any-return]
