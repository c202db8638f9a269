"""Failed batches and cancelled tasks: a request fails only for its own reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from support.batching import SlowTransport, limit_batches, results_of, use_clock
from support.cancelling import CancellingLoop, of_the_package
from support.virtual_loop import VirtualLoop

from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.transport.batcher import RequestBatcher


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    use_clock(loop.time, monkeypatch)
    limit_batches(100, monkeypatch)
    yield loop
    loop.close()


class FailingBatches(SlowTransport):
    """Fails each batch that contains a poisoned command."""

    def __init__(self, loop: VirtualLoop, error: Exception) -> None:
        super().__init__(loop, 0.01)
        self.error = error

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        replies = await super().send_batch(commands, until)
        if any(command[0] == "poison" for command in commands):
            raise self.error
        return replies


def results_with(loop: VirtualLoop, transport: SlowTransport, command: Any) -> list[Any]:
    """The results of fifty commands and one more in their middle, all sent concurrently."""

    async def ask() -> list[Any]:
        batcher, until = RequestBatcher(), loop.now + 5
        commands = [("GET", b"%d" % number) for number in range(50)]
        commands[25:25] = [command]
        requests = [batcher.exchange(transport, one, until) for one in commands]
        return await asyncio.gather(*requests, return_exceptions=True)

    return loop.run_until_complete(ask())


class Shards(SlowTransport):
    """A proxy that knows a script only where its text has been run: at one server per key."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop, 0.01)
        self.batches: list[int] = []

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        replies = await super().send_batch(commands, until)
        self.batches.append(len(commands))
        texts = [command for command in commands if command[0] == "EVAL"]
        for number, command in enumerate(commands):
            if command in texts[1:]:  # sent by its digest
                replies[number] = redis.exceptions.NoScriptError("No matching script.")
        return replies


def test_request_whose_text_another_server_has_run_is_sent_again_alone(loop: VirtualLoop) -> None:
    async def ask() -> list[Any]:
        batcher, until = RequestBatcher(), loop.now + 5
        requests = [batcher.exchange(transport, one, until) for one in [("PING",), *commands]]
        return await asyncio.gather(*requests)

    transport = Shards(loop)
    commands = [("EVAL", b"return 1", 1, b"key:%d" % number) for number in range(3)]

    assert loop.run_until_complete(ask()) == [("PING",), *commands]
    assert transport.batches == [1, 3, 1, 1]


@pytest.mark.parametrize(
    "error", [UnicodeDecodeError("utf-8", b"", 0, 1, "no text"), ValueError("x"), RecursionError()]
)
def test_command_that_fails_its_batch_fails_alone(loop: VirtualLoop, error: Exception) -> None:
    results = results_with(loop, FailingBatches(loop, error), ("poison",))

    assert type(results.pop(25)) is type(error)
    assert results == [("GET", b"%d" % number) for number in range(50)]


class Interrupted(SlowTransport):
    """An exception of a signal handler ends the first exchange of the sending task."""

    def __init__(self, loop: VirtualLoop, error: Exception) -> None:
        super().__init__(loop, 0.01)
        self.errors = [error]

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        if len(self.sent) and self.errors:
            raise self.errors.pop()
        return await super().send_batch(commands, until)


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("error", [LookupError(), client_errors.mark_unsent(LookupError())])
def test_exception_from_outside_in_an_exchange_fails_no_request(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch, size: int, error: Exception
) -> None:
    limit_batches(size, monkeypatch)
    transport = Interrupted(loop, error)

    results = results_with(loop, transport, ("GET", b"more"))

    assert results.pop(25) == ("GET", b"more")
    assert results == [("GET", b"%d" % number) for number in range(50)]
    assert transport.errors == []


def test_command_that_cannot_be_encoded_is_never_in_a_batch(loop: VirtualLoop) -> None:
    transport = SlowTransport(loop, 0.01)

    results = results_with(loop, transport, ("SET", b"k", "\ud800"))

    assert isinstance(results.pop(25), UnicodeEncodeError)
    assert results == transport.sent


def test_requests_that_fail_together_have_separate_errors(loop: VirtualLoop) -> None:
    refused = client_errors.mark_unsent(redis.exceptions.ConnectionError("refused"))

    results = results_with(loop, FailingBatches(loop, refused), ("poison",))[1:]

    assert len({id(error) for error in results}) == 50
    assert all(error.unsent for error in results)
    results[0].unsent = False
    assert all(error.unsent for error in results[1:])


class Short(SlowTransport):
    """A pipeline that returns one reply less than there were commands."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        return (await super().send_batch(commands, until))[:-1]


def test_batch_with_too_few_replies_leaves_no_request_waiting(loop: VirtualLoop) -> None:
    results = results_of(Short(loop, 0.01), 10, 5)

    assert [type(result) for result in results] == [TimeoutError] * 10
    assert loop.now < 1001


class Stepping(SlowTransport):
    """Sends and receives in several steps; a cancellation before the sending is marked unsent."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        try:
            await asyncio.sleep(0.01)
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            raise client_errors.mark_unsent(error)  # noqa: B904  # the same exception
        self.sent += commands
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        return list(commands)


def cancelled_at(
    turn: int, chosen: Any, monkeypatch: pytest.MonkeyPatch
) -> tuple[CancellingLoop, Stepping, list[Any]]:
    """The results of fifty-one requests while tasks are cancelled at one iteration of the loop.

    Sends one more request after them.
    """
    limit_batches(20, monkeypatch)
    loop = CancellingLoop(turn, chosen)
    use_clock(loop.time, monkeypatch)
    transport = Stepping(loop, 0.01)

    async def ask() -> list[Any]:
        batcher, until = RequestBatcher(), loop.now + 5

        async def one(number: int) -> Any:
            return await batcher.exchange(transport, (number,), until)

        tasks = [asyncio.create_task(one(number), name=str(number)) for number in range(51)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert await batcher.exchange(transport, ("after",), loop.now + 5) == ("after",)
        assert not batcher.is_busy
        return results

    results = loop.run_until_complete(ask())
    loop.close()
    assert loop.now < 1004, "a request waited for its timeout"
    return loop, transport, results


def test_cancelled_sending_task_leaves_no_request_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled before its first step, and at each of its awaits in turn."""
    cancelled = turn = 0
    while True:
        turn += 1
        loop, transport, results = cancelled_at(turn, of_the_package, monkeypatch)
        if loop.iteration < turn:
            break
        cancelled += loop.cancelled
        for number, result in enumerate(results):
            assert result == (number,) or (isinstance(result, TimeoutError) and loop.cancelled)
            # Only what was possibly sent is unknown; the batcher sends nothing twice on its own.
            assert transport.sent.count((number,)) == 1
        assert sum(isinstance(result, TimeoutError) for result in results) <= 20
    assert cancelled > 10


@pytest.mark.parametrize("victim", ["0", "1", "25", "50"])
def test_cancelled_caller_does_not_affect_the_others_of_its_batch(
    victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(tasks: Any) -> Any:
        return [task for task in tasks if task.get_name() == victim]

    turn = 0
    while True:
        turn += 1
        loop, _, results = cancelled_at(turn, chosen, monkeypatch)
        if loop.iteration < turn:
            break
        result = results.pop(int(victim))
        assert result == (int(victim),) or isinstance(result, asyncio.CancelledError)
        assert results == [(number,) for number in range(51) if number != int(victim)]
