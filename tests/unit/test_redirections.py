"""Requests that a node of a cluster redirects to another one: no other request waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.batching import SlowTransport, use_clock
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._flow.timeouts import TimeLimits
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.transport.asyncio_client import with_redirected
from redis_lock_decorators._io.transport.batch import Redirection
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._io.transport.single_tries import one_by_one


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    use_clock(loop.time, monkeypatch)
    yield loop
    loop.close()


class MovingSlots(SlowTransport):
    """A node that redirects commands with odd numbers to another one."""

    def __init__(self, loop: VirtualLoop, seconds: float, other: SlowTransport) -> None:
        super().__init__(loop, seconds)
        self.other = other

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        replies = await super().send_batch(commands, until)
        return [Redirection("other", self.other) if reply[0] % 2 else reply for reply in replies]


class Timed:
    """The results of requests that are made together, and when they arrived."""

    def __init__(self, loop: VirtualLoop, transport: SlowTransport) -> None:
        self.loop, self.transport, self.batcher = loop, transport, RequestBatcher()

    async def of(self, number: int, first: bool = False) -> tuple[Any, float]:
        until = TimeLimits(self.loop.now + 5, self.loop.now + 20)
        try:
            result = await self.batcher.exchange(self.transport, (number,), until, first)
        except Exception as error:
            return type(error), self.loop.now
        return result, self.loop.now


@pytest.mark.parametrize("first", [False, True])
def test_requests_do_not_wait_for_a_silent_node_that_others_are_redirected_to(
    loop: VirtualLoop, first: bool
) -> None:
    transport = MovingSlots(loop, 0.25, SlowTransport(loop, 60))

    async def run() -> Any:
        timed = Timed(loop, transport)
        return await asyncio.gather(*[timed.of(number, first) for number in range(6)])

    began = loop.now
    results = loop.run_until_complete(run())

    for number, (result, when) in enumerate(results):
        if number % 2:
            assert result is TimeoutError
        else:
            assert (result, when <= began + 0.6) == ((number,), True)


def test_redirected_requests_are_sent_together(loop: VirtualLoop) -> None:
    other = SlowTransport(loop, 0.25)
    transport = MovingSlots(loop, 0.25, other)

    async def run() -> Any:
        timed = Timed(loop, transport)
        return await asyncio.gather(*[timed.of(number, True) for number in range(100)])

    began = loop.now
    results = loop.run_until_complete(run())

    assert [result for result, _ in results] == [(number,) for number in range(100)]
    assert max(when for _, when in results) <= began + 1
    assert other.sent == [(number,) for number in range(1, 100, 2)]


def test_requests_that_are_redirected_again_are_sent_together(loop: VirtualLoop) -> None:
    last = SlowTransport(loop, 0.25)
    middle = MovingSlots(loop, 0.25, last)
    transport = MovingSlots(loop, 0.25, middle)

    async def run() -> Any:
        timed = Timed(loop, transport)
        return await asyncio.gather(*[timed.of(number, True) for number in range(100)])

    began = loop.now
    results = loop.run_until_complete(run())

    assert [result for result, _ in results] == [(number,) for number in range(100)]
    assert max(when for _, when in results) <= began + 1.5
    assert last.sent == [(number,) for number in range(1, 100, 2)]


def test_replies_that_arrived_count_if_the_time_runs_out(loop: VirtualLoop) -> None:
    transport = SlowTransport(loop, 0.25)
    commands = [(number,) for number in range(5)]

    async def run() -> Any:
        until = loop.now + 0.6
        return await one_by_one(transport.send_batch, commands, until, transport.no_reply)

    first, second, *missing = loop.run_until_complete(run())

    assert (first, second) == ((0,), (1,))
    assert [type(error) for error in missing] == [TimeoutError] * 3
    assert list(map(client_errors.was_sent, missing)) == [True, False, False]


def test_time_that_runs_out_before_any_reply_is_an_error(loop: VirtualLoop) -> None:
    transport = SlowTransport(loop, 60)

    async def run() -> Any:
        until = loop.now + 0.6
        return await one_by_one(transport.send_batch, [(0,), (1,)], until, transport.no_reply)

    with pytest.raises(TimeoutError):
        loop.run_until_complete(run())
    assert transport.sent == [(0,)]


def test_redirected_release_is_sent_though_its_caller_was_cancelled(loop: VirtualLoop) -> None:
    transport = MovingSlots(loop, 0.25, SlowTransport(loop, 0.25))

    class Release:
        def __call__(self) -> None:
            pass

    async def run() -> Any:
        batcher, release, until = RequestBatcher(), Release(), loop.now + 5
        before = asyncio.ensure_future(batcher.exchange(transport, (0,), until))
        await asyncio.sleep(0.1)
        released = batcher.queue(transport, (1,), until, sending=release)
        await before
        await asyncio.sleep(0.1)
        released.cancel()
        late = batcher.late_reply(release)
        assert late is not None
        return await late

    assert loop.run_until_complete(run()) == (1,)


def test_commands_that_are_sent_without_a_batcher_are_redirected(loop: VirtualLoop) -> None:
    transport = MovingSlots(loop, 0.25, SlowTransport(loop, 0.25))
    commands = [(number,) for number in range(4)]

    async def run() -> Any:
        replies = await transport.send_batch(commands, loop.now + 5)
        return await with_redirected(replies, commands, loop.now + 5)

    assert loop.run_until_complete(run()) == commands
