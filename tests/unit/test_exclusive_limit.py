"""Transactions, and requests that need a connection alone, share a few connections."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import pytest
from redis.exceptions import TimeoutError as NoReply
from support.asyncio_pools import Connection, Pool
from support.pooled_client import GET, Client, virtual_loop
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._flow.requests import NeverSent
from redis_lock_decorators._flow.timeouts import TimeLimits
from redis_lock_decorators._io.transport.asyncio_client import send_separately
from redis_lock_decorators._io.transport.exclusive_limit import MOST
from redis_lock_decorators._io.transport.task_exclusive import TaskExclusive

SET = ("SET", b"key", b"value")


class SlowConnection(Connection):
    """A connection that gets each reply after some seconds."""

    async def next_reply(self) -> Any:
        for _ in range(int(self.pool.reply_seconds / 0.1)):
            if not self._writer.is_over:
                await asyncio.sleep(0.1)
        return await super().next_reply()


class Exchange:
    """A user of a connection."""


class PatientConnection(SlowConnection):
    """The same with the longest time for a reply."""

    def __init__(self, pool: Any = None, socket_timeout: float | None = None, **_: Any) -> None:
        super().__init__(pool, socket_timeout)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    yield (loop := virtual_loop(monkeypatch))
    loop.close()


@pytest.fixture
def pool() -> Pool:
    return slow_pool(100)


def slow_pool(size: int) -> Any:
    pool: Any = Pool(size)
    pool.kind, pool.reply_seconds = SlowConnection, 0.1
    return pool


async def transact(client: Client, until: float) -> None:
    exclusive = TaskExclusive(client.batcher.idle, client.connection_pool, until)
    try:
        await exclusive.exchange([GET])
        await exclusive.exchange([GET])
        exclusive.end(True)
    except BaseException:
        exclusive.end(False)
        raise


@pytest.mark.parametrize(("size", "most"), [(100, MOST), (3, 3), (1, 1)])
@pytest.mark.parametrize("kind", ["transaction", "alone"])
def test_connections_are_limited(loop: VirtualLoop, size: int, most: int, kind: str) -> None:
    async def ask() -> None:
        pool = slow_pool(size)
        client = Client(pool)
        until = loop.now + 60
        if kind == "transaction":
            works = [transact(client, until) for _ in range(100)]
        else:
            idle = client.batcher.idle
            works = [send_separately(client, idle, [GET], until) for _ in range(100)]
        await asyncio.gather(*works)
        assert len(pool.all) == most

    loop.run_until_complete(ask())


def test_releases_precede_acquisitions_and_have_connections_of_their_own(
    loop: VirtualLoop, pool: Any
) -> None:
    async def ask() -> None:
        client, ended = Client(pool), []

        async def send(command: Any) -> None:
            await send_separately(client, client.batcher.idle, [command], loop.now + 60)
            ended.append(command[0])

        acquiring = [asyncio.ensure_future(send(SET)) for _ in range(MOST * 2)]
        await asyncio.sleep(0.01)
        assert len(pool.all) < MOST
        releasing = [asyncio.ensure_future(send(GET)) for _ in range(MOST)]
        await asyncio.gather(*acquiring, *releasing)
        assert len(pool.all) == MOST
        assert ended[-MOST:] == ["SET"] * MOST

    loop.run_until_complete(ask())


def test_steady_releases_do_not_keep_acquisitions_waiting(loop: VirtualLoop, pool: Any) -> None:
    async def ask() -> None:
        client, end = Client(pool), loop.now + 5

        async def release() -> None:
            while loop.now < end:
                await send_separately(client, client.batcher.idle, [GET], loop.now + 60)

        releasing = [asyncio.ensure_future(release()) for _ in range(MOST * 3)]
        await asyncio.sleep(0.05)
        for _ in range(3):
            began = loop.now
            await send_separately(client, client.batcher.idle, [SET], loop.now + 60)
            assert loop.now - began < 0.5
        await asyncio.gather(*releasing)

    loop.run_until_complete(ask())


def test_all_waiters_that_have_a_place_are_admitted_together(loop: VirtualLoop, pool: Any) -> None:
    async def ask() -> None:
        client, turns = Client(pool), 0
        limit, until = client.batcher.idle.exclusive, loop.now + 60
        users = [Exchange() for _ in range(2 * MOST)]
        for user in users[:MOST]:
            await limit.enter(user, pool, until)
        waiting = [asyncio.ensure_future(limit.enter(user, pool, until)) for user in users[MOST:]]
        await asyncio.sleep(0)
        for user in users[:MOST]:
            limit.leave(user)
        while not all(waiter.done() for waiter in waiting):
            await asyncio.sleep(0)
            turns += 1
        assert turns < 5

    loop.run_until_complete(ask())


@pytest.mark.parametrize("is_answered", [True, False])
def test_wait_for_a_connection_ends_with_the_callers_time(
    loop: VirtualLoop, pool: Any, is_answered: bool
) -> None:
    """Past ``until`` only if others get replies; either way nothing was sent."""

    async def ask() -> None:
        client, began = Client(pool), loop.now
        pool.reply_seconds = 0.4 if is_answered else 100.0
        until = TimeLimits(began + 1.0, began + 3.0)
        works = [transact(client, until) for _ in range(MOST)]
        late = [transact(client, until) for _ in range(MOST * 10)]
        found = await asyncio.gather(*works, *late, return_exceptions=True)
        last: Any = found[-1]
        assert isinstance(last, NeverSent if is_answered else NoReply)
        assert last.unsent
        assert loop.now - began == pytest.approx(3.0 if is_answered else 1.0, abs=0.6)

    loop.run_until_complete(ask())


@pytest.mark.parametrize("reply_seconds", [0.6, 0.9, 2.0])
def test_every_transaction_of_a_slow_server_has_time_for_its_replies(
    loop: VirtualLoop, pool: Any, reply_seconds: float
) -> None:
    """The time limit of a transaction is for silence; its wait and its first exchange are none."""

    async def ask() -> None:
        client, began = Client(pool), loop.now
        pool.kind, pool.reply_seconds = PatientConnection, reply_seconds
        until = TimeLimits(began + 5.0, began + 60.0)
        await asyncio.gather(*[transact(client, until) for _ in range(MOST * 5)])

    loop.run_until_complete(ask())


def test_failure_after_a_wait_has_the_time_at_which_it_was_sent(
    loop: VirtualLoop, pool: Any
) -> None:
    async def ask() -> None:
        client, began = Client(pool), loop.now
        pool.kind, pool.reply_seconds = PatientConnection, 2.0
        until = TimeLimits(began + 5.0, began + 60.0)
        works = [asyncio.ensure_future(transact(client, until)) for _ in range(MOST)]
        await asyncio.sleep(0)
        late = asyncio.ensure_future(transact(client, until))
        await asyncio.wait(works)
        pool.reply_seconds = 1000.0
        with pytest.raises(NoReply) as failure:
            await late
        assert failure.value.sent_at >= began + 4.0  # type: ignore[attr-defined]

    loop.run_until_complete(ask())


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "cancelled"])
def test_uses_that_are_cut_short_free_their_connections(
    loop: VirtualLoop, pool: Any, is_closed: bool
) -> None:
    async def ask() -> None:
        client, until = Client(pool), loop.now + 60
        pool.reply_seconds = 50.0
        if is_closed:
            works = [transact(client, until) for _ in range(MOST * 2)]
            for work in works:
                work.send(None)
            for work in works:
                work.close()
        else:
            tasks = [asyncio.ensure_future(transact(client, until)) for _ in range(MOST * 2)]
            await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        pool.reply_seconds = 0.1
        began = loop.now
        await transact(client, until)
        assert loop.now - began < 0.5

    loop.run_until_complete(ask())


def test_coroutine_that_begins_to_wait_as_it_is_closed_stops_no_other(
    loop: VirtualLoop, pool: Any
) -> None:
    async def swallow_close(client: Client, until: float) -> None:
        with contextlib.suppress(GeneratorExit):
            await loop.create_future()
        await transact(client, until)

    async def ask() -> None:
        client, until = Client(pool), loop.now + 60
        running = [asyncio.ensure_future(transact(client, until)) for _ in range(MOST)]
        await asyncio.sleep(0.01)
        closed = swallow_close(client, until)
        closed.send(None)
        with pytest.raises(RuntimeError):
            closed.close()
        await transact(client, until)
        await asyncio.gather(*running)
        del closed
        gc.collect()

    loop.run_until_complete(asyncio.wait_for(ask(), 5))
