"""Entries of closed event loops are removed while other threads add and remove entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from redis_lock_decorators._flow import fork
from redis_lock_decorators._io import closed_loops
from redis_lock_decorators._io.background import loops
from redis_lock_decorators._shared.settings import Settings

Loops = dict[Any, Any]


class OpenLoop:
    """The event loop of another thread."""

    def is_closed(self) -> bool:
        return False


class ClosedLoop:
    """A closed event loop; another thread changes the entries while it is checked."""

    def __init__(self, known: Loops, meanwhile: Callable[[Loops, Any], object]) -> None:
        self.known, self.meanwhile = known, meanwhile

    def is_closed(self) -> bool:
        self.meanwhile(self.known, self)
        return True


def open_another(known: Loops, loop: Any) -> None:
    """A third thread uses a lock on its event loop for the first time."""
    known[fork.process_id, OpenLoop()] = None


def close_another(known: Loops, loop: Any) -> None:
    """A third thread has used a lock on an event loop, and closed that."""
    known[fork.process_id, ClosedLoop(known, lambda *_: None)] = None


def remove(known: Loops, loop: Any) -> None:
    """A third thread removes the closed loop."""
    known.pop((fork.process_id, loop), None)


CHANGES = pytest.mark.parametrize("meanwhile", [open_another, close_another, remove])


@CHANGES
def test_lease_loops_of_closed_loops_are_removed(
    monkeypatch: pytest.MonkeyPatch, meanwhile: Any
) -> None:
    monkeypatch.setattr(loops, "_loops", loops._Loops())
    known: Loops = loops._loops.loops  # type: ignore[assignment]
    closed = [(fork.process_id, ClosedLoop(known, meanwhile)) for _ in range(3)]
    known.update(dict.fromkeys(closed))

    async def test() -> None:
        assert loops.caller_loop() is loops.caller_loop()
        assert known[closed_loops.running_loop()] is loops.caller_loop()

    asyncio.run(test())

    assert not any(key in known for key in closed)


@CHANGES
def test_clients_of_closed_loops_are_removed(meanwhile: Any) -> None:
    settings = Settings()
    known: Loops = settings._by_loop  # type: ignore[assignment]
    closed = [(fork.process_id, ClosedLoop(known, meanwhile)) for _ in range(3)]
    known.update(dict.fromkeys(closed))

    async def test() -> None:
        from redis.asyncio import Redis

        client = Redis()
        assert settings.async_port(client, None).client is client
        assert closed_loops.running_loop() in known

    asyncio.run(test())

    assert not any(key in known for key in closed)
