"""Libraries that a test's programs need, and that its own process must not import.

eventlet warns of each fork of a process that has imported it, and both libraries may patch what
later tests use.
"""

from __future__ import annotations

import importlib.util
import sys

import pytest

NOT_HERE = ("eventlet", "gevent")


def skip_without(library: str) -> None:
    """Skip the test if the library is not installed, and import nothing."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


def imported() -> list[str]:
    """Which of the libraries this process has imported."""
    return [library for library in NOT_HERE if library in sys.modules]
