"""Replies and errors of a private connection of an asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis.asyncio as real
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import ResponseError
from support.asyncio_pools import Connection, Pool
from support.pooled_client import GET, Client, virtual_loop
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._flow.retries import with_repeats
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.transport.exchange_watch import CHECK_INTERVAL


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    yield (loop := virtual_loop(monkeypatch))
    loop.close()


@pytest.fixture
def pool() -> Pool:
    return Pool()


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
        assert len(pool.open) == 1

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


def test_error_replies_and_lost_connections_fail_their_requests(
    loop: VirtualLoop, pool: Pool
) -> None:
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

    async def next_reply(self) -> Any:
        self.pool.reads += 1
        while self.pool.is_silent and self.pool.connects == 1 and self.pool.reads > 1:
            if self._writer is None or self._writer.is_over:
                raise Disconnected("closed")
            await asyncio.sleep(0.01)
        await asyncio.sleep(self.pool.reply_seconds)
        return await super().next_reply()


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
        half_open.connection_kwargs["socket_timeout"] = socket_timeout
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
        assert await with_repeats(clock, attempt, loop.now + 60) == b"OK"
        assert loop.now - started == pytest.approx(seconds + CHECK_INTERVAL / 2, abs=CHECK_INTERVAL)

    loop.run_until_complete(ask())


def test_client_timeout_applies_to_each_reply(loop: VirtualLoop, half_open: Any) -> None:
    async def ask() -> None:
        client = Client(half_open)
        half_open.is_silent, half_open.reply_seconds = False, 0.4
        assert await client.many(5) == [b"OK"] * 5

    loop.run_until_complete(ask())
