"""Clients whose own methods are used: a request that takes long delays no renewal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.background_loops import soon

from redis_lock_decorators._io.asyncio_port import AsyncioPort, port_of
from redis_lock_decorators._io.background.caller_loop import CallerLoop
from redis_lock_decorators._io.background.loops import background_loop
from redis_lock_decorators._io.blocking_port import BlockingPort
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.transport.background_ports import new_port
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.private_pool import PrivatePool

#: Commands with one key; the client repeats the first one for a long time.
LONG, SHORT = ("LONG", b"key"), ("SHORT", b"key")


class Blocking:
    """A wrapped client: an overridden method sends its requests."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.connection_pool = SimpleNamespace()

    def execute_command(self, *command: Any, **options: Any) -> Any:
        if command[0] == "LONG":
            self.may_end.wait(30)
        return b"done"


class Task(Blocking):
    """The same with asyncio."""

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        while command[0] == "LONG" and not self.may_end.is_set():
            await asyncio.sleep(0)
        return b"done"


def ahead_port(client: Any, lease_loop: Any = None) -> AsyncioPort:
    """The port on which background work uses the client."""
    if isinstance(client, Task):
        return port_of(client, ClientState(client, RequestBatcher(), CallerLoop())).ahead()
    state = ClientState(client, PrivatePool(), background_loop())
    return new_port(BlockingPort(client, state))


@pytest.fixture(params=[Blocking, Task])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    found = request.param()
    yield found
    found.may_end.set()


@pytest.fixture(params=["one server", "a cluster"])
def served(request: pytest.FixtureRequest, client: Any) -> Any:
    if request.param == "a cluster":
        node = [SimpleNamespace(name="node")]
        client.nodes_manager = SimpleNamespace(slots_cache=dict.fromkeys(range(16_384), node))
    return client


async def replied(request: Any) -> Any:
    return await asyncio.wait_for(asyncio.ensure_future(request), 10)


@pytest.mark.parametrize("count", [1, 3])
def test_renewal_does_not_wait_for_rechecks(served: Any, count: int) -> None:
    async def renew() -> Any:
        port = ahead_port(served)
        rechecks = [asyncio.ensure_future(port.send(*LONG, until=soon(60))) for _ in range(count)]
        await asyncio.sleep(0)
        found = await replied(port.send_renewal(*SHORT, until=soon(60)))
        assert not any(recheck.done() for recheck in rechecks)
        served.may_end.set()
        await asyncio.gather(*rechecks)
        return found

    assert asyncio.run(renew()) == b"done"


def test_requests_of_tasks_do_not_wait_for_rechecks_or_renewals() -> None:
    async def ask() -> list[Any]:
        client = Task()
        port = port_of(client, ClientState(client, RequestBatcher(), CallerLoop()))
        ahead = port.ahead()
        sends = ahead.send, ahead.send_renewal
        others = [asyncio.ensure_future(send(*LONG, until=soon(60))) for send in sends]
        await asyncio.sleep(0)
        sends = port.send, port.send_urgent
        found = [await replied(send(*SHORT, until=soon(60))) for send in sends]
        client.may_end.set()
        await asyncio.gather(*others)
        return found

    assert asyncio.run(ask()) == [b"done", b"done"]
