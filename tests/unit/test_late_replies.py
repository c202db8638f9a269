"""Replies to releases whose callers were cancelled after these were sent."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from redis.exceptions import TimeoutError as NoReply
from support.asyncio_pools import Pool
from support.pooled_client import GET, Client, virtual_loop
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._io.transport import exchange, late_replies
from redis_lock_decorators._io.transport.late_replies import arrived


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    loop = virtual_loop(monkeypatch)
    monkeypatch.setattr(late_replies, "monotonic", loop.time)
    yield loop
    loop.close()


@pytest.fixture
def pool() -> Pool:
    return Pool()


class Release:
    """A release in a task.

    Attributes:
        is_sent: whether the port has called ``sending``.
        late: the future of its late reply, after it was cancelled.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.is_sent = False
        self.late: asyncio.Future[Any] | None = None
        self.sending = partial(setattr, self, "is_sent", True)
        self.task = asyncio.ensure_future(self._send())

    async def _send(self) -> Any:
        batcher, until = self.client.batcher, exchange.monotonic() + 5
        try:
            return await batcher.request(self.client.transport, GET, until, self.sending)
        except asyncio.CancelledError:
            self.late = batcher.late_reply(self.sending)
            raise

    async def cancel(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    async def late_reply(self) -> Any:
        assert self.late is not None
        return await arrived(self.late, self.client.transport, exchange.monotonic() + 1)


def test_reply_to_a_cancelled_exchange_is_read(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        await client.get()
        pool.replies = [b"released"]
        release = Release(client)
        while not release.is_sent:
            await asyncio.sleep(0)
        await release.cancel()
        assert await release.late_reply() == b"released"
        assert pool.open == []
        assert await client.get() == b"OK"

    loop.run_until_complete(ask())


def test_reply_is_read_though_all_tasks_are_cancelled(loop: VirtualLoop, pool: Pool) -> None:
    """The task of the exchange, and then all others, as at the end of ``asyncio.run``."""

    async def ask() -> None:
        client = Client(pool)
        await client.get()
        pool.replies = [b"released"]
        release = Release(client)
        while not release.is_sent:
            await asyncio.sleep(0)
        await release.cancel()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        assert await release.late_reply() == b"released"

    loop.run_until_complete(ask())


def test_reply_to_a_cancelled_request_of_a_batch_is_read(loop: VirtualLoop, pool: Pool) -> None:
    """Cancelled before it is sent, before its reply arrives, and before its task sees that."""

    async def ask(turns: int) -> str:
        client = Client(pool)
        await client.get()
        pool.replies = [b"first", b"released", b"other"]
        first, release, other = [Release(client) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        if release.task.done():
            return "done"
        is_sent = release.is_sent
        await release.cancel()
        if not is_sent:
            assert release.late is None
            await asyncio.wait([first.task, other.task])
            return "unsent"
        assert await release.late_reply() == b"released"
        assert [await first.task, await other.task] == [b"first", b"other"]
        return "late"

    found = [loop.run_until_complete(ask(turns)) for turns in range(10)]

    assert found == sorted(found, key=["unsent", "late", "done"].index)
    assert set(found) == {"unsent", "late", "done"}


def test_replies_to_a_batch_are_read_though_its_sending_task_is_cancelled(
    loop: VirtualLoop, pool: Pool
) -> None:
    async def ask() -> None:
        client = Client(pool)
        await client.get()
        pool.replies = [b"first", b"released", b"other"]
        first, release, other = [Release(client) for _ in range(3)]
        while not release.is_sent:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task(), first.task, other.task}:
            task.cancel()
        await asyncio.wait([release.task])
        assert await release.late_reply() == b"released"
        assert [await first.task, await other.task] == [b"first", b"other"]

    loop.run_until_complete(ask())


def test_reply_that_does_not_arrive_ends_as_a_timeout(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        with pytest.raises(NoReply):
            await arrived(loop.create_future(), Client(pool).transport, loop.now + 1)

    began = loop.now
    loop.run_until_complete(ask())

    assert loop.now - began == pytest.approx(1)


def test_cancellation_while_a_connection_is_opened_leaves_no_reply(
    loop: VirtualLoop, pool: Pool
) -> None:
    async def ask() -> None:
        release = Release(Client(pool))
        while not pool.all:
            await asyncio.sleep(0)
        await release.cancel()
        assert release.task.cancelled()
        assert release.late is None

    loop.run_until_complete(ask())


def test_reply_is_kept_only_while_its_release_exists(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        sending = partial(int)
        await client.get()
        exchange = client.batcher.exchange(client.transport, GET, loop.now + 5, sending=sending)
        task = asyncio.ensure_future(exchange)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(1)
        assert client.batcher.late is not None
        assert len(client.batcher.late._replies) == 1
        del sending, exchange, task
        gc.collect()
        assert len(client.batcher.late._replies) == 0

    loop.run_until_complete(ask())
