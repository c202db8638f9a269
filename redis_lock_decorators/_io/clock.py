"""The clock of all locks: monotonic seconds, like ``time.monotonic()``.

Tests freeze time by replacing ``time.monotonic`` in all modules, but a lease in Redis ends in real
time. This function comes from a private copy of the module ``time``, which is not replaced, even if
the package is first imported while time is frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import BuiltinImporter
from importlib.util import module_from_spec

__all__ = ["monotonic"]


def _untouched() -> Callable[[], float]:
    """``monotonic`` of a private copy of the module ``time``."""
    spec = BuiltinImporter.find_spec("time")
    if spec is None or spec.loader is None:
        raise ImportError("this Python has no built-in module time")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[], float] = module.monotonic
    return found


monotonic = _untouched()
