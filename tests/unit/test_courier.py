"""Requests that wait behind others: what did not leave is told from what was not answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.virtual_loop import VirtualLoop

from redis_lock_decorators.flow.requests import Unsent
from redis_lock_decorators.world import courier
from redis_lock_decorators.world.courier import Courier, Trip


class SlowCarrier:
    """A server that answers one load after the other, or nobody."""

    resends = False

    def __init__(self, loop: VirtualLoop, seconds: float) -> None:
        self.loop, self.seconds = loop, seconds
        self.sent: list[Any] = []
        self.courier: Any = None

    async def carry(self, commands: Any, until: float) -> list[Any]:
        self.sent += commands
        left = until - self.loop.now
        late = self.seconds > left
        await asyncio.sleep(max(0.0, left) if late else self.seconds)
        if late:
            raise self.no_reply()
        return list(commands)

    def no_reply(self) -> Exception:
        return TimeoutError("no reply")

    def close(self) -> None:
        pass

    async def distrust(self) -> None:
        pass


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    """The event loop, whose couriers take one request a load."""
    loop = VirtualLoop()
    monkeypatch.setattr(courier, "time", SimpleNamespace(monotonic=loop.time))
    monkeypatch.setattr(courier, "LOAD", 1)
    yield loop
    loop.close()


def asked(carrier: SlowCarrier, count: int, seconds: float) -> list[Any]:
    """What came of so many requests that are given so long."""

    async def ask() -> list[Any]:
        carrier.courier, until = Courier(), carrier.loop.now + seconds
        requests = [carrier.courier.exchange(carrier, (number,), until) for number in range(count)]
        return await asyncio.gather(*requests, return_exceptions=True)

    return carrier.loop.run_until_complete(ask())


def test_requests_that_did_not_leave_in_time_say_so_and_never_leave(loop: VirtualLoop) -> None:
    carrier = SlowCarrier(loop, 0.5)

    results = asked(carrier, 40, 5)

    unsent = [number for number, result in enumerate(results) if isinstance(result, Unsent)]
    assert unsent
    assert not {(number,) for number in unsent} & set(carrier.sent)
    assert results[0] == (0,)


def test_requests_to_a_silent_server_are_not_said_to_be_unsent(loop: VirtualLoop) -> None:
    results = asked(SlowCarrier(loop, 60), 10, 2.5)

    assert [type(result) for result in results] == [TimeoutError] * 10


class Connection:
    """What a trip that takes too long is ended by."""

    async def disconnect(self) -> None:
        pass


class BlockedLoop(SlowCarrier):
    """A server that answers at once, while something keeps the event loop from reading it."""

    async def carry(self, commands: Any, until: float) -> list[Any]:
        self.sent += commands
        trip = self.courier.trip = Trip(Connection(), until)
        await asyncio.sleep(0)
        self.loop.now += 5
        await asyncio.sleep(0.001)
        if trip.cut:
            raise self.no_reply()
        return list(commands)


def test_blocked_event_loop_does_not_make_a_server_silent(loop: VirtualLoop) -> None:
    results = asked(BlockedLoop(loop, 0), 10, 2.5)

    assert results[0] == (0,)
    assert [type(result) for result in results[1:]] == [Unsent] * 9
