"""Requests that wait behind others: what did not leave is told from what was not answered."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from redis_lock_decorators.flow.requests import Unsent
from redis_lock_decorators.world import courier
from redis_lock_decorators.world.courier import Courier


class SlowCarrier:
    """A server that answers one load after the other, or nobody."""

    resends = False

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.sent: list[Any] = []

    async def carry(self, commands: Any, until: float) -> list[Any]:
        self.sent += commands
        late = time.monotonic() + self.seconds > until
        await asyncio.sleep(max(0.0, until - time.monotonic()) if late else self.seconds)
        if late:
            raise self.no_reply()
        return list(commands)

    def no_reply(self) -> Exception:
        return TimeoutError("no reply")

    def close(self) -> None:
        pass

    async def distrust(self) -> None:
        pass


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request a load, and looks often."""
    monkeypatch.setattr(courier, "LOAD", 1)
    monkeypatch.setattr(courier, "LOOK", 0.01)


async def asked(carrier: SlowCarrier, count: int, seconds: float) -> list[Any]:
    """What came of so many requests that are given so long."""
    office, until = Courier(), time.monotonic() + seconds
    requests = [office.exchange(carrier, (number,), until) for number in range(count)]
    return await asyncio.gather(*requests, return_exceptions=True)


def test_requests_that_did_not_leave_in_time_say_so_and_never_leave() -> None:
    carrier = SlowCarrier(0.02)

    results = asyncio.run(asked(carrier, 40, 0.2))

    unsent = [number for number, result in enumerate(results) if isinstance(result, Unsent)]
    assert unsent
    assert not {(number,) for number in unsent} & set(carrier.sent)
    assert results[0] == (0,)


def test_requests_to_a_silent_server_are_not_said_to_be_unsent() -> None:
    results = asyncio.run(asked(SlowCarrier(60), 10, 0.1))

    assert [type(result) for result in results] == [TimeoutError] * 10


class BlockedLoop(SlowCarrier):
    """A server that answers at once, while something keeps the event loop from reading it."""

    async def carry(self, commands: Any, until: float) -> list[Any]:
        self.sent += commands
        await asyncio.sleep(0)
        time.sleep(0.2)
        await asyncio.sleep(0.001)
        return list(commands)


def test_blocked_event_loop_does_not_make_a_server_silent() -> None:
    results = asyncio.run(asked(BlockedLoop(0), 10, 0.1))

    assert results[0] == (0,)
    assert [type(result) for result in results[1:]] == [Unsent] * 9
