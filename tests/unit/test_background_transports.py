"""Blocking clients' connections on an event loop: none makes another wait, and none is wasted."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis.exceptions as client
from support.peers import MOVES, Connection, Peers, name_of_move

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.transport import background_client
from redis_lock_decorators._io.transport.background_client import (
    MAX_OPENINGS,
    ConnectionTransport,
)
from redis_lock_decorators._io.transport.subscriptions import ThreadSubscription, pool_check

PING = [("PING",)]


def on_a_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """A test on the kind of event loop that the background thread has."""

    def run() -> None:
        loop = asyncio.SelectorEventLoop()
        try:
            loop.run_until_complete(asyncio.wait_for(test(), 30))
        finally:
            loop.close()

    run.__name__, run.__module__ = test.__name__, __name__
    return run


def soon(seconds: float = 60) -> float:
    return time.monotonic() + seconds


async def received(end: socket.socket, size: int = 65536) -> bytes:
    """What comes at our end of a connection."""
    end.setblocking(False)
    return await asyncio.get_running_loop().sock_recv(end, size)


async def opened(pool: Peers, transport: ConnectionTransport) -> socket.socket:
    """The other end of a carrier's connection, after one exchange."""
    pool.script = [b"+ready\r\n"]
    assert await transport.send_batch(PING, soon()) == [b"ready"]
    return pool.ends[-1]


@on_a_loop
async def test_half_a_reply_makes_no_other_wait() -> None:
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
        with pytest.raises(client.TimeoutError) as caught:
            await waiting
        assert client_errors.was_sent(caught.value)
        well.close()


@on_a_loop
async def test_a_reply_in_parts_is_put_together() -> None:
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
async def test_a_request_that_the_server_does_not_read_makes_no_other_wait() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        end, size = await opened(pool, transport), 10_000_000

        waiting = asyncio.ensure_future(transport.send_batch([("ECHO", b"x" * size)], soon()))
        await asyncio.sleep(0)  # it would not come back from here
        read = 0
        while read < size:
            read += len(await received(end))
        end.sendall(b"+read\r\n")

        assert await waiting == [b"read"]
        transport.close()


@on_a_loop
async def test_a_connection_that_is_late_for_one_request_serves_the_next() -> None:
    may_open, openings = threading.Event(), []

    class Slow(Connection):
        def connect(self) -> None:
            openings.append(self)
            may_open.wait(30)
            super().connect()

    with Peers(b"+1\r\n") as pool:
        pool.connection_class = lambda **parameters: Slow(pool, **parameters)  # type: ignore[method-assign]
        transport = ConnectionTransport(pool)

        with pytest.raises(client.TimeoutError) as caught:
            await transport.send_batch(PING, soon(0.02))
        may_open.set()

        assert not client_errors.was_sent(caught.value)
        assert await transport.send_batch(PING, soon()) == [b"1"]
        assert len(openings) == 1
        transport.close()


@on_a_loop
async def test_a_late_connection_that_nobody_wants_any_more_is_closed() -> None:
    may_open, closed = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    class Slow(Connection):
        def connect(self) -> None:
            may_open.wait(30)
            super().connect()

        def disconnect(self) -> None:
            super().disconnect()
            loop.call_soon_threadsafe(closed.set)

    with Peers() as pool:
        pool.connection_class = lambda **parameters: Slow(pool, **parameters)  # type: ignore[method-assign]
        transport = ConnectionTransport(pool)
        with pytest.raises(client.TimeoutError):
            await transport.send_batch(PING, soon(0.02))

        transport.close()
        may_open.set()

        await closed.wait()


@on_a_loop
async def test_after_a_failed_opening_another_is_tried() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        pool.error = client.ConnectionError("refused")
        with pytest.raises(client.ConnectionError) as caught:
            await transport.send_batch(PING, soon())
        assert not client_errors.was_sent(caught.value)

        pool.error = None

        await opened(pool, transport)
        transport.close()


@on_a_loop
async def test_a_hook_that_stops_an_iteration_is_a_failed_opening() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        pool.error = StopIteration("no token left")
        for _ in range(MAX_OPENINGS + 1):
            with pytest.raises(RuntimeError, match="no token left") as caught:
                await transport.send_batch(PING, soon(5))
            assert not client_errors.was_sent(caught.value)

        pool.error = None

        await opened(pool, transport)
        transport.close()


@on_a_loop
async def test_openings_that_hang_for_ever_do_not_keep_others_from_being_tried() -> None:
    clock, hang = [0.0], threading.Event()

    class Hanging(Connection):
        def connect(self) -> None:
            hang.wait(30)
            raise client.ConnectionError("too late")

    with Peers() as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(background_client, "monotonic", lambda: clock[0])
        usual = pool.connection_class
        pool.connection_class = lambda **parameters: Hanging(pool, **parameters)  # type: ignore[method-assign]
        transport = ConnectionTransport(pool)
        for _ in range(MAX_OPENINGS):
            with pytest.raises(client.TimeoutError):
                await transport.send_batch(PING, clock[0] + 0.01)
            clock[0] += background_client.OVERDUE

        pool.connection_class = usual  # type: ignore[method-assign]
        clock[0] += background_client.FORGOTTEN

        pool.script = [b"+ready\r\n"]
        assert await transport.send_batch(PING, clock[0] + 5) == [b"ready"]
        transport.close()
        hang.set()


@on_a_loop
async def test_a_late_reply_is_nobodys_and_the_connection_serves_on() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        end = await opened(pool, transport)
        with pytest.raises(client.TimeoutError):
            await transport.send_batch(PING, soon(0.02))
        await received(end)
        pool.error = client.ConnectionError("the way there is too long")

        waiting = asyncio.ensure_future(transport.send_batch(PING, soon()))
        await asyncio.sleep(0.02)
        end.sendall(b"+late\r\n")
        await received(end)
        end.sendall(b"+2\r\n")

        assert await waiting == [b"2"]
        transport.close()


@on_a_loop
async def test_a_silent_connection_is_left_for_another() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        await opened(pool, transport)
        with pytest.raises(client.TimeoutError):
            await transport.send_batch(PING, soon(0.02))

        assert await opened(pool, transport) is pool.ends[1]
        assert await received(pool.ends[0]) != b""
        assert await received(pool.ends[0]) == b""  # it was closed
        transport.close()


@on_a_loop
async def test_requests_leave_though_others_are_under_way() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        end = await opened(pool, transport)
        first = asyncio.ensure_future(transport.send_batch([("GET", "a")], soon()))
        second = asyncio.ensure_future(transport.send_batch([("GET", "b")], soon()))
        await asyncio.sleep(0.01)

        assert (await received(end)).count(b"GET") == 2
        end.sendall(b"+a\r\n+b\r\n")
        assert await asyncio.gather(first, second) == [[b"a"], [b"b"]]
        transport.close()


@pytest.mark.parametrize("said", [b"-READONLY no\r\n", b"-LOADING wait\r\n", b"-MASTERDOWN x\r\n"])
def test_a_server_that_is_not_the_one_to_ask_is_asked_over_no_old_connection(said: bytes) -> None:
    @on_a_loop
    async def test() -> None:
        with Peers() as pool:
            transport = ConnectionTransport(pool)
            end = await opened(pool, transport)
            waiting = asyncio.ensure_future(transport.send_batch(PING, soon()))
            await received(end)
            end.sendall(said)
            [error] = await waiting
            assert client_errors.is_unknown(error)

            assert await opened(pool, transport) is not end
            transport.close()

    test()


@on_a_loop
async def test_a_connection_that_the_server_closed_is_not_written_to() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        (await opened(pool, transport)).shutdown(socket.SHUT_RDWR)
        await asyncio.sleep(0.01)

        assert await opened(pool, transport) is pool.ends[1]
        transport.close()


@on_a_loop
async def test_when_a_sentinel_pool_learns_of_a_new_master_the_old_is_left() -> None:
    with Peers(host="old") as pool:
        transport = ConnectionTransport(pool)
        pool.master_address = ("old", 6379)  # type: ignore[attr-defined]
        await opened(pool, transport)

        pool.master_address = ("new", 6379)  # type: ignore[attr-defined]
        pool.connection_kwargs = {"host": "new"}

        assert await opened(pool, transport) is pool.ends[1]
        transport.close()


@pytest.mark.parametrize("change", MOVES, ids=name_of_move)
def test_a_pool_that_leads_elsewhere_is_followed(change: Callable[[Peers], object]) -> None:
    @on_a_loop
    async def test() -> None:
        with Peers(host="old") as pool:
            transport = ConnectionTransport(pool)
            await opened(pool, transport)

            change(pool)

            assert await opened(pool, transport) is pool.ends[1]
            pool.error = AssertionError("opened for nothing")
            waiting = asyncio.ensure_future(transport.send_batch(PING, soon()))
            pool.ends[1].sendall(b"+again\r\n")
            assert await waiting == [b"again"]
            transport.close()

    test()


@on_a_loop
async def test_a_pool_that_leads_elsewhere_while_a_connection_is_opened_is_followed() -> None:
    with Peers() as pool:
        transport, usual = ConnectionTransport(pool), pool.opened

        def moving() -> socket.socket:
            pool.opened = usual  # type: ignore[method-assign]
            found = usual()
            pool.disconnect()
            return found

        pool.opened = moving  # type: ignore[method-assign]
        waiting = asyncio.ensure_future(transport.send_batch(PING, soon()))
        while len(pool.ends) < 2:
            await asyncio.sleep(0.001)
        pool.ends[1].sendall(b"+new\r\n")

        assert await waiting == [b"new"]
        transport.close()


@pytest.mark.parametrize(
    ("said", "error"),
    [(b"HTTP/1.1 400\r\n", client.InvalidResponse), (b"", client.ConnectionError)],
)
def test_what_is_no_reply_leaves_the_outcome_unknown(said: bytes, error: type[Exception]) -> None:
    @on_a_loop
    async def test() -> None:
        with Peers() as pool:
            transport = ConnectionTransport(pool)
            end = await opened(pool, transport)
            waiting = asyncio.ensure_future(transport.send_batch(PING, soon()))
            await received(end)
            end.sendall(said)
            end.shutdown(socket.SHUT_RDWR)

            with pytest.raises(error) as caught:
                await waiting

            assert client_errors.is_unknown(caught.value)
            assert client_errors.was_sent(caught.value)
            transport.close()

    test()


@on_a_loop
async def test_who_waits_for_a_reply_is_told_that_the_connection_is_closed() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        end = await opened(pool, transport)
        waiting = asyncio.ensure_future(transport.send_batch(PING, soon()))
        await received(end)

        transport.close()

        with pytest.raises(client.ConnectionError):
            await waiting


# Lines


def line_of(pool: Peers) -> ThreadSubscription:
    connection: Any = pool.connection_class(socket_timeout=5)
    connection.connect()
    return ThreadSubscription(connection)


@on_a_loop
async def test_a_line_ends_once_the_pool_leads_elsewhere() -> None:
    with Peers() as pool:
        client, there = SimpleNamespace(connection_pool=pool), []
        follows_pool = pool_check(client)
        connection: Any = pool.connection_class(socket_timeout=5)
        connection.connect()
        line = ThreadSubscription(connection, follows_pool)
        hearing = asyncio.ensure_future(line.receive(there.append))
        await line.send("PING")
        assert not hearing.done()

        pool.disconnect()
        await line.send("PING")

        await hearing
        assert await received(pool.ends[0]) == b"*1\r\n$4\r\nPING\r\n"


@on_a_loop
async def test_half_a_message_makes_no_other_wait() -> None:
    with Peers() as pool:
        line, heard = line_of(pool), asyncio.Queue[list[Any]]()
        hearing = asyncio.ensure_future(line.receive(heard.put_nowait))
        await asyncio.sleep(0)

        pool.ends[0].sendall(b"*1\r\n$5\r\nfirst\r\n*1\r\n$6\r\nsec")
        assert await heard.get() == [b"first"]
        await line.send("PING")
        assert await received(pool.ends[0]) == b"*1\r\n$4\r\nPING\r\n"
        pool.ends[0].sendall(b"ond\r\n")

        assert await heard.get() == [b"second"]
        await line.close()
        await hearing


@pytest.mark.parametrize("said", [b"", b"-NOPERM no\r\n", b"what?\r\n"], ids=repr)
def test_a_line_that_breaks_says_why(said: bytes) -> None:
    @on_a_loop
    async def test() -> None:
        with Peers() as pool:
            line = line_of(pool)
            pool.ends[0].sendall(said)
            pool.ends[0].shutdown(socket.SHUT_RDWR)

            with pytest.raises(client.RedisError):
                await line.receive(lambda message: None)

            await line.close()

    test()
