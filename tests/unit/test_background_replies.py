"""Requests of blocking clients on an event loop: none delays another, each gets its reply."""

from __future__ import annotations

import asyncio
import socket

import pytest
import redis.exceptions as client
from support.background_loops import PING, on_a_loop, opened, received, soon, unanswered
from support.manual_loop import time_passes, until
from support.peers import Peers

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.transport.background_connection import ConnectionTransport


@on_a_loop
async def test_partial_reply_delays_no_other_connection() -> None:
    with Peers() as sick_pool, Peers() as well_pool:
        sick, well = ConnectionTransport(sick_pool), ConnectionTransport(well_pool)
        end, _ = await opened(sick_pool, sick), await opened(well_pool, well)

        waiting = asyncio.ensure_future(sick.send_batch(PING, soon(0.1)))
        await received(end)
        end.sendall(b"$5\r\nab")
        well_pool.ends[0].setblocking(False)
        other = asyncio.ensure_future(well.send_batch(PING, soon()))
        await received(well_pool.ends[0])
        well_pool.ends[0].sendall(b"+well\r\n")

        assert await other == [b"well"]
        await time_passes(0.2)
        with pytest.raises(client.TimeoutError) as caught:
            await waiting
        assert client_errors.was_sent(caught.value)
        well.close()


@on_a_loop
async def test_reply_that_arrives_in_parts_is_complete() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        end = await opened(pool, transport)

        waiting = asyncio.ensure_future(transport.send_batch(PING * 2, soon()))
        await received(end)
        for part in (b"$5\r", b"\nab", b"cde\r\n+se", b"cond\r\n"):
            end.sendall(part)
            await asyncio.sleep(0)

        assert await waiting == [b"abcde", b"second"]
        transport.close()


@on_a_loop
async def test_request_that_the_server_does_not_read_does_not_block_the_event_loop() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        end, size = await opened(pool, transport), 10_000_000

        waiting = asyncio.ensure_future(transport.send_batch([("ECHO", b"x" * size)], soon()))
        await asyncio.sleep(0)  # a blocking send would not return
        read = 0
        while read < size:
            read += len(await received(end))
        end.sendall(b"+read\r\n")

        assert await waiting == [b"read"]
        transport.close()


@on_a_loop
async def test_late_reply_is_discarded_and_its_connection_serves_the_next_request() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        end = await opened(pool, transport)
        await unanswered(transport)
        await received(end)
        pool.error = client.ConnectionError("the way there is too long")

        waiting = asyncio.ensure_future(transport.send_batch(PING, soon()))
        await asyncio.sleep(0)
        await until(lambda: not transport._openings)
        end.sendall(b"+late\r\n")
        await received(end)
        end.sendall(b"+2\r\n")

        assert await waiting == [b"2"]
        transport.close()


@on_a_loop
async def test_requests_are_sent_while_others_are_under_way() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        end = await opened(pool, transport)
        first = asyncio.ensure_future(transport.send_batch([("GET", "a")], soon()))
        second = asyncio.ensure_future(transport.send_batch([("GET", "b")], soon()))
        await asyncio.sleep(0)

        assert (await received(end)).count(b"GET") == 2
        end.sendall(b"+a\r\n+b\r\n")
        assert await asyncio.gather(first, second) == [[b"a"], [b"b"]]
        transport.close()


@pytest.mark.parametrize(
    ("reply", "error"),
    [(b"HTTP/1.1 400\r\n", client.InvalidResponse), (b"", client.ConnectionError)],
)
def test_invalid_reply_leaves_the_outcome_unknown(reply: bytes, error: type[Exception]) -> None:
    @on_a_loop
    async def test() -> None:
        with Peers() as pool:
            transport = ConnectionTransport(pool)
            end = await opened(pool, transport)
            waiting = asyncio.ensure_future(transport.send_batch(PING, soon()))
            await received(end)
            end.sendall(reply)
            end.shutdown(socket.SHUT_RDWR)

            with pytest.raises(error) as caught:
                await waiting

            assert client_errors.is_unknown(caught.value)
            assert client_errors.was_sent(caught.value)
            transport.close()

    test()


@on_a_loop
async def test_closing_the_transport_fails_requests_under_way() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        end = await opened(pool, transport)
        waiting = asyncio.ensure_future(transport.send_batch(PING, soon()))
        await received(end)

        transport.close()

        with pytest.raises(client.ConnectionError):
            await waiting


@on_a_loop
async def test_request_under_way_ends_before_its_connection_is_closed_with_the_client() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        end = await opened(pool, transport)
        waiting = asyncio.ensure_future(transport.send_batch(PING, soon()))
        await received(end)

        pool.disconnect()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        end.sendall(b"+done\r\n")

        assert await waiting == [b"done"]
        assert await received(end) == b""
