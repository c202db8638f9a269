"""An event loop that was blocked for long does not make its server seem silent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.batching import use_clock
from support.simulated_queue import SimulatedProcess
from support.simulation import Clock, SimulatedServer
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._flow.timeouts import TimeLimits
from redis_lock_decorators._io import timeouts
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport.batch_sender import MIN_REPLY_TIME
from redis_lock_decorators._io.transport.batcher import RequestBatcher


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    use_clock(loop.time, monkeypatch)
    yield loop
    loop.close()


class Connecting:
    """A server that replies immediately, once its connection has been opened after some seconds."""

    may_resend = opens_connections = False

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.ends: list[float] = []

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        self.ends.append(until)
        await asyncio.sleep(0)
        seconds, self.seconds = self.seconds, 0.0
        await asyncio.sleep(seconds)
        return list(commands)

    def no_reply(self) -> Exception:
        return TimeoutError("no reply")

    def close(self) -> None:
        pass

    async def drop_idle_connections(self) -> None:
        pass


def test_requests_of_tasks_with_long_first_steps_are_served(loop: VirtualLoop) -> None:
    transport, count = Connecting(1.5), 300

    async def ask(batcher: RequestBatcher, number: int) -> Any:
        until = TimeLimits(loop.now + 5, loop.now + 3600)
        loop.now += 0.05
        return await batcher.exchange(transport, (number,), until)

    async def all_ask() -> list[Any]:
        batcher = RequestBatcher()
        asks = [ask(batcher, number) for number in range(count)]
        return await asyncio.gather(*asks, return_exceptions=True)

    assert loop.run_until_complete(all_ask()) == [(number,) for number in range(count)]


def test_late_request_has_time_for_its_reply_if_its_caller_has(
    loop: VirtualLoop,
) -> None:
    transport = Connecting(0)

    async def ask() -> None:
        for end in (loop.now + 60, loop.now - 1):
            await RequestBatcher().exchange(transport, (1,), TimeLimits(loop.now - 1, end))

    loop.run_until_complete(ask())

    assert transport.ends == [1000 + MIN_REPLY_TIME, 999]


def test_timeout_does_not_count_the_time_of_a_blocked_loop(loop: VirtualLoop) -> None:
    async def work() -> None:
        async with timeout(1):
            loop.now += 5
            await asyncio.sleep(0.8)
            ended.append(loop.now)

    ended: list[float] = []
    loop.run_until_complete(work())

    assert len(ended) == 1


def test_timeout_ends_after_a_blocked_loop(loop: VirtualLoop) -> None:
    async def work() -> None:
        async with timeout(1):
            loop.now += 5
            await asyncio.sleep(60)

    with pytest.raises(asyncio.TimeoutError):
        loop.run_until_complete(work())
    assert loop.now <= 1007


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_timeout_ends_in_time_on_an_unblocked_loop(loop: VirtualLoop, seconds: float) -> None:
    async def work() -> None:
        async with timeout(seconds):
            await asyncio.sleep(60)

    with pytest.raises(asyncio.TimeoutError):
        loop.run_until_complete(work())
    assert loop.now == 1000 + seconds


def test_timeout_of_every_python_ends_only_its_own_block(loop: VirtualLoop) -> None:
    """``asyncio.timeout``, and its replacement before Python 3.11."""

    async def work(limit: Any, seconds: float) -> str:
        plain = limit(None)
        try:
            async with plain:
                loop.call_later(1, lambda: plain.expired() or plain.reschedule(loop.now))
                await asyncio.sleep(seconds)
        except asyncio.TimeoutError:
            return "ended" if plain.expired() else "another"
        return "done"

    async def cancelled(limit: Any) -> bool:
        task = asyncio.ensure_future(work(limit, 60))
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    for limit in {timeouts._Limit, timeouts.plain_timeout}:
        assert loop.run_until_complete(work(limit, 60)) == "ended"
        assert loop.run_until_complete(work(limit, 0.5)) == "done"
        assert loop.run_until_complete(cancelled(limit))


def test_subscriber_that_is_woken_late_keeps_its_subscription() -> None:
    """The reply to its PING has arrived but was not read."""
    process = SimulatedProcess(SimulatedServer(Clock()))
    holder = process.acquire("a", expire=60)
    process.acquire("a", wait=60)
    process.server.clock.advance(1)
    assert holder.held
    (line,) = process.subscriptions

    line.late = 5.0  # messages are read that much later, and so are timers
    _block(process, 5.0)
    line.late = 0.0
    process.server.clock.advance(3)

    assert process.subscriptions == [line]


def _block(process: SimulatedProcess, seconds: float) -> None:
    """Advance the time in one step; timers that were due run after it."""
    process.server.clock.now += seconds


def test_subscription_that_opens_while_the_loop_is_blocked_is_kept() -> None:
    process = SimulatedProcess(SimulatedServer(Clock()))
    process.port.latency = 11.0
    for _ in range(2):
        process.acquire("a", wait=60, expire=60)
    process.server.clock.advance(0.05)
    process.port.latency = 0.001

    _block(process, 5.0)
    process.server.clock.advance(1)

    assert process.subscriber is not None
    assert process.subscriber.is_open
    assert len(process.subscriptions) == 1
