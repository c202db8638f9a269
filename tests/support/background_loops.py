"""Runs tests of background transports on an event loop whose clock they advance themselves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from redis_lock_decorators._io.transport import background_client, private_connection
from support.manual_loop import ManualLoop


def on_a_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test on an event loop whose clock it advances itself."""

    def run() -> None:
        loop = ManualLoop()
        with pytest.MonkeyPatch.context() as patch:
            for module in (background_client, private_connection):
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
