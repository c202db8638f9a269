"""Requests queued behind others: their order, and how unsent and unanswered ones end."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from support.batching import Connection, SlowTransport, limit_batches, results_of, use_clock
from support.virtual_loop import VirtualLoop

from redis_lock_decorators import _lua
from redis_lock_decorators._flow.requests import NeverSent
from redis_lock_decorators._flow.retries import with_repeats
from redis_lock_decorators._flow.timeouts import TimeLimits
from redis_lock_decorators._io.background import timers
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


def test_timed_out_queued_requests_are_reported_and_never_sent(
    loop: VirtualLoop,
) -> None:
    transport = SlowTransport(loop, 0.5)

    results = results_of(transport, 40, 5)

    unsent = [number for number, result in enumerate(results) if isinstance(result, NeverSent)]
    assert unsent
    assert not {(number,) for number in unsent} & set(transport.sent)
    assert results[0] == (0,)


def test_requests_to_a_silent_server_are_not_reported_as_never_sent(loop: VirtualLoop) -> None:
    results = results_of(SlowTransport(loop, 60), 10, 2.5)

    assert [type(result) for result in results] == [TimeoutError] * 10


@pytest.mark.parametrize("verb", ["release", "min_hold", "unlock", "cancel"])
def test_releases_are_sent_to_a_silent_server_though_their_time_is_over(
    loop: VirtualLoop, verb: str
) -> None:
    """The server may run what they end when it continues."""
    transport, plain, storing = (
        SlowTransport(loop, 60),
        _lua.script(verb),
        _lua.with_owner_info(verb),
    )
    releases = [("EVALSHA", plain.sha, 1), ("EVAL", storing.text, 1), ("EVAL", plain.text, 1)]

    async def test() -> None:
        batcher = RequestBatcher()
        limit = TimeLimits(loop.now + 0.25, loop.now + 30)
        requests = [
            batcher.exchange(transport, command, limit)
            for command in [("SET",), *releases, ("SET", "late")]
        ]
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(result) for result in results] == [TimeoutError] * 5

    loop.run_until_complete(test())

    assert transport.sent == [("SET",), *releases]


def test_releases_are_not_sent_to_a_silent_server_indefinitely(loop: VirtualLoop) -> None:
    transport, command = SlowTransport(loop, 60), ("EVALSHA", _lua.script("release").sha, 1)

    async def test() -> None:
        batcher, limit = RequestBatcher(), TimeLimits(loop.now + 0.25, loop.now + 30)
        requests = [batcher.exchange(transport, command, limit) for _ in range(20)]
        await asyncio.gather(*requests, return_exceptions=True)

    loop.run_until_complete(test())

    assert 3 <= len(transport.sent) <= 6


def test_request_of_a_batch_fails_at_its_own_time_though_others_wait_longer(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_batches(10, monkeypatch)
    transport, ended = SlowTransport(loop, 60), {}

    async def ask(batcher: RequestBatcher, seconds: float) -> None:
        with pytest.raises(TimeoutError):
            await batcher.exchange(transport, (seconds,), loop.now + seconds)
        ended[seconds] = loop.now - started

    async def all_ask() -> None:
        batcher = RequestBatcher()
        await asyncio.gather(*[ask(batcher, seconds) for seconds in (0.1, 0.7, 1.2, 4)])

    started = loop.now
    loop.run_until_complete(all_ask())

    assert ended == pytest.approx({0.1: 0.1, 0.7: 0.7, 1.2: 1.2, 4: 4}, abs=0.3)


def test_errors_are_created_only_for_unanswered_requests(loop: VirtualLoop) -> None:
    class Counting(SlowTransport):
        created = 0

        def no_reply(self) -> Exception:
            self.created += 1
            return super().no_reply()

    answering, silent = Counting(loop, 0.01), Counting(loop, 60)

    results_of(answering, 40, 5)
    results_of(silent, 40, 5)

    assert answering.created == 0
    assert silent.created > 0


class BlockedLoop(SlowTransport):
    """A server that answers immediately, while the event loop is blocked and cannot read it."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        self.sent += commands
        exchange = self.batcher.under_way = Exchange(Connection(), until)
        await asyncio.sleep(0)
        self.loop.now += 5
        await asyncio.sleep(0.001)
        if exchange.is_ended:
            raise self.no_reply()
        return list(commands)


def test_server_is_not_silent_while_the_event_loop_is_blocked(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_batches(10, monkeypatch)

    assert results_of(BlockedLoop(loop, 0), 10, 2.5) == [(number,) for number in range(10)]


class BrieflySilent(SlowTransport):
    """A server that answers the first batch after some seconds, and the others immediately."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        replies = await super().send_batch(commands, until)
        self.seconds = 0.001
        return replies


@pytest.mark.parametrize("silence", [0.6, 0.7, 0.8, 0.9, 0.99])
@pytest.mark.parametrize("offset", [0.01, 0.1, 0.2])
@pytest.mark.parametrize("seconds", [0.5, 0.6, 0.7, 0.8, 0.9, 1])
def test_requests_queued_behind_one_late_reply_are_sent(
    loop: VirtualLoop,
    monkeypatch: pytest.MonkeyPatch,
    silence: float,
    offset: float,
    seconds: float,
) -> None:
    """The reply that ends a silence was no request of others that was preferred."""
    limit_batches(100, monkeypatch)
    transport = BrieflySilent(loop, silence)

    async def ask() -> list[Any]:
        batcher = RequestBatcher()
        first = asyncio.ensure_future(batcher.exchange(transport, (0,), loop.now + 2.5))
        await asyncio.sleep(offset)
        others = [batcher.exchange(transport, (n,), loop.now + seconds) for n in range(1, 10)]
        return await asyncio.gather(first, *others, return_exceptions=True)

    results = loop.run_until_complete(ask())

    assert not [result for result in results if isinstance(result, NeverSent)]


def test_queue_is_served_in_order_while_the_server_answers(loop: VirtualLoop) -> None:
    transport, numbers = SlowTransport(loop, 0.5), range(60)

    async def ask() -> list[Any]:
        batcher, until = RequestBatcher(), TimeLimits(loop.now + 5, loop.now + 3600)
        return await asyncio.gather(*[batcher.exchange(transport, (n,), until) for n in numbers])

    results = loop.run_until_complete(ask())

    assert transport.sent == results == [(n,) for n in numbers]


def test_requests_that_start_an_acquisition_are_sent_last(loop: VirtualLoop) -> None:
    """A lease must not expire because many new requests are queued."""
    transport = SlowTransport(loop, 0.5)
    start, again = ("EVALSHA", _lua.script("enqueue").sha), ("EVAL", _lua.script("enqueue").text)
    end = ("EVALSHA", _lua.script("release").sha)
    commands = [(*verb, number) for number in range(3) for verb in (start, end, again)]

    async def ask() -> list[Any]:
        batcher, until = RequestBatcher(), TimeLimits(loop.now + 5, loop.now + 3600)
        under_way = asyncio.ensure_future(batcher.exchange(transport, ("PING",), until))
        await asyncio.sleep(0)
        requests = [batcher.exchange(transport, command, until) for command in commands]
        return await asyncio.gather(under_way, *requests)

    loop.run_until_complete(ask())

    others = [command for command in commands if command[:2] != start]
    assert transport.sent == [("PING",), *others, *[(*start, number) for number in range(3)]]


class LosingOneReply(SlowTransport):
    """Loses the reply to one request."""

    lost: Any = None

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        if self.lost in commands:
            self.sent, self.lost = self.sent + commands, None
            await asyncio.sleep(self.seconds)
            raise self.no_reply()
        return await super().send_batch(commands, until)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_repeated_request_is_sent_before_new_ones(loop: VirtualLoop, lost: int) -> None:
    transport = LosingOneReply(loop, 0.5)
    commands = [("EVALSHA", _lua.script("enqueue").sha, number) for number in range(4)]
    transport.lost = commands[lost]

    async def ask() -> None:
        transport.batcher = RequestBatcher()
        await asyncio.gather(*[persisted(transport, command) for command in commands])

    loop.run_until_complete(ask())

    assert transport.sent == [*commands[: lost + 1], *commands[lost:]]


class WithoutScripts(SlowTransport):
    """Knows a script once its text was run."""

    has_text = False

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        await asyncio.sleep(self.seconds)
        return [self.run(command) for command in commands]

    def run(self, command: Any) -> Any:
        self.has_text = self.has_text or command[0] == "EVAL"
        if command[0] == "EVALSHA" and not self.has_text:
            return redis.exceptions.NoScriptError("No matching script.")
        self.sent.append(command)
        return command


@pytest.mark.parametrize("before", range(6))
def test_starts_keep_their_order_if_the_text_of_their_script_is_unknown(
    loop: VirtualLoop, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if those of one batch are sent again in two."""
    limit_batches(4, monkeypatch)
    transport, script = WithoutScripts(loop, 0.01), _lua.script("enqueue")

    async def start(number: int) -> None:
        batcher, until = transport.batcher, loop.now + 5
        try:
            await batcher.request(transport, ("EVALSHA", script.sha, number), until)
        except redis.exceptions.NoScriptError:
            await batcher.request(transport, ("EVAL", script.text, number), until)

    async def ask() -> None:
        transport.batcher = RequestBatcher()
        others = [transport.batcher.exchange(transport, ("PING",), 5.0) for _ in range(before)]
        await asyncio.gather(*others, *map(start, range(16)))

    loop.run_until_complete(ask())

    numbers = [command[2] for command in transport.sent if command[0] != "PING"]
    assert numbers == sorted(numbers)
    assert len(numbers) == 16


class RefusingLookups(SlowTransport):
    """Answers each GET with an error."""

    error: Any = None

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        await super().send_batch(commands, until)
        return [self.error if command[0] == "GET" else command for command in commands]


@pytest.mark.parametrize(
    "error",
    [
        redis.exceptions.ResponseError("WRONGTYPE"),
        redis.exceptions.NoScriptError("No matching script."),
    ],
)
@pytest.mark.parametrize("others", [1, 3])
def test_requests_that_always_fail_keep_no_other_task_from_acquiring(
    loop: VirtualLoop, others: int, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_batches(others + 1, monkeypatch)
    transport = RefusingLookups(loop, 0.01)
    transport.error = error
    start = ("EVALSHA", _lua.script("enqueue").sha, 0)
    failing = True

    async def fail() -> None:
        while failing:
            with contextlib.suppress(redis.exceptions.ResponseError):
                await transport.batcher.request(transport, ("GET", b"k"), loop.now + 5)

    async def ask() -> None:
        nonlocal failing
        transport.batcher = RequestBatcher()
        works = [asyncio.ensure_future(fail()) for _ in range(others)]
        await asyncio.sleep(0.1)
        try:
            await transport.batcher.request(transport, start, loop.now + 1)
        finally:
            failing = False
            await asyncio.gather(*works)

    loop.run_until_complete(ask())

    assert start in transport.sent


def persisted(transport: SlowTransport, command: Any) -> Any:
    """Send a command again if no reply arrives, as locks do."""

    def yes(error: Exception) -> bool:
        return True

    async def attempt(until: float) -> Any:
        return await transport.batcher.exchange(transport, command, until)

    answers = dict.fromkeys(("is_unknown", "is_outcome", "was_sent"), yes)
    now, chance = transport.loop.time, random.random
    port: Any = SimpleNamespace(now=now, random=chance, sleep=timers.sleep, **answers)
    return with_repeats(port, attempt, transport.loop.now + 3600)


def test_time_limit_of_a_silent_server_does_not_depend_on_the_past(
    loop: VirtualLoop,
) -> None:
    """Earlier requests may have been slow, and a caller may be ready to queue for an hour."""
    transport, ended = SlowTransport(loop, 0.5), {}

    async def ask(batcher: RequestBatcher, number: int, end: float) -> None:
        try:
            await batcher.exchange(transport, (number,), TimeLimits(1005, end))
        except (TimeoutError, NeverSent) as error:
            ended[number] = (loop.now, getattr(error, "unsent", False))

    async def all_ask() -> None:
        batcher = RequestBatcher()
        loop.call_later(10.2, lambda: setattr(transport, "seconds", 60))
        await asyncio.gather(*[ask(batcher, n, 4600 if n < 50 else 1011) for n in range(51)])

    loop.run_until_complete(all_ask())

    assert transport.sent[-1] == (21,)
    assert set(ended) == set(range(21, 51))
    assert all(unsent for number, (_, unsent) in ended.items() if number > 21)
    assert ended[50][0] == pytest.approx(1011, abs=1.5)
    assert [when for when, _ in ended.values()] == pytest.approx([1015.5] * 30, abs=6)
    assert max(when for when, _ in ended.values()) < 1017


def test_sending_task_does_not_keep_a_callers_context(loop: VirtualLoop) -> None:
    request_of = ContextVar[str]("request_of")
    seen = []

    class Recording(SlowTransport):
        async def send_batch(self, commands: Any, until: float) -> list[Any]:
            seen.append(request_of.get(None))
            return await super().send_batch(commands, until)

    async def ask() -> None:
        request_of.set("a user's")
        batcher, transport = RequestBatcher(), Recording(loop, 0.1)
        await asyncio.gather(*[batcher.exchange(transport, (n,), loop.now + 5) for n in range(3)])

    loop.run_until_complete(ask())

    assert seen == ["a user's", None, None]
