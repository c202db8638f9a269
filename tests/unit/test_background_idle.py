"""The background uses an idle connection of the client's threads if it can open none itself."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import pytest
import redis.exceptions as client
from support.background_loops import on_a_loop, soon
from support.manual_loop import time_passes
from support.peers import Peers

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.transport import sockets
from redis_lock_decorators._io.transport.background_connection import ConnectionTransport
from redis_lock_decorators._io.transport.private_pool import PrivatePool

PING = [("PING",)]
MAX_CLIENTS = b"-ERR max number of clients reached\r\n"


@pytest.fixture(autouse=True)
def no_waits_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the threads wait for their replies, whatever the clock of the event loop shows."""
    monkeypatch.setattr(sockets, "monotonic", lambda: -math.inf)


def refused() -> client.ConnectionError:
    return client.ConnectionError("Connection refused")


def used(pool: Peers) -> PrivatePool:
    """The connections of the client's threads, one of which is idle."""
    private_pool = PrivatePool()
    assert private_pool.exchange(pool, ("PING",), math.inf) == b"1"
    return private_pool


async def begun(transport: ConnectionTransport) -> asyncio.Future[list[Any]]:
    """A request with four seconds that has made its first step."""
    request = asyncio.ensure_future(transport.send_batch(PING, soon(4)))
    await asyncio.sleep(0)
    return request


@pytest.mark.parametrize("replies", [[], [MAX_CLIENTS], [b""]], ids=["error", "reply", "closed"])
def test_idle_connection_is_used_and_given_back(replies: list[bytes]) -> None:
    @on_a_loop
    async def use() -> None:
        with Peers(b"+1\r\n", b"+2\r\n", b"+3\r\n") as pool:
            private_pool = used(pool)
            transport = ConnectionTransport(pool, private_pool)
            pool.script, pool.error = replies, None if replies else refused()

            assert await transport.send_batch(PING, soon()) == [b"2"]
            assert private_pool.exchange(pool, ("PING",), math.inf) == b"3"
            transport.close()

    use()


@on_a_loop
async def test_idle_connection_is_used_while_a_new_one_is_being_opened() -> None:
    """A resolver, or a server that accepts connections but does not answer, may take long."""
    hang, ended = threading.Event(), []

    def opened() -> Any:
        ended.append(hang.wait(10))
        raise refused()

    with Peers(b"+1\r\n", b"+2\r\n") as pool:
        private_pool = used(pool)
        pool.opened = opened  # type: ignore[method-assign]
        transport = ConnectionTransport(pool, private_pool)
        request = await begun(transport)
        await time_passes(1.9)
        assert not request.done()
        await time_passes(0.2)

        assert await request == [b"2"]
        assert ended == []
        transport.close()
        hang.set()


@on_a_loop
async def test_idle_connection_is_used_if_a_new_one_brings_no_reply() -> None:
    with Peers(b"+1\r\n", b"+2\r\n") as pool:
        private_pool = used(pool)
        transport = ConnectionTransport(pool, private_pool)
        request = await begun(transport)
        await time_passes(2.1)

        assert await request == [b"2"]
        transport.close()


@on_a_loop
async def test_error_of_the_idle_connection_does_not_count_as_unsent() -> None:
    with Peers(b"+1\r\n", b"") as pool:
        private_pool = used(pool)
        transport = ConnectionTransport(pool, private_pool)
        pool.error = refused()

        with pytest.raises(client.ConnectionError) as caught:
            await transport.send_batch(PING, soon())

        assert client_errors.was_sent(caught.value)


@on_a_loop
async def test_failed_opening_is_raised_if_no_connection_is_idle() -> None:
    with Peers() as pool:
        private_pool = PrivatePool()
        transport = ConnectionTransport(pool, private_pool)
        pool.error = refused()

        with pytest.raises(client.ConnectionError, match="refused") as caught:
            await transport.send_batch(PING, soon())

        assert not client_errors.was_sent(caught.value)


@on_a_loop
async def test_connection_that_has_served_is_not_replaced_by_an_idle_one() -> None:
    with Peers(b"+1\r\n", b"+2\r\n") as pool:
        private_pool = used(pool)
        transport = ConnectionTransport(pool, private_pool)
        pool.script = [b"+ready\r\n", MAX_CLIENTS]
        await transport.send_batch(PING, soon())

        (reply,) = await transport.send_batch(PING, soon())

        assert isinstance(reply, client.ConnectionError)
        assert private_pool.exchange(pool, ("PING",), math.inf) == b"2"
        transport.close()
