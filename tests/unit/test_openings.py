"""A connection of an asyncio client that takes longer to open than its callers wait."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import TimeoutError as NoReply
from support.asyncio_pools import Connection, Pool
from support.pooled_client import GET, Client, virtual_loop
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background.supervised import background_tasks
from redis_lock_decorators._io.transport.private_connection import PATIENCE
from redis_lock_decorators._io.transport.task_exclusive import TaskExclusive

#: Seconds that a caller waits, and a longer time to open a connection.
SHORT, LONG = 1.0, 1.2


class Distant(Connection):
    """A connection over a slow link."""

    async def next_reply(self) -> Any:
        await asyncio.sleep(0.3)
        return await super().next_reply()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    yield (loop := virtual_loop(monkeypatch))
    loop.close()


@pytest.fixture
def pool() -> Pool:
    pool = Pool()
    pool.connect_seconds = LONG
    return pool


async def by_batcher(client: Client, seconds: float = SHORT) -> Any:
    return await client.get(seconds)


async def by_transaction(client: Client, seconds: float = SHORT) -> Any:
    until = asyncio.get_running_loop().time() + seconds
    use = TaskExclusive(client.batcher.idle, client.connection_pool, until)
    is_kept = False
    try:
        found = (await use.exchange([GET]))[0]
        is_kept = True
    finally:
        use.end(is_kept)
    return found


async def give_up(client: Client) -> None:
    with pytest.raises(NoReply):
        await client.get(SHORT)


Use = Callable[..., Awaitable[Any]]


@pytest.mark.parametrize("use", [by_batcher, by_transaction])
def test_next_caller_gets_the_connection_of_one_that_gave_up(
    loop: VirtualLoop, pool: Pool, use: Use
) -> None:
    async def ask() -> None:
        client = Client(pool)
        with pytest.raises(NoReply):
            await use(client)
        assert await use(client) == b"OK"
        assert len(pool.all) == len(pool.open) == 1

    loop.run_until_complete(ask())


def test_connection_is_kept_though_nobody_waits_for_it(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        await give_up(client)
        await asyncio.sleep(LONG)
        began = loop.now
        assert await client.get() == b"OK"
        assert loop.now - began < 0.1
        assert pool.connects == 1

    loop.run_until_complete(ask())


@pytest.mark.parametrize("use", [by_batcher, by_transaction])
def test_reply_has_as_long_as_the_opening_took(loop: VirtualLoop, pool: Pool, use: Use) -> None:
    async def ask() -> None:
        pool.kind, pool.connect_seconds = Distant, 0.9
        assert await use(Client(pool)) == b"OK"
        assert pool.connects == 1

    loop.run_until_complete(ask())


def test_further_requests_of_an_attempt_have_that_time_too(loop: VirtualLoop, pool: Pool) -> None:
    """Such as a script's text, after the server lacked its digest."""

    async def ask() -> None:
        pool.kind, pool.connect_seconds = Distant, 0.9
        client, until = Client(pool), loop.now + SHORT
        for _ in range(2):
            assert await client.batcher.exchange(client.transport, GET, until) == b"OK"
        assert pool.connects == 1

    loop.run_until_complete(ask())


@pytest.mark.parametrize("use", [by_batcher, by_transaction])
def test_next_caller_has_as_long_as_the_whole_opening_took(
    loop: VirtualLoop, pool: Pool, use: Use
) -> None:
    async def ask() -> None:
        pool.kind = Distant
        client = Client(pool)
        with pytest.raises(NoReply):
            await use(client)
        assert await use(client, 0.25) == b"OK"
        assert pool.connects == 1

    loop.run_until_complete(ask())


def test_requests_behind_an_opening_have_that_time_too(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        pool.kind, pool.connect_seconds = Distant, 0.9
        client = Client(pool)
        assert await asyncio.gather(client.get(SHORT), client.get(SHORT)) == [b"OK"] * 2
        assert pool.connects == 1

    loop.run_until_complete(ask())


def test_requests_behind_an_opening_that_is_late_fail_like_the_first(
    loop: VirtualLoop, pool: Pool
) -> None:
    """As requests that were queued behind others, they would count as refused."""

    async def ask() -> None:
        client = Client(pool)
        works = [client.get(0.6) for _ in range(6)]
        found = await asyncio.gather(*works, return_exceptions=True)
        assert [type(error) for error in found] == [NoReply] * 6
        assert not any(map(client_errors.was_sent, found))  # type: ignore[arg-type]

    loop.run_until_complete(ask())


def test_cancelled_callers_open_one_connection(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        for _ in range(5):
            task = asyncio.ensure_future(client.get())
            await asyncio.sleep(LONG / 4)
            task.cancel()
            await asyncio.wait([task])
        assert await client.get() == b"OK"
        assert len(pool.all) == len(pool.open) == 1

    loop.run_until_complete(ask())


@pytest.mark.parametrize("at", range(12))
def test_cancellation_as_the_connection_opens_loses_none(loop: VirtualLoop, at: int) -> None:
    async def ask() -> None:
        client = Client(pool := Pool())
        task = asyncio.ensure_future(client.get())
        await asyncio.sleep(0.0005)
        loop.now += 0.0005
        for _ in range(at):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert await client.get() == b"OK"
        assert len(pool.open) == 1

    loop.run_until_complete(ask())


def test_opening_that_hangs_is_given_up(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        pool.connect_seconds = 60
        await give_up(client)
        await asyncio.sleep(PATIENCE)
        assert not client.batcher.idle.openings
        pool.connect_seconds = 0.001
        assert await client.get(SHORT) == b"OK"
        assert len(pool.open) == 1

    loop.run_until_complete(ask())


class OnceSilent(Connection):
    """The first connection is half open: the server answers no step of opening it."""

    async def connect(self) -> None:
        if len(self.pool.all) == 1:
            await asyncio.sleep(self.socket_timeout or 60)
            raise NoReply("no reply while opening")
        await super().connect()


@pytest.mark.parametrize("use", [by_batcher, by_transaction])
def test_connection_whose_opening_hangs_is_replaced(
    loop: VirtualLoop, pool: Pool, use: Use
) -> None:
    async def ask() -> None:
        client, pool.kind, pool.connect_seconds = Client(pool), OnceSilent, 0.1
        pool.connection_kwargs["socket_timeout"] = None
        began = loop.now
        assert await use(client, 5) == b"OK"
        assert loop.now - began < PATIENCE + 0.2
        assert len(pool.all) == 2

    loop.run_until_complete(ask())


def test_server_that_answers_no_opening_is_tried_twice(loop: VirtualLoop, pool: Pool) -> None:
    class Silent(Connection):
        async def connect(self) -> None:
            await asyncio.sleep(self.socket_timeout or 60)
            raise NoReply("no reply while opening")

    async def ask() -> None:
        client, pool.kind = Client(pool), Silent
        pool.connection_kwargs["socket_timeout"] = 1
        with pytest.raises(NoReply):
            await client.get()
        assert len(pool.all) == 2

    loop.run_until_complete(ask())


def test_failure_after_the_caller_gave_up_is_not_that_of_the_next(
    loop: VirtualLoop, pool: Pool
) -> None:
    class Refused(Connection):
        async def connect(self) -> None:
            await super().connect()
            self._writer.abort()
            raise Disconnected("refused")

    async def ask() -> None:
        client, pool.kind = Client(pool), Refused
        await give_up(client)
        await asyncio.sleep(LONG)
        pool.kind = Connection
        assert await client.get() == b"OK"

    loop.run_until_complete(ask())


@pytest.mark.parametrize("end", ["client closed", "client deleted"])
def test_opening_ends_with_its_client(loop: VirtualLoop, pool: Pool, end: str) -> None:
    async def ask() -> None:
        client: Any = Client(pool)
        await give_up(client)
        if end == "client closed":
            await pool.disconnect()
        else:
            del client
        await asyncio.sleep(0.01)
        assert not [one for one in background_tasks().tasks() if not one.done()]
        await asyncio.sleep(LONG)
        assert pool.connects == 0

    gc.collect()
    loop.run_until_complete(ask())


def test_opening_that_leads_to_a_former_server_is_cancelled(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client, other = Client(pool), Pool()
        await give_up(client)
        client.connection_pool = other
        assert await client.get() == b"OK"
        await asyncio.sleep(LONG)
        assert (pool.connects, other.connects) == (0, 1)

    loop.run_until_complete(ask())


def test_connection_to_a_former_master_is_replaced(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        await give_up(client)
        await asyncio.sleep(LONG)
        pool.master_address = "new", 1
        assert await client.get() == b"OK"
        assert [one.host for one in pool.open] == ["new"]

    loop.run_until_complete(ask())


def test_program_that_cancels_background_tasks_opens_another(loop: VirtualLoop, pool: Pool) -> None:
    async def ask() -> None:
        client = Client(pool)
        task = asyncio.ensure_future(client.get())
        await asyncio.sleep(0.1)
        for one in asyncio.all_tasks() - {task, asyncio.current_task()}:
            one.cancel()
        assert await task == b"OK"
        assert len(pool.open) == 1

    loop.run_until_complete(ask())


@pytest.mark.parametrize("cancels", [True, False])
def test_end_of_the_event_loop_warns_of_nothing(
    loop: VirtualLoop, pool: Pool, cancels: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def cancel_all() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    client: Any = loop.run_until_complete(asyncio.wait_for(made(pool), 10))
    if cancels:
        loop.run_until_complete(cancel_all())
    loop.close()
    del client
    gc.collect()

    assert not caplog.records
    assert pool.open == []


async def made(pool: Pool) -> Client:
    """A client whose caller gave up while its connection was opened."""
    client = Client(pool)
    await give_up(client)
    return client
