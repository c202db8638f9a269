"""The background thread keeps one connection for each client in use."""

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
    """A client that allows weak references."""


class RecordingPort(background_ports.BackgroundPort):
    """A background port that records whether it was closed."""

    def __init__(self, port: Any) -> None:
        self.client, self.may_resend = port.client, port.may_resend
        self.is_closed = False

    def follow(self, client: Any) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class FakeTimers:
    """The clock and timers of an event loop."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[tuple[float, Callable[[], object]]] = []

    def later(self, seconds: float, function: Callable[[], object]) -> None:
        self.due.append((self.now + seconds, function))

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.due and min(self.due, key=lambda one: one[0])[0] <= end:
            first = min(self.due, key=lambda one: one[0])
            self.due.remove(first)
            self.now = first[0]
            first[1]()
        self.now = end


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTimers:
    clock = FakeTimers()
    monkeypatch.setattr(background_ports, "monotonic", lambda: clock.now)
    monkeypatch.setattr(background_ports, "new_port", RecordingPort)
    return clock


def blocking_port(client: object) -> Any:
    return SimpleNamespace(client=client, may_resend=False, check_pool=lambda: None)


def blocking_ports(count: int) -> list[Any]:
    return [blocking_port(Client()) for _ in range(count)]


def test_port_follows_a_client_whose_pool_is_replaced() -> None:
    client = redis.Redis(port=1)
    client_state = ClientState(client, PrivatePool(), background_loop())
    port = BlockingPort(client, client_state)
    ports = BackgroundPorts(FakeTimers().later)

    async def use() -> Any:
        first = ports.port_for(port)
        assert first._transport.pool is client.connection_pool  # type: ignore[attr-defined]
        client.connection_pool = redis.ConnectionPool(port=2)
        assert ports.port_for(port) is first
        return first._transport.pool  # type: ignore[attr-defined]

    assert asyncio.run(use()) is client.connection_pool


def test_all_ports_in_use_are_kept(clock: FakeTimers) -> None:
    ports, clients = BackgroundPorts(clock.later), blocking_ports(500)
    found = [ports.port_for(port) for port in clients]

    for _ in range(5):
        clock.advance(UNUSED / 2)
        assert [ports.port_for(port) for port in clients] == found

    assert not any(port.is_closed for port in found)  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_used", [True, False])
def test_unused_ports_are_closed(clock: FakeTimers, is_used: bool) -> None:
    ports, clients = BackgroundPorts(clock.later), blocking_ports(500)
    found: list[Any] = [ports.port_for(port) for port in clients]

    for _ in range(5):
        clock.advance(UNUSED / 4)
        if is_used:
            ports.port_for(clients[0])

    assert [port.is_closed for port in found] == [not is_used] + [True] * 499
    assert len(clock.due) == is_used, "an unneeded timer remains"


def test_client_is_not_kept_alive_and_its_port_is_closed_with_it(clock: FakeTimers) -> None:
    ports, clients = BackgroundPorts(clock.later), blocking_ports(100)
    found: list[Any] = [ports.port_for(port) for port in clients]
    kept = clients[:3]

    del clients
    gc.collect()
    clock.advance(CHECK_INTERVAL + 0.1)

    assert [port.is_closed for port in found] == [False] * 3 + [True] * 97
    assert [ports.port_for(port) for port in kept] == found[:3]


def test_client_at_a_former_clients_address_has_a_new_port(clock: FakeTimers) -> None:
    ports, port = BackgroundPorts(clock.later), blocking_port(Client())
    before: Any = ports.port_for(port)
    number = id(port.client)
    port.client = Client()
    ports._ports[id(port.client)] = ports._ports.pop(number)  # as if it had the same address

    found = ports.port_for(port)

    assert before.is_closed
    assert found is not before
    assert found.client is port.client


def test_client_without_weak_references_has_a_port(clock: FakeTimers) -> None:
    class Slotted:
        __slots__ = ("connection_pool",)

    ports, port = BackgroundPorts(clock.later), blocking_port(Slotted())

    found = ports.port_for(port)
    clock.advance(UNUSED / 2)

    assert ports.port_for(port) is found
    assert found.client is port.client


def test_close_closes_all_ports(clock: FakeTimers) -> None:
    ports = BackgroundPorts(clock.later)
    found: list[Any] = [ports.port_for(port) for port in blocking_ports(3)]

    ports.close()

    assert all(port.is_closed for port in found)


def test_direct_sender_sends_while_requests_are_under_way() -> None:
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
