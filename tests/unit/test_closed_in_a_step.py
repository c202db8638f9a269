"""Coroutines that are closed inside a step of another task, as by the garbage collector.

What they begin then affects neither that task nor the requests of others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Disconnected
from support.asyncio_pools import Connection, Pool
from support.batching import Connection as HungConnection
from support.batching import SlowTransport, use_clock
from support.pooled_client import Client, virtual_loop
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._io.background.cancellable import cancellable
from redis_lock_decorators._io.background.closing import is_being_closed, is_unawaited
from redis_lock_decorators._io.background.contexts import in_empty_context
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport import exchange
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.exchange import Exchange
from redis_lock_decorators._io.transport.task_exclusive import TaskExclusive
from redis_lock_decorators._io.transport.watch import Watch


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    use_clock(loop.time, monkeypatch)
    yield loop
    loop.close()


class Silent(SlowTransport):
    """A server that never answers the first request."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        if not self.sent:
            self.sent += commands
            await self.loop.create_future()
        return await super().send_batch(commands, until)


async def swallow_close(then: Coroutine[Any, Any, Any]) -> None:
    """Ignore being closed, and await something instead."""
    with contextlib.suppress(GeneratorExit):
        await asyncio.get_running_loop().create_future()
    await then


def close_begun(coroutine: Coroutine[Any, Any, Any]) -> None:
    coroutine.send(None)
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        coroutine.close()


def test_request_of_a_closed_coroutine_delays_no_other(loop: VirtualLoop) -> None:
    async def collect() -> float:
        batcher, transport, began = RequestBatcher(), Silent(loop, 0.01), loop.now
        closed = swallow_close(batcher.exchange(transport, ("first",), loop.now + 60))
        close_begun(closed)
        reply = asyncio.ensure_future(batcher.exchange(transport, ("second",), loop.now + 60))
        assert await reply == ("second",)
        assert not batcher.is_busy
        took = loop.now - began
        del closed
        return took

    assert loop.run_until_complete(collect()) < 1


def test_request_that_was_abandoned_does_not_end_another_when_it_is_collected(
    loop: VirtualLoop,
) -> None:
    async def collect() -> None:
        batcher, transport = RequestBatcher(), Silent(loop, 1.0)
        closed = swallow_close(batcher.exchange(transport, ("first",), loop.now + 60))
        close_begun(closed)
        reply = asyncio.ensure_future(batcher.exchange(transport, ("second",), loop.now + 60))
        await asyncio.sleep(0.5)
        assert ("second",) in transport.sent
        del closed
        assert batcher.is_busy
        await reply

    loop.run_until_complete(collect())


class Unending(SlowTransport):
    """A server; the first exchange does not end when its connection is closed."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        if not self.sent:
            self.sent += commands
            self.batcher.under_way = Exchange(HungConnection(), until)
            await self.loop.create_future()
        return await super().send_batch(commands, until)


def test_exchange_that_runs_on_after_its_end_is_closed(loop: VirtualLoop) -> None:
    async def ask() -> float:
        batcher, transport, began = RequestBatcher(), Unending(loop, 0.01), loop.now
        transport.batcher = batcher
        first = asyncio.ensure_future(batcher.exchange(transport, ("first",), began + 1))
        await asyncio.sleep(0)
        reply = await batcher.exchange(transport, ("second",), began + 60)
        assert reply == ("second",)
        took = loop.now - began
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        return took

    assert loop.run_until_complete(ask()) < 5


def test_limit_of_a_closed_coroutine_cancels_no_task(loop: VirtualLoop) -> None:
    ended = []

    async def limited() -> None:
        work = wait()
        async with timeout(1.0, work):
            await work

    async def wait() -> None:
        try:
            await loop.create_future()
        finally:
            ended.append(loop.now)

    async def collect() -> None:
        began, closed = loop.now, swallow_close(limited())
        close_begun(closed)
        await asyncio.sleep(3)
        assert [when - began for when in ended] == [1.0]
        del closed

    loop.run_until_complete(collect())


@pytest.mark.parametrize("replaces", [True, False])
def test_coroutine_that_is_closed_knows_it(replaces: bool) -> None:
    found = []

    async def clean_up() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            if replaces:
                raise ValueError("the clean-up fails") from None

    async def closed() -> None:
        try:
            await clean_up()
        finally:
            found.append(is_being_closed())

    async def collect() -> None:
        coroutine = closed()
        coroutine.send(None)
        try:
            coroutine.close()
        except ValueError:
            found.append("failed")

    asyncio.run(collect())
    assert found == ([True, "failed"] if replaces else [True])


def test_running_coroutine_that_closes_a_generator_is_not_closed() -> None:
    async def values() -> Any:
        try:
            yield
        finally:
            raise ValueError

    def plain_values() -> Any:
        try:
            yield
        finally:
            raise ValueError

    async def collect() -> list[bool]:
        found, generator, plain = [], values(), plain_values()
        await generator.__anext__()
        next(plain)
        try:
            await generator.aclose()
        except ValueError:
            found.append(is_being_closed())
        try:
            plain.close()
        except ValueError:
            found.append(is_being_closed())
        return found

    assert asyncio.run(collect()) == [False, False]


@pytest.mark.parametrize("kind", [asyncio.Future, asyncio.futures._PyFuture])  # type: ignore[attr-defined]
def test_coroutine_that_ignores_its_close_is_unawaited(kind: Any) -> None:
    async def wait() -> None:
        await kind()

    async def main() -> None:
        closed = swallow_close(wait())
        close_begun(closed)
        assert is_unawaited(closed)

    asyncio.run(main())


def test_suspended_task_is_awaited_by_the_event_loop() -> None:
    async def wait(future: asyncio.Future[None]) -> None:
        await asyncio.shield(future)

    async def main() -> None:
        future = asyncio.get_running_loop().create_future()
        coroutine = wait(future)
        task = asyncio.ensure_future(coroutine)
        assert not is_unawaited(coroutine)
        await asyncio.sleep(0)
        assert not is_unawaited(coroutine)
        future.set_result(None)
        await task
        assert not is_unawaited(coroutine)

    asyncio.run(main())


class FailingConnection(Connection):
    """A connection whose clean-up fails, as on a closed event loop."""

    async def next_reply(self) -> Any:
        await fail_when_closed()


async def fail_when_closed() -> None:
    try:
        await asyncio.get_running_loop().create_future()
    except BaseException:
        raise Disconnected("Event loop is closed") from None


async def in_transaction(client: Client) -> None:
    exclusive = TaskExclusive(client.batcher.idle, client.connection_pool, exchange.monotonic() + 5)
    async with Watch(exclusive) as watched:
        await watched.holder(b"key")


USES: dict[str, Callable[[Client], Coroutine[Any, Any, Any]]] = {
    "request": Client.get,
    "transaction": in_transaction,
    "call": lambda client: cancellable(fail_when_closed()),
    "empty context": lambda client: drive(in_empty_context(fail_when_closed())),
}


async def drive(work: Any) -> None:
    await work


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_error_that_replaces_a_close_is_none_of_the_client(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[Client], Coroutine[Any, Any, Any]]
) -> None:
    """A flow would repeat the request, and await that, though its event loop is closed."""
    loop, found = virtual_loop(monkeypatch), []

    async def flow() -> None:
        pool = Pool()
        pool.kind, client = FailingConnection, Client(pool)
        try:
            await use(client)
        except Exception as error:
            found.append(error)

    async def begin() -> Coroutine[Any, Any, None]:
        task = asyncio.ensure_future(work := flow())
        await asyncio.sleep(0.1)
        begun.append(task)
        return work

    begun: list[Any] = []
    work = loop.run_until_complete(begin())
    begun.pop()._log_destroy_pending = False
    loop.close()
    work.close()
    assert found == []
