"""Libraries that a test's programs need, and that its own process need not import."""

from __future__ import annotations

import importlib.util
import sys

import pytest


def skip_without(library: str) -> None:
    """Skip the test if the library is not installed, and import nothing."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


def warns_of_forks() -> bool:
    """Whether this process has imported eventlet, which then warns of each fork."""
    return "eventlet" in sys.modules
