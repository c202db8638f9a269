"""Blocking clients' connections on an event loop: when one is opened, replaced or closed."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

import pytest
import redis.exceptions as client
from support.background_loops import PING, on_a_loop, opened, received, soon, unanswered
from support.manual_loop import time_passes, until
from support.peers import MOVES, Connection, Peers, name_of_move

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.transport import background_connection
from redis_lock_decorators._io.transport.background_connection import (
    MAX_OPENINGS,
    ConnectionTransport,
)
from redis_lock_decorators._io.transport.thread_calls import NoThread


async def no_thread(*_: object) -> None:
    raise NoThread("can't start new thread")


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
        monkeypatch.setattr(background_connection, "in_thread", no_thread)

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
            await time_passes(background_connection.OVERDUE)

        pool.connection_class = usual  # type: ignore[method-assign]
        await time_passes(background_connection.FORGOTTEN)

        await opened(pool, transport)
        transport.close()
        hang.set()


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


@on_a_loop
async def test_idle_connection_is_closed_with_the_client() -> None:
    with Peers() as pool:
        transport = ConnectionTransport(pool)
        end = await opened(pool, transport)

        threading.Thread(target=pool.disconnect).start()

        assert await received(end) == b""
