"""The background keeps a connection to each client that is in use, however many there are."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from redis_lock_decorators.world import ports
from redis_lock_decorators.world.ports import UNUSED, Ports


class Known:
    """A port beside a blocking one, that notes when it is closed."""

    def __init__(self, port: Any) -> None:
        self.port = port
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(ports, "monotonic", lambda: clock.now)
    monkeypatch.setattr(ports, "beside", Known)
    return clock


def blocking_ports(count: int) -> list[Any]:
    return [SimpleNamespace(client=object()) for _ in range(count)]


def test_as_many_are_kept_as_are_in_use(clock: SimpleNamespace) -> None:
    places, clients = Ports(), blocking_ports(500)
    found = [places.beside(port) for port in clients]

    for _ in range(5):
        clock.now += UNUSED / 2
        assert [places.beside(port) for port in clients] == found

    assert not any(port.is_closed for port in found)  # type: ignore[attr-defined]


def test_those_that_nobody_asks_for_are_closed(clock: SimpleNamespace) -> None:
    places, clients = Ports(), blocking_ports(10)
    found: list[Any] = [places.beside(port) for port in clients]

    for _ in range(10):
        clock.now += UNUSED / 4
        places.beside(clients[0])

    assert [port.is_closed for port in found] == [False] + [True] * 9


def test_all_are_closed_at_the_end(clock: SimpleNamespace) -> None:
    places = Ports()
    found: list[Any] = [places.beside(port) for port in blocking_ports(3)]

    places.close()

    assert all(port.is_closed for port in found)


def test_no_request_waits_for_another_where_the_connection_takes_both() -> None:
    async def test() -> None:
        courier, carried = ports.Direct(), []

        class Slow:
            async def carry(self, commands: Any, until: float) -> list[Any]:
                carried.append(commands)
                await asyncio.sleep(0)
                return [len(carried)]

        slow: Any = Slow()
        requests = [courier.exchange(slow, ("GET", key), 0.0) for key in "abc"]

        assert await asyncio.gather(*requests) == [3, 3, 3]
        assert not courier.is_busy

    asyncio.run(test())
