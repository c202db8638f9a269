"""Urgent requests, such as renewals: they end the exchange of a connection that is silent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.batching import Connection, HalfOpen, SlowTransport, limit_batches, use_clock
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._flow.timeouts import TimeLimits
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.exchange import Exchange


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    """An event loop whose batchers send one request per batch."""
    limit_batches(1, monkeypatch)
    loop = VirtualLoop()
    use_clock(loop.time, monkeypatch)
    yield loop
    loop.close()


class LostClosing(HalfOpen):
    """A server; the event loop loses the closing of the first connection until it is repeated."""

    def writer(self, closed: asyncio.Event) -> Any:
        protocol = SimpleNamespace(connection_lost=lambda error: closed.set())
        transport = SimpleNamespace(abort=lambda: None, get_protocol=lambda: protocol)
        return SimpleNamespace(transport=transport)


def renewed_at(loop: VirtualLoop, transport: SlowTransport, count: int) -> float:
    """When a renewal with one second per attempt was served, behind requests with sixty."""

    async def ask() -> float:
        transport.batcher, until = RequestBatcher(), loop.now + 60
        numbers = range(count)
        others = [asyncio.ensure_future(exchange(transport, (n,), until)) for n in numbers]
        await asyncio.sleep(0)
        first = transport.batcher.exchange(transport, ("first",), loop.now + 1, first=True)
        while True:
            try:
                await first
                break
            except TimeoutError:
                first = transport.batcher.exchange(transport, ("first",), loop.now + 1, first=True)
        served = loop.now
        await asyncio.gather(*others, return_exceptions=True)
        return served

    return loop.run_until_complete(ask())


async def exchange(transport: SlowTransport, command: Any, until: float) -> Any:
    return await transport.batcher.exchange(transport, command, until)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_renewal_ends_an_exchange_without_a_reply_in_its_time(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Its own exchange, or one of requests with much more time."""
    limit_batches(100, monkeypatch)

    assert renewed_at(loop, HalfOpen(loop, 0), count) == pytest.approx(1001, abs=0.2)


def test_ended_exchange_that_still_runs_is_ended_again(
    loop: VirtualLoop,
) -> None:
    assert renewed_at(loop, LostClosing(loop, 0), 5) < 1002


class BusyLoop(VirtualLoop):
    """An event loop whose iterations take so long that every timer is late."""

    def _run_once(self) -> None:
        self.now += 0.3
        super()._run_once()  # type: ignore[misc]


def test_renewal_ends_a_silent_exchange_despite_slow_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = BusyLoop()
    use_clock(loop.time, monkeypatch)

    assert renewed_at(loop, HalfOpen(loop, 0), 1) < 1005

    loop.close()


def test_batch_waits_no_longer_than_the_renewal_in_it(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_batches(100, monkeypatch)
    ends = []

    class Recording(SlowTransport):
        async def send_batch(self, commands: Any, until: float) -> list[Any]:
            ends.append((len(commands), until - loop.now))
            return await super().send_batch(commands, until)

    renewed_at(loop, Recording(loop, 0.1), 5)

    assert ends == [(1, 60), (5, pytest.approx(1))]


def test_renewal_does_not_end_the_exchange_of_an_answering_server(
    loop: VirtualLoop,
) -> None:
    transport = HalfOpen(loop, 0)
    transport.sent.append(("earlier",))

    async def slow(commands: Any, until: float) -> list[Any]:
        under_way = transport.batcher.under_way = Exchange(Connection(), until)
        await asyncio.sleep(0.8)
        assert not under_way.is_ended
        return list(commands)

    transport.send_batch = slow  # type: ignore[method-assign]

    assert renewed_at(loop, transport, 1) == pytest.approx(1001.6, abs=0.01)


def test_renewal_is_sent_late_if_the_event_loop_was_blocked(loop: VirtualLoop) -> None:
    async def ask() -> Any:
        transport = SlowTransport(loop, 0.1)
        transport.batcher, now = RequestBatcher(), loop.now
        until = TimeLimits(now + 1, now + 3)
        renewal = transport.batcher.exchange(transport, ("first",), until, first=True)
        task = asyncio.ensure_future(renewal)
        await asyncio.sleep(0)
        loop.now += 2
        return await task

    assert loop.run_until_complete(ask()) == ("first",)


def test_urgent_requests_are_sent_in_order(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_batches(2, monkeypatch)

    async def ask() -> list[Any]:
        transport = SlowTransport(loop, 0.1)
        transport.batcher, until = RequestBatcher(), loop.now + 60
        other = asyncio.ensure_future(exchange(transport, ("other",), until))
        await asyncio.sleep(0)
        urgent = [
            transport.batcher.exchange(transport, (number,), until, first=True)
            for number in range(5)
        ]
        await asyncio.gather(other, *urgent)
        return transport.sent

    assert loop.run_until_complete(ask()) == [("other",), (0,), (1,), (2,), (3,), (4,)]


@pytest.mark.parametrize("known", [1, 2])
def test_renewal_waits_two_round_trips_of_a_distant_server(loop: VirtualLoop, known: int) -> None:
    """Its limit is half of the time that its lease has left, so it may be less than one."""

    async def ask() -> Any:
        transport = SlowTransport(loop, 1.5)
        transport.batcher = RequestBatcher()
        for number in range(known):
            await exchange(transport, (number,), loop.now + 60)
        renewal = transport.batcher.exchange(transport, ("first",), loop.now + 1, first=True)
        return await renewal

    assert loop.run_until_complete(ask()) == ("first",)


def test_one_reply_that_took_long_makes_no_server_distant(loop: VirtualLoop) -> None:
    async def ask() -> float:
        transport = SlowTransport(loop, 0.01)
        transport.batcher = RequestBatcher()
        for seconds in (0.01, 30):
            transport.seconds = seconds
            await exchange(transport, ("earlier",), loop.now + 60)
        began = loop.now
        with pytest.raises(TimeoutError):
            await transport.batcher.exchange(transport, ("first",), loop.now + 1, first=True)
        return loop.now - began

    assert loop.run_until_complete(ask()) == pytest.approx(1, abs=0.1)
