"""The clock of all locks: monotonic seconds, like ``time.monotonic()``.

Tests freeze time by replacing ``time.monotonic`` in all modules, but a lease in Redis ends in real
time. This function comes from a private copy of the module ``time``, which is not replaced, even if
the package is first imported while time is frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import BuiltinImporter
from importlib.util import module_from_spec
from types import ModuleType

__all__ = ["monotonic", "unix_time"]


def _untouched() -> ModuleType:
    """A private copy of the module ``time``."""
    spec = BuiltinImporter.find_spec("time")
    if spec is None or spec.loader is None:
        raise ImportError("this Python has no built-in module time")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_time = _untouched()
monotonic: Callable[[], float] = _time.monotonic
#: Unix time in seconds.
unix_time: Callable[[], float] = _time.time
