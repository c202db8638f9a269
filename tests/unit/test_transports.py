"""A private connection of an asyncio client: when it is opened and when it is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator

import pytest
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import ReadOnlyError, ResponseError
from support.asyncio_pools import Connection, Pool
from support.pooled_client import GET, Client, virtual_loop
from support.virtual_loop import VirtualLoop


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    yield (loop := virtual_loop(monkeypatch))
    loop.close()


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_connection_is_kept_outside_the_pool_until_it_breaks(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        await client.get()
        await client.get()
        assert len(pool.open) == len(pool.all) == 1
        pool.replies = [Disconnected("broken")]
        with pytest.raises(Disconnected):
            await client.get()
        assert pool.open == []
        assert not pool._available_connections
        assert not pool._in_use_connections

    loop.run_until_complete(ask())


@pytest.mark.parametrize("at", range(8))
def test_cancellation_at_any_step_leaves_one_connection(
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
        assert len(pool.open) == 1

    loop.run_until_complete(ask())


def test_request_does_not_wait_for_work_that_uses_all_connections(loop: VirtualLoop) -> None:
    pool = Pool(1)

    async def ask() -> None:
        client, started = Client(pool), loop.now
        borrowed_by_work = await pool.get_connection()
        assert await client.get() == b"OK"
        assert loop.now - started < 0.1
        assert pool._in_use_connections == {borrowed_by_work}
        assert len(pool.open) == 2

    loop.run_until_complete(ask())


def test_connection_that_is_being_opened_is_closed_if_cancelled(
    loop: VirtualLoop, pool: Pool
) -> None:
    async def ask() -> None:
        client = Client(pool)
        pool.connect_seconds = 60
        task = asyncio.ensure_future(client.get())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(pool.all) == 1
        assert pool.open == []

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


def test_exchanges_follow_a_client_that_is_given_another_pool(
    loop: VirtualLoop, pool: Pool
) -> None:
    async def ask() -> None:
        client, other = Client(pool), Pool()
        await client.get()
        client.connection_pool = other
        await client.get()
        assert (len(pool.open), len(other.open)) == (0, 1)

    loop.run_until_complete(ask())


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


def test_connection_closed_while_the_loop_was_blocked_is_replaced(
    loop: VirtualLoop, pool: Pool
) -> None:
    """The event loop has not noticed yet."""

    async def ask() -> None:
        client = Client(pool)
        await client.get()
        closed = pool.all[0]._reader
        closed.has_input = True
        await client.get()
        assert closed.is_over
        assert pool.connects == 2
        assert len(pool.open) == 1

    loop.run_until_complete(ask())


def test_cancellation_is_raised_though_connecting_swallows_it(
    loop: VirtualLoop, pool: Pool
) -> None:
    class Swallowing(Connection):
        async def connect(self) -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1)
            await super().connect()

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
        assert len(pool.open) == 1

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
