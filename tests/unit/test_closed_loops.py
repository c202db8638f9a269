"""Event made that come and go in several threads, while one forgets those that are closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redis_lock_decorators._io.background import loops
from redis_lock_decorators._shared.settings import Settings


class Loop:
    """A closed loop; while it is asked whether it is, another thread does something."""

    def __init__(self, known: dict[Any, Any], meanwhile: Any) -> None:
        self._known = known
        self._meanwhile = meanwhile
        known[self] = None

    def is_closed(self) -> bool:
        self._meanwhile(self._known, self)
        return True


def comes(known: dict[Any, Any], loop: Loop) -> None:
    known[object.__new__(Open)] = None


def forgets(known: dict[Any, Any], loop: Loop) -> None:
    known.pop(loop, None)


class Open:
    def is_closed(self) -> bool:
        return False


@pytest.mark.parametrize("meanwhile", [comes, forgets])
def test_a_loop_is_known_though_others_come_and_go(monkeypatch, meanwhile):
    known: dict[Any, Any] = {}
    monkeypatch.setattr(loops._loops, "loops", known)
    made = [Loop(known, meanwhile) for _ in range(2)]

    async def main() -> bool:
        return loops.caller_loop() is known[asyncio.get_running_loop()]

    assert asyncio.run(main())
    assert not any(loop in known for loop in made)


@pytest.mark.parametrize("meanwhile", [comes, forgets])
def test_the_clients_of_a_loop_are_known_though_others_come_and_go(monkeypatch, meanwhile):
    monkeypatch.setattr(loops._loops, "loops", {})
    settings = Settings()
    made = [Loop(settings._by_loop, meanwhile) for _ in range(2)]

    async def main() -> None:
        from redis.asyncio import Redis

        settings.async_port(Redis(), None)

    asyncio.run(main())

    assert not any(loop in settings._by_loop for loop in made)
