"""An exchange that is ended again fails even if the event loop lost the first closing."""

from __future__ import annotations

import asyncio
import math
import socket
from types import SimpleNamespace
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from redis_lock_decorators._io.transport.exchange import Exchange


@pytest.mark.parametrize("is_lost", [True, False])
def test_second_end_fails_a_reader_whose_first_notification_was_lost(is_lost: bool) -> None:
    async def test() -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        transport: Any = writer.transport
        notify = transport._call_connection_lost
        if is_lost:
            transport._call_connection_lost = lambda error: None
        exchange = Exchange(SimpleNamespace(_reader=reader, _writer=writer), math.inf)
        reading = asyncio.ensure_future(reader.read(1))
        await asyncio.sleep(0)

        exchange.end()
        for _ in range(5):
            await asyncio.sleep(0)
        assert reading.done() != is_lost
        exchange.end()

        assert await reading == b""
        if is_lost:
            notify(None)
        theirs.close()

    asyncio.run(test())
