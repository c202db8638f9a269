"""The clock of all locks: monotonic seconds, as ``time.monotonic()`` gives them.

Tests freeze time by putting other functions in the place of ``time.monotonic``, in all modules that
have it; but a lease in Redis ends by real time. This function is of another copy of the module, so
it is none of those that are replaced, also where the first import comes while time is frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import BuiltinImporter
from importlib.util import module_from_spec

__all__ = ["monotonic"]


def _untouched() -> Callable[[], float]:
    """``monotonic`` of a copy of the module ``time`` that nobody else has."""
    spec = BuiltinImporter.find_spec("time")
    if spec is None or spec.loader is None:
        raise ImportError("this Python has no built-in module time")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[], float] = module.monotonic
    return found


monotonic = _untouched()
