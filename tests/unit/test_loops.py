"""Event loops of several threads are known side by side: each may come and go at any line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis.asyncio

from redis_lock_decorators._io.background import loops
from redis_lock_decorators._shared.settings import Settings


class OtherLoop:
    """The event loop of another thread, which goes on while it is asked whether it was closed."""

    def __init__(
        self, known: dict[Any, Any], goes_on: Callable[[dict[Any, Any], Any], Any]
    ) -> None:
        self.known, self.goes_on = known, goes_on

    def is_closed(self) -> bool:
        self.goes_on(self.known, self)
        return True


def comes(known: dict[Any, Any], loop: Any) -> None:
    """A third thread uses a lock in its event loop for the first time."""
    known[OtherLoop(known, lambda *_: None)] = None


def goes(known: dict[Any, Any], loop: Any) -> None:
    """A third thread has seen as well that the event loop was closed."""
    known.pop(loop, None)


@pytest.mark.parametrize("goes_on", [comes, goes])
def test_bells_of_event_loops_come_and_go_beside_each_other(
    monkeypatch: pytest.MonkeyPatch, goes_on: Any
) -> None:
    mine = loops._Loops()
    monkeypatch.setattr(loops, "_loops", mine)
    known: dict[Any, Any] = mine.loops  # type: ignore[assignment]
    known.update({OtherLoop(known, goes_on): None for _ in range(3)})

    async def test() -> None:
        assert loops.caller_loop() is loops.caller_loop()
        assert known[asyncio.get_running_loop()] is loops.caller_loop()

    asyncio.run(test())


@pytest.mark.parametrize("goes_on", [comes, goes])
def test_clients_of_event_loops_come_and_go_beside_each_other(goes_on: Any) -> None:
    settings = Settings()
    known: dict[Any, Any] = settings._by_loop  # type: ignore[assignment]
    known.update({OtherLoop(known, goes_on): None for _ in range(3)})

    async def test() -> None:
        client = redis.asyncio.Redis()
        assert settings.async_port(client, None).client is client
        assert asyncio.get_running_loop() in known

    asyncio.run(test())
