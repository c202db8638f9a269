"""A pytest plugin: fixtures with a double of Redis, and with a real local server.

Its entry point loads it; ``-p no:redis_lock_decorators`` disables it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

# The servers are imported by the fixtures, so that other test runs lose little time.
if TYPE_CHECKING:
    from redis_lock_decorators.testing import LocalServer
    from redis_lock_decorators.testing.fake import FakeServer


@pytest.fixture
def redis_locks() -> Iterator[FakeServer]:
    """The in-memory server that all locks use during the test, in virtual time."""
    from redis_lock_decorators.testing.fake import FakeServer

    with FakeServer() as double:
        yield double


@pytest.fixture
def redis_locks_off(redis_locks: FakeServer) -> FakeServer:
    """The same, with locking turned off: each acquisition succeeds."""
    redis_locks.turn_off()
    return redis_locks


@pytest.fixture(scope="session")
def redis_server() -> Iterator[LocalServer]:
    """A real local server, which runs until the end of the session (extra ``embedded``)."""
    from redis_lock_decorators.testing import LocalServer

    with LocalServer() as server:
        yield server
