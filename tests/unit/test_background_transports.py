"""Blocking clients' connections on an event loop: none delays another, and none is wasted."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

import pytest
import redis.exceptions as client
from support.background_loops import on_a_loop, received, soon
from support.manual_loop import time_passes, until
from support.peers import MOVES, Connection, Peers, name_of_move

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.transport import background_client
from redis_lock_decorators._io.transport.background_client import (
    MAX_OPENINGS,
    ConnectionTransport,
)

PING = [("PING",)]


async def no_thread(*_: object) -> None:
    raise background_client.NoThread("can't start new thread")


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
async def test_connection_that_opens_too_late_for_one_request_serves_the_next() -> None:
    may_open, openings = threading.Event(), []

    class Slow(Connection):
        def connect(self) -> None:
            openings.append(self)
            may_open.wait(30)
            super().connect()

    with Peers(b"+1\r\n") as pool:
        pool.connection_class = lambda **parameters: Slow(pool, **parameters)  # type: ignore[method-assign]
        transport = ConnectionTransport(pool)

        error = await unanswered(transport)
        may_open.set()

        assert not client_errors.was_sent(error)
        assert await transport.send_batch(PING, soon()) == [b"1"]
        assert len(openings) == 1
        transport.close()


@on_a_loop
async def test_connection_that_opens_after_the_transport_was_closed_is_closed() -> None:
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
        await unanswered(transport)

        transport.close()
        may_open.set()

        await closed.wait()


@on_a_loop
async def test_failed_opening_is_followed_by_another() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        pool.error = client.ConnectionError("refused")
        with pytest.raises(client.ConnectionError) as caught:
            await transport.send_batch(PING, soon())
        assert not client_errors.was_sent(caught.value)

        pool.error = None

        await opened(pool, transport)
        transport.close()


@pytest.mark.parametrize(
    "kind", [StopIteration, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError]
)
@pytest.mark.parametrize("has_threads", [True, False], ids=["on a thread", "without a thread"])
def test_what_a_hook_raises_is_a_failed_opening(
    kind: type[BaseException], has_threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_threads:
        monkeypatch.setattr(background_client, "in_thread", no_thread)

    @on_a_loop
    async def use() -> None:
        with Peers() as pool:
            transport = ConnectionTransport(pool)
            pool.error = kind("no token left")
            for _ in range(MAX_OPENINGS + 1):
                with pytest.raises(RuntimeError, match="no token left") as caught:
                    await transport.send_batch(PING, soon(5))
                assert not client_errors.was_sent(caught.value)
                assert client_errors.is_outcome(caught.value)

            pool.error = None

            await opened(pool, transport)
            transport.close()

    use()


@on_a_loop
async def test_openings_that_hang_do_not_prevent_others() -> None:
    hang = threading.Event()

    class Hanging(Connection):
        def connect(self) -> None:
            hang.wait(30)
            raise client.ConnectionError("too late")

    with Peers() as pool:
        usual = pool.connection_class
        pool.connection_class = lambda **parameters: Hanging(pool, **parameters)  # type: ignore[method-assign]
        transport = ConnectionTransport(pool)
        for _ in range(MAX_OPENINGS):
            await unanswered(transport)
            await time_passes(background_client.OVERDUE)

        pool.connection_class = usual  # type: ignore[method-assign]
        await time_passes(background_client.FORGOTTEN)

        await opened(pool, transport)
        transport.close()
        hang.set()


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
async def test_silent_connection_is_replaced() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        await opened(pool, transport)
        await unanswered(transport)

        assert await opened(pool, transport) is pool.ends[1]
        assert await received(pool.ends[0]) != b""
        assert await received(pool.ends[0]) == b""  # it was closed
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


@pytest.mark.parametrize("reply", [b"-READONLY no\r\n", b"-LOADING wait\r\n", b"-MASTERDOWN x\r\n"])
def test_connection_to_a_server_that_is_no_longer_the_master_is_replaced(reply: bytes) -> None:
    @on_a_loop
    async def test() -> None:
        with Peers() as pool:
            transport = ConnectionTransport(pool)
            end = await opened(pool, transport)
            waiting = asyncio.ensure_future(transport.send_batch(PING, soon()))
            await received(end)
            end.sendall(reply)
            [error] = await waiting
            assert client_errors.is_unknown(error)

            assert await opened(pool, transport) is not end
            transport.close()

    test()


@on_a_loop
async def test_connection_that_the_server_closed_is_replaced() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        (await opened(pool, transport)).shutdown(socket.SHUT_RDWR)
        await until(lambda: transport._usable() is None)

        assert await opened(pool, transport) is pool.ends[1]
        transport.close()


@on_a_loop
async def test_sentinel_pool_with_a_new_master_is_followed() -> None:
    with Peers(host="old") as pool:
        transport = ConnectionTransport(pool)
        pool.master_address = ("old", 6379)  # type: ignore[attr-defined]
        await opened(pool, transport)

        pool.master_address = ("new", 6379)  # type: ignore[attr-defined]
        pool.connection_kwargs = {"host": "new"}

        assert await opened(pool, transport) is pool.ends[1]
        transport.close()


@pytest.mark.parametrize("change", MOVES, ids=name_of_move)
def test_pool_that_connects_elsewhere_is_followed(change: Callable[[Peers], object]) -> None:
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
async def test_pool_that_changes_while_a_connection_opens_is_followed() -> None:
    with Peers() as pool:
        transport, usual = ConnectionTransport(pool), pool.opened

        def moving() -> socket.socket:
            pool.opened = usual  # type: ignore[method-assign]
            found = usual()
            pool.disconnect()
            return found

        pool.opened = moving  # type: ignore[method-assign]
        waiting = asyncio.ensure_future(transport.send_batch(PING, soon()))
        await until(lambda: len(pool.ends) == 2)
        pool.ends[1].sendall(b"+new\r\n")

        assert await waiting == [b"new"]
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
async def test_idle_connection_is_closed_with_the_client() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        end = await opened(pool, transport)

        threading.Thread(target=pool.disconnect).start()

        assert await received(end) == b""


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
