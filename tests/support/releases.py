"""Keys and ports for the tests of releases."""

from __future__ import annotations

from typing import Any

import pytest

from redis_lock_decorators._rules.keys import slot_of
from redis_lock_decorators._rules.options import ReleaseMethod
from support.simulation import Clock, SimulatedPort, SimulatedServer

KEY = b"sys:lock:a"
#: Keys of two slots, in the order in which all clients acquire them.
FIRST, SECOND = sorted([b"sys:lock:a", b"sys:lock:b"], key=slot_of)

METHODS: tuple[ReleaseMethod, ...] = ("script", "transaction", "native")
every_method = pytest.mark.parametrize("method", METHODS)


class Limit(Exception):
    """An exception that a signal handler raises, such as a time limit of the program."""


def new_port(**options: Any) -> SimulatedPort:
    """A port to a server that has all commands for a native release."""
    return SimulatedPort(SimulatedServer(Clock(), natives=["DELIFEQ", "DELEX"]), **options)
