"""Runs tests of background transports on an event loop whose clock they advance themselves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
import redis.exceptions as client

from redis_lock_decorators._io.transport import background_connection, private_connection
from redis_lock_decorators._io.transport.background_connection import ConnectionTransport
from support.manual_loop import ManualLoop, time_passes
from support.peers import Peers

PING = [("PING",)]


def on_a_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test on an event loop whose clock it advances itself."""

    def run() -> None:
        loop = ManualLoop()
        with pytest.MonkeyPatch.context() as patch:
            for module in (background_connection, private_connection):
                patch.setattr(module, "monotonic", loop.time)
            try:
                loop.run_until_complete(test())
            finally:
                loop.close()

    run.__name__, run.__module__ = test.__name__, test.__module__
    return run


def soon(seconds: float = 60) -> float:
    return asyncio.get_running_loop().time() + seconds


async def received(end: socket.socket, size: int = 65536) -> bytes:
    """The bytes that arrive at the test's end of a connection."""
    end.setblocking(False)
    return await asyncio.get_running_loop().sock_recv(end, size)


async def unanswered(transport: ConnectionTransport) -> Exception:
    """Send a request whose time passes before its reply arrives; returns its error."""
    request = asyncio.ensure_future(transport.send_batch(PING, soon(0.1)))
    await asyncio.sleep(0)
    await time_passes(0.2)
    with pytest.raises(client.TimeoutError) as caught:
        await request
    return caught.value


async def opened(pool: Peers, transport: ConnectionTransport) -> socket.socket:
    """The other end of a transport's connection, after one exchange."""
    pool.script = [b"+ready\r\n"]
    assert await transport.send_batch(PING, soon()) == [b"ready"]
    return pool.ends[-1]
