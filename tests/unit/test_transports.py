"""A connection borrowed from the client's pool: when it is replaced, and how it is returned."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis.asyncio as real
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import ReadOnlyError, ResponseError
from support.asyncio_pools import Connection, Pool
from support.batching import use_clock
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._flow.retries import persist
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.transport import asyncio_pool, batch, borrowed
from redis_lock_decorators._io.transport.asyncio_pool import SPARE, PoolTransport
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.exchange_watch import CHECK_INTERVAL

GET = ("GET", b"key")


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    monkeypatch.setattr(
        borrowed, "_input_check", lambda stream: lambda milliseconds: stream.has_input
    )
    use_clock(loop.time, monkeypatch)
    for module in (asyncio_pool, borrowed, batch):
        monkeypatch.setattr(module, "monotonic", loop.time)
    yield loop
    loop.close()


@pytest.fixture
def pool() -> Pool:
    return Pool()


class Client:
    """A batcher with its transport over a pool."""

    def __init__(self, pool: Pool) -> None:
        self.batcher = RequestBatcher()
        self.transport = PoolTransport(self.batcher, pool, False)

    async def get(self) -> Any:
        return await self.batcher.exchange(self.transport, GET, asyncio_pool.monotonic() + 5)

    async def many(self, count: int) -> list[Any]:
        return await asyncio.gather(*[self.get() for _ in range(count)], return_exceptions=True)


def test_connection_is_returned_with_its_own_timeout(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        await client.get()
        (kept,) = pool._in_use_connections
        pool.replies = [Disconnected("broken")]
        with pytest.raises(Disconnected):
            await client.get()
        assert pool._available_connections == [kept]
        assert kept.socket_timeout == 0.5
        assert not kept.is_connected

    loop.run_until_complete(ask())


@pytest.mark.parametrize("at", range(8))
def test_connection_is_returned_however_often_the_return_is_cancelled(
    loop: VirtualLoop, pool: Pool, at: int
) -> None:
    async def ask() -> None:
        client = Client(pool)
        await client.get()
        pool.replies = [Disconnected("broken")]
        task = asyncio.ensure_future(client.get())
        for turn in range(at + 2):
            await asyncio.sleep(0)
            if turn >= at:
                task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        pool.replies = []
        assert await client.get() == b"OK"
        assert len(pool._in_use_connections) == len(pool.all) == 1
        assert pool._available_connections == []

    loop.run_until_complete(ask())


def test_request_does_not_wait_for_work_that_uses_all_connections(loop: VirtualLoop) -> None:
    pool = Pool(1)

    async def ask() -> None:
        client, started = Client(pool), loop.now
        borrowed_by_work = await pool.get_connection()
        assert await client.get() == b"OK"
        assert loop.now - started < 0.1
        assert pool._in_use_connections == {borrowed_by_work}
        assert [one.is_connected for one in pool.all] == [True, False]

    loop.run_until_complete(ask())


@pytest.mark.parametrize("seconds", [0.001, 60])
def test_connection_outside_the_pool_is_closed_if_cancelled(
    loop: VirtualLoop, seconds: float
) -> None:
    pool = Pool(1)

    async def ask() -> None:
        client = Client(pool)
        await pool.get_connection()
        pool.connect_seconds = seconds
        task = asyncio.ensure_future(client.get())
        await asyncio.sleep(0.0105)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(pool.all) == 2
        assert not pool.all[1].is_connected

    loop.run_until_complete(ask())


@pytest.mark.parametrize("others", [0, 3])
def test_renewal_does_not_wait_for_a_hanging_connection(loop: VirtualLoop, others: int) -> None:
    """Another one is opened after half of the time; the first is used if it opens earlier."""

    async def ask(seconds: float) -> float:
        client = Client(pool := Pool())
        pool.connect_seconds = seconds
        waiting = [asyncio.ensure_future(client.get()) for _ in range(others)]
        await asyncio.sleep(0.1)
        began = loop.now
        loop.call_later(0.2, setattr, pool, "connect_seconds", 0.001)
        first = client.batcher.exchange(client.transport, GET, loop.now + 1, first=True)
        assert await first == b"OK"
        served = loop.now - began
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.sleep(10)
        return served

    assert loop.run_until_complete(ask(60)) == pytest.approx(0.5, abs=0.05)
    assert loop.run_until_complete(ask(0.4)) == pytest.approx(0.3 if others else 0.4, abs=0.05)


def test_connection_to_a_demoted_master_is_replaced(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        await client.get()
        pool.replies = [ReadOnlyError("You can't write against a read only replica.")]
        with pytest.raises(ReadOnlyError):
            await client.get()
        await client.get()
        assert pool.connects == 2
        pool.replies = [ResponseError("WRONGTYPE")]
        with pytest.raises(ResponseError):
            await client.get()
        await client.get()
        assert pool.connects == 2

    loop.run_until_complete(ask())


def test_connection_follows_a_pool_that_finds_another_master(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        await client.many(3)
        assert pool.connects == 1
        pool.master_address = ("new", 2)
        await client.get()
        assert pool.connects == 2

    loop.run_until_complete(ask())


def test_closed_connection_is_replaced_without_an_error(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        await client.get()
        pool.all[0]._reader.is_over = True
        assert await client.many(50) == [b"OK"] * 50
        assert pool.connects == 2

    loop.run_until_complete(ask())


@pytest.mark.parametrize("size", [1, 5, 100])
def test_connection_closed_while_the_loop_was_blocked_is_replaced(
    loop: VirtualLoop, size: int
) -> None:
    """The event loop has not noticed yet; the connection is in use or idle in the pool."""
    pool = Pool(size)

    async def ask() -> None:
        client = Client(pool)
        await client.get()
        closed = pool.all[0]._reader
        closed.has_input = True
        await client.get()
        assert closed.is_over
        assert pool.connects == 2
        assert len(pool._in_use_connections) == (size >= SPARE)

    loop.run_until_complete(ask())


@pytest.mark.parametrize("size", [1, 100])
def test_cancellation_is_raised_though_connecting_swallows_it(loop: VirtualLoop, size: int) -> None:
    class Swallowing(Connection):
        async def connect(self) -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1)
            await super().connect()

    pool = Pool(size)
    pool.kind = Swallowing

    async def ask() -> None:
        client = Client(pool)
        task = asyncio.ensure_future(client.get())
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        # Before Python 3.11, awaiting a task raises another exception object than its own.
        assert sys.version_info < (3, 11) or getattr(caught.value, "unsent", False)
        if sys.version_info < (3, 11):  # connecting is not awaited there
            await asyncio.sleep(2)
        assert await client.get() == b"OK"
        assert pool.connects == 1
        assert len(pool._in_use_connections) == (size >= SPARE)

    loop.run_until_complete(ask())


def test_requests_without_a_connection_count_as_unsent(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        pool.refusal = Disconnected("refused")
        results = await client.many(50)
        assert all(result.unsent for result in results)
        pool.refusal = None
        await client.get()
        pool.replies = [Disconnected("reset")]
        with pytest.raises(Disconnected) as caught:
            await client.get()
        assert not getattr(caught.value, "unsent", False)

    loop.run_until_complete(ask())


class Closed(Connection):
    """A connection that another task closes so often while it is being opened or used."""

    at_connect = at_send = 0

    async def connect(self) -> None:
        await super().connect()
        if Closed.at_connect:
            Closed.at_connect -= 1
            await super().disconnect()
            await real.Connection()._send_packed_command([b"PING"])  # as the library does then

    async def send_packed_command(self, data: Any, check_health: bool = True) -> None:
        if Closed.at_send:
            Closed.at_send -= 1
            await super().disconnect()
            await real.Connection()._send_packed_command([b"PING"])


@pytest.mark.parametrize(("at", "is_sent"), [("at_connect", False), ("at_send", True)])
def test_connection_closed_by_another_task_raises_a_connection_error(
    loop: VirtualLoop, pool: Pool, monkeypatch: pytest.MonkeyPatch, at: str, is_sent: bool
) -> None:
    async def ask() -> None:
        pool.kind = Closed
        client = Client(pool)
        monkeypatch.setattr(Closed, at, 1)
        with pytest.raises(Disconnected) as caught:
            await client.get()
        assert client_errors.was_sent(caught.value) is is_sent

        assert client_errors.is_unknown(caught.value)

        assert await client.get() == b"OK"
        assert len(pool._in_use_connections) == 1

    loop.run_until_complete(ask())


def test_replies_that_arrived_before_a_connection_broke_are_returned(
    loop: VirtualLoop, pool: Pool
) -> None:
    async def ask() -> None:
        client = Client(pool)
        pool.replies = [b"0", *[b"%d" % number for number in range(1, 21)], Disconnected("reset")]
        results = await client.many(51)
        assert results[:21] == [b"%d" % number for number in range(21)]
        assert {type(result) for result in results[21:]} == {Disconnected}
        assert len({id(result) for result in results[21:]}) == 30

    loop.run_until_complete(ask())


class Parsing(Connection):
    """Like redis-py, a parser that raises plain errors and returns error replies.

    Only the method of the connection raises the errors of the client.
    """

    @property
    def _parser(self) -> Any:
        return SimpleNamespace(read_response=self.parsed)

    async def parsed(self, disable_decoding: bool = False) -> Any:
        try:
            return await super().read_response(disable_decoding)
        except ResponseError as reply:
            return reply


def test_replies_read_from_the_parser_equal_those_of_the_connection(
    loop: VirtualLoop, pool: Pool
) -> None:
    pool.kind = Parsing

    async def ask() -> None:
        client = Client(pool)
        await client.get()
        pool.replies = [b"0", b"1", ResponseError("no"), b"3", ConnectionResetError(104, "reset")]
        results = await client.many(7)
        assert results[:2] + results[3:4] == [b"0", b"1", b"3"]
        assert type(results[2]) is ResponseError
        assert {type(result) for result in results[4:]} == {Disconnected}
        assert all(client_errors.is_unknown(result) for result in results[4:])
        assert await client.get() == b"OK"

    loop.run_until_complete(ask())


class HalfOpen(Connection):
    """A slow connection that returns no second reply until it is opened again."""

    async def read_response(self, disable_decoding: bool = False) -> Any:
        self.pool.reads += 1
        while self.pool.is_silent and self.pool.connects == 1 and self.pool.reads > 1:
            if self._writer is None or self._writer.is_over:
                raise Disconnected("closed")
            await asyncio.sleep(0.01)
        await asyncio.sleep(self.pool.reply_seconds)
        return await super().read_response(disable_decoding)


@pytest.fixture
def half_open(pool: Pool) -> Any:
    found: Any = pool
    found.kind, found.reads, found.reply_seconds, found.is_silent = HalfOpen, 0, 0.0, True
    return found


@pytest.mark.parametrize(("socket_timeout", "seconds"), [(0.5, 0.5), (None, 2.5), (60, 2.5)])
def test_silent_connection_leaves_time_for_an_attempt_on_another(
    loop: VirtualLoop, half_open: Any, socket_timeout: float | None, seconds: float
) -> None:
    """After the client's own timeout, or half of an outage."""

    async def ask() -> None:
        client = Client(half_open)
        connection = await half_open.get_connection()
        connection.socket_timeout = socket_timeout
        await half_open.release(connection)
        await client.get()
        started = loop.now

        async def attempt(until: float) -> Any:
            return await client.batcher.exchange(client.transport, GET, until)

        clock: Any = SimpleNamespace(
            now=loop.time,
            random=lambda: 0.5,
            sleep=asyncio.sleep,
            is_unknown=client_errors.is_unknown,
            was_sent=client_errors.was_sent,
        )
        assert await persist(clock, attempt, loop.now + 60) == b"OK"
        assert loop.now - started == pytest.approx(seconds + CHECK_INTERVAL / 2, abs=CHECK_INTERVAL)

    loop.run_until_complete(ask())


def test_client_timeout_applies_to_each_reply(loop: VirtualLoop, half_open: Any) -> None:
    async def ask() -> None:
        client = Client(half_open)
        half_open.is_silent, half_open.reply_seconds = False, 0.4
        assert await client.many(5) == [b"OK"] * 5

    loop.run_until_complete(ask())
