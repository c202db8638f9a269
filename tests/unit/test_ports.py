"""The background keeps a connection to each client that is in use, however many there are."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from redis_lock_decorators._io.background.loops import background_loop
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.transport import background_ports
from redis_lock_decorators._io.transport.background_ports import (
    CHECK_INTERVAL,
    UNUSED,
    BackgroundPorts,
)
from redis_lock_decorators._io.transport.private_pool import PrivatePool


class Client:
    """A client that can be referred to weakly."""


class Known(background_ports.BackgroundPort):
    """A port beside a blocking one, that notes when it is closed."""

    def __init__(self, port: Any) -> None:
        self.client = port.client
        self.is_closed = False

    def follow(self, client: Any) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class Time:
    """What an event loop's clock shows, and what it is to call."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[tuple[float, Callable[[], object]]] = []

    def later(self, seconds: float, function: Callable[[], object]) -> None:
        self.due.append((self.now + seconds, function))

    def passes(self, seconds: float) -> None:
        end = self.now + seconds
        while self.due and min(self.due, key=lambda one: one[0])[0] <= end:
            first = min(self.due, key=lambda one: one[0])
            self.due.remove(first)
            self.now = first[0]
            first[1]()
        self.now = end


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(background_ports, "monotonic", lambda: clock.now)
    monkeypatch.setattr(background_ports, "new_port", Known)
    return clock


def blocking_ports(count: int) -> list[Any]:
    return [SimpleNamespace(client=Client()) for _ in range(count)]


def test_a_port_follows_a_client_that_is_given_another_pool() -> None:
    client = redis.Redis(port=1)
    client_state = ClientState(client, PrivatePool(), background_loop())
    port = BlockingPort(client, client_state)
    there = BackgroundPorts(Time().later)

    async def use() -> Any:
        first = there.port_for(port)
        assert first._transport.pool is client.connection_pool  # type: ignore[attr-defined]
        client.connection_pool = redis.ConnectionPool(port=2)
        assert there.port_for(port) is first
        return first._transport.pool  # type: ignore[attr-defined]

    assert asyncio.run(use()) is client.connection_pool


def test_as_many_are_kept_as_are_in_use(clock: Time) -> None:
    places, clients = BackgroundPorts(clock.later), blocking_ports(500)
    found = [places.port_for(port) for port in clients]

    for _ in range(5):
        clock.passes(UNUSED / 2)
        assert [places.port_for(port) for port in clients] == found

    assert not any(port.is_closed for port in found)  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_asked", [True, False])
def test_those_that_nobody_asks_for_are_closed(clock: Time, is_asked: bool) -> None:
    places, clients = BackgroundPorts(clock.later), blocking_ports(500)
    found: list[Any] = [places.port_for(port) for port in clients]

    for _ in range(5):
        clock.passes(UNUSED / 4)
        if is_asked:
            places.port_for(clients[0])

    assert [port.is_closed for port in found] == [not is_asked] + [True] * 499
    assert len(clock.due) == is_asked, "a timer is left for nothing"


def test_client_that_nobody_has_any_more_is_not_kept_and_its_port_closed(clock: Time) -> None:
    places, clients = BackgroundPorts(clock.later), blocking_ports(100)
    found: list[Any] = [places.port_for(port) for port in clients]
    kept = clients[:3]

    del clients
    gc.collect()
    clock.passes(CHECK_INTERVAL + 0.1)

    assert [port.is_closed for port in found] == [False] * 3 + [True] * 97
    assert [places.port_for(port) for port in kept] == found[:3]


def test_client_at_the_place_of_one_that_is_gone_has_a_port_of_its_own(clock: Time) -> None:
    places, port = BackgroundPorts(clock.later), SimpleNamespace(client=Client())
    before: Any = places.port_for(port)
    number = id(port.client)
    port.client = Client()
    places._ports[id(port.client)] = places._ports.pop(number)  # as if it had the same number

    found = places.port_for(port)

    assert before.is_closed
    assert found is not before
    assert found.client is port.client


def test_client_of_any_kind_has_a_port(clock: Time) -> None:
    class Slotted:
        __slots__ = ("connection_pool",)

    places, port = BackgroundPorts(clock.later), SimpleNamespace(client=Slotted())

    found = places.port_for(port)
    clock.passes(UNUSED / 2)

    assert places.port_for(port) is found
    assert found.client is port.client


def test_all_are_closed_at_the_end(clock: Time) -> None:
    places = BackgroundPorts(clock.later)
    found: list[Any] = [places.port_for(port) for port in blocking_ports(3)]

    places.close()

    assert all(port.is_closed for port in found)


def test_no_request_waits_for_another_where_the_connection_takes_both() -> None:
    async def test() -> None:
        batcher, carried = background_ports.DirectSender(), []

        class Slow:
            async def send_batch(self, commands: Any, until: float) -> list[Any]:
                carried.append(commands)
                await asyncio.sleep(0)
                return [len(carried)]

        slow: Any = Slow()
        requests = [batcher.exchange(slow, ("GET", key), 0.0) for key in "abc"]

        assert await asyncio.gather(*requests) == [3, 3, 3]
        assert not batcher.is_busy

    asyncio.run(test())
