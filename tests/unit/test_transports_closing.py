"""Private connections of an asyncio client are closed with it, with its pool, or when unused."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from weakref import ref

import pytest
from support.asyncio_pools import Pool
from support.pooled_client import GET, Client, virtual_loop
from support.virtual_loop import VirtualLoop

from redis_lock_decorators import _lua
from redis_lock_decorators._io.asyncio_port import pool_transport
from redis_lock_decorators._io.transport.idle_connections import (
    MAX_IDLE,
    UNUSED,
    UNUSED_AFTER_CLOSE,
)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    yield (loop := virtual_loop(monkeypatch))
    loop.close()


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.mark.parametrize("is_in_use", [False, True])
def test_connection_is_closed_with_the_pool(loop: VirtualLoop, pool: Pool, is_in_use: bool) -> None:
    async def ask() -> None:
        client = Client(pool)
        await client.get()
        running = asyncio.ensure_future(client.get()) if is_in_use else None
        await asyncio.sleep(0)
        await pool.disconnect()
        if running is not None:
            assert await running == b"OK"
        assert pool.open == []

        await client.get()
        assert pool.open == [], "a closed client keeps a connection"
        until = loop.now + 5
        await client.batcher.exchange(client.transport, ("SET", b"key", b"value"), until)
        assert len(pool.open) == 1

    loop.run_until_complete(ask())


def test_renewals_after_the_client_was_closed_share_a_connection(
    loop: VirtualLoop, pool: Pool
) -> None:
    async def ask() -> None:
        client = Client(pool)
        renew = ("EVALSHA", _lua.script("renew").sha, 1, b"key")
        await client.get()
        await pool.disconnect()
        opened = len(pool.all)
        for _ in range(30):
            await client.batcher.exchange(client.transport, renew, loop.now + 5)
            await asyncio.sleep(0.3)
        assert len(pool.all) == opened + 1
        assert len(pool.open) == 1
        await client.get()
        assert pool.open == [], "a release has closed it"
        await client.batcher.exchange(client.transport, renew, loop.now + 5)
        await asyncio.sleep(UNUSED_AFTER_CLOSE + 0.1)
        assert pool.open == []

    loop.run_until_complete(ask())


def test_idle_connections_are_limited_and_closed_when_unused(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        nodes = [client.batcher.separate(number) for number in range(MAX_IDLE + 5)]
        await asyncio.gather(
            *[node.exchange(pool_transport(node, client), GET, loop.now + 5) for node in nodes]
        )
        assert len(pool.all) == MAX_IDLE + 5
        assert len(pool.open) == MAX_IDLE
        for _ in range(MAX_IDLE):
            await asyncio.sleep(UNUSED)
            await client.get()
        assert len(pool.open) == 1

    loop.run_until_complete(ask())


def test_connection_of_a_collected_client_is_closed(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        await client.get()
        assert len(pool.open) == 1
        del client
        await asyncio.sleep(1)  # a timer of the batcher refers to it
        gc.collect()
        await asyncio.sleep(0)
        assert pool.open == []

    loop.run_until_complete(ask())


@pytest.mark.parametrize("is_late", [False, True])
def test_pool_that_was_replaced_may_be_closed(loop: VirtualLoop, pool: Pool, is_late: bool) -> None:
    async def ask() -> None:
        client, other = Client(pool), Pool()
        await client.get()
        client.connection_pool = other
        if is_late:
            await client.get()
        await pool.disconnect()
        for _ in range(3):
            await client.get()
            assert len(other.open) == other.connects == 1
        await other.disconnect()
        await client.get()
        assert not other.open

    loop.run_until_complete(ask())


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("is_shared", [True, False])
def test_connections_of_a_deleted_client_are_closed_without_the_collector(
    loop: VirtualLoop, pool: Pool, is_shared: bool
) -> None:
    async def ask() -> None:
        client = Client(pool)
        if is_shared:  # its connections are not those of another client
            other = Client(pool)
            await other.get()
        await client.get()
        assert len(pool.open) == 1 + is_shared
        del client
        assert len(pool.open) == is_shared

    loop.run_until_complete(ask())


@pytest.mark.usefixtures("no_collector")
def test_deleted_client_leaves_nothing_to_the_collector(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        await client.many(3)
        batcher, idle = ref(client.batcher), ref(client.batcher.idle)
        del client
        await asyncio.sleep(1)  # until the batcher's timer has run
        assert (batcher(), idle()) == (None, None)

    loop.run_until_complete(ask())


def test_exchange_after_its_client_was_deleted_keeps_no_connection(
    loop: VirtualLoop, pool: Pool
) -> None:
    async def ask() -> None:
        client = Client(pool)
        await client.get()
        transport, batcher, find = client.transport, client.batcher, ref(client)
        del client
        assert find() is None
        assert await batcher.exchange(transport, GET, loop.now + 5) == b"OK"
        assert not pool.open

    loop.run_until_complete(ask())


def test_connections_may_be_closed_by_another_thread_at_any_step(
    loop: VirtualLoop, pool: Pool
) -> None:
    class Taken(list):  # type: ignore[type-arg]
        """Connections that another thread takes after each check for them."""

        def __bool__(self) -> bool:
            return True

        def __len__(self) -> int:
            return 2

    async def ask() -> None:
        client = Client(pool)
        idle = client.batcher.idle
        idle._idle = Taken()
        idle.drop()
        await client.get()
        idle.drop()
        idle._close_unused(loop.now)
        assert not pool.open

    loop.run_until_complete(ask())
