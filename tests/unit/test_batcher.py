"""Requests that wait behind others: what did not leave is told from what was not answered."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from support.batching import FILES, use_clock
from support.cancelling import CancellingLoop, of_the_package
from support.virtual_loop import VirtualLoop

from redis_lock_decorators import _lua
from redis_lock_decorators._flow.requests import NeverSent, persist
from redis_lock_decorators._flow.timeouts import Until
from redis_lock_decorators._io import client_errors
from redis_lock_decorators._io.background import alarm, supervised
from redis_lock_decorators._io.transport import batch_sender
from redis_lock_decorators._io.transport.batch import Exchange
from redis_lock_decorators._io.transport.batcher import RequestBatcher


class SlowTransport:
    """A server that answers one load after the other, or nobody."""

    may_resend = False

    def __init__(self, loop: VirtualLoop, seconds: float) -> None:
        self.loop, self.seconds = loop, seconds
        self.sent: list[Any] = []
        self.batcher: Any = None

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
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

    async def drop_idle_connections(self) -> None:
        pass


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    """The event loop, whose couriers take one request a load."""
    monkeypatch.setattr(batch_sender, "BATCH_SIZE", 1)
    loop = timed(VirtualLoop(), monkeypatch)
    yield loop
    loop.close()


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What a test has left on its event loops is found in no other test."""
    yield
    supervised._forget_closed()
    gc.collect()


def timed(loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The event loop, by whose clock couriers go."""
    use_clock(loop.time, monkeypatch)
    return loop


def asked(transport: SlowTransport, count: int, seconds: float) -> list[Any]:
    """What came of so many requests that are given so long."""

    async def ask() -> list[Any]:
        transport.batcher, until = RequestBatcher(), transport.loop.now + seconds
        requests = [
            transport.batcher.exchange(transport, (number,), until) for number in range(count)
        ]
        return await asyncio.gather(*requests, return_exceptions=True)

    return transport.loop.run_until_complete(ask())


def test_requests_that_did_not_leave_in_time_say_so_and_never_leave(loop: VirtualLoop) -> None:
    transport = SlowTransport(loop, 0.5)

    results = asked(transport, 40, 5)

    unsent = [number for number, result in enumerate(results) if isinstance(result, NeverSent)]
    assert unsent
    assert not {(number,) for number in unsent} & set(transport.sent)
    assert results[0] == (0,)


def test_requests_to_a_silent_server_are_not_said_to_be_unsent(loop: VirtualLoop) -> None:
    results = asked(SlowTransport(loop, 60), 10, 2.5)

    assert [type(result) for result in results] == [TimeoutError] * 10


def test_errors_are_made_only_for_those_who_are_not_told(loop: VirtualLoop) -> None:
    class Counting(SlowTransport):
        made = 0

        def no_reply(self) -> Exception:
            self.made += 1
            return super().no_reply()

    answering, silent = Counting(loop, 0.01), Counting(loop, 60)

    asked(answering, 40, 5)
    asked(silent, 40, 5)

    assert answering.made == 0
    assert silent.made > 0


class Connection:
    """What a trip that takes too long is ended by."""

    _writer = SimpleNamespace(transport=SimpleNamespace(abort=lambda: None))


class BlockedLoop(SlowTransport):
    """A server that answers at once, while something keeps the event loop from reading it."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        self.sent += commands
        trip = self.batcher.under_way = Exchange(Connection(), until)
        await asyncio.sleep(0)
        self.loop.now += 5
        await asyncio.sleep(0.001)
        if trip.is_ended:
            raise self.no_reply()
        return list(commands)


def test_blocked_event_loop_does_not_make_a_server_silent(loop: VirtualLoop) -> None:
    results = asked(BlockedLoop(loop, 0), 10, 2.5)

    assert results[0] == (0,)
    assert [type(result) for result in results[1:]] == [NeverSent] * 9


def test_backlog_is_served_in_its_order_while_the_server_answers(loop: VirtualLoop) -> None:
    transport, numbers = SlowTransport(loop, 0.5), range(60)

    async def ask() -> list[Any]:
        private_pool, until = RequestBatcher(), Until(loop.now + 5, loop.now + 3600)
        return await asyncio.gather(
            *[private_pool.exchange(transport, (n,), until) for n in numbers]
        )

    results = loop.run_until_complete(ask())

    assert transport.sent == results == [(n,) for n in numbers]


def test_what_was_begun_leaves_before_what_begins(loop: VirtualLoop) -> None:
    """A lease must not end because very many line up after its holder."""
    transport = SlowTransport(loop, 0.5)
    begin, again = ("EVALSHA", _lua.script("enqueue").sha), ("EVAL", _lua.script("enqueue").text)
    end = ("EVALSHA", _lua.script("release").sha)
    commands = [(*verb, number) for number in range(3) for verb in (begin, end, again)]

    async def ask() -> list[Any]:
        private_pool, until = RequestBatcher(), Until(loop.now + 5, loop.now + 3600)
        under_way = asyncio.ensure_future(private_pool.exchange(transport, ("PING",), until))
        await asyncio.sleep(0)
        asks = [private_pool.exchange(transport, command, until) for command in commands]
        return await asyncio.gather(under_way, *asks)

    loop.run_until_complete(ask())

    others = [command for command in commands if command[:2] != begin]
    assert transport.sent == [("PING",), *others, *[(*begin, number) for number in range(3)]]


class FailingOnce(SlowTransport):
    """Loses the reply to one request."""

    lost: Any = None

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        if self.lost in commands:
            self.sent, self.lost = self.sent + commands, None
            await asyncio.sleep(self.seconds)
            raise self.no_reply()
        return await super().send_batch(commands, until)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_request_that_is_repeated_is_overtaken_by_none_that_begins(
    loop: VirtualLoop, lost: int
) -> None:
    transport = FailingOnce(loop, 0.5)
    commands = [("EVALSHA", _lua.script("enqueue").sha, number) for number in range(4)]
    transport.lost = commands[lost]

    async def ask() -> None:
        transport.batcher = RequestBatcher()
        await asyncio.gather(*[persisted(transport, command) for command in commands])

    loop.run_until_complete(ask())

    assert transport.sent == [*commands[: lost + 1], *commands[lost:]]


def persisted(transport: SlowTransport, command: Any) -> Any:
    """Send a command again if no reply comes, as locks do."""

    def yes(error: Exception) -> bool:
        return True

    async def attempt(until: float) -> Any:
        return await transport.batcher.exchange(transport, command, until)

    answers = dict.fromkeys(("is_unknown", "is_outcome", "was_sent"), yes)
    now, chance = transport.loop.time, random.random
    port: Any = SimpleNamespace(now=now, random=chance, sleep=alarm.sleep, **answers)
    return persist(port, attempt, transport.loop.now + 3600)


def test_server_that_falls_silent_is_waited_for_as_long_as_one_that_was(loop: VirtualLoop) -> None:
    """However long those before it took; who would have waited for an hour for its turn too."""
    transport, ended = SlowTransport(loop, 0.5), {}

    async def ask(private_pool: RequestBatcher, number: int, end: float) -> None:
        try:
            await private_pool.exchange(transport, (number,), Until(1005, end))
        except (TimeoutError, NeverSent) as error:
            ended[number] = (loop.now, getattr(error, "unsent", False))

    async def all_ask() -> None:
        private_pool = RequestBatcher()
        loop.call_later(10.2, lambda: setattr(transport, "seconds", 60))
        await asyncio.gather(*[ask(private_pool, n, 4600 if n < 50 else 1011) for n in range(51)])

    loop.run_until_complete(all_ask())

    assert transport.sent[-1] == (21,)
    assert set(ended) == set(range(21, 51))
    assert all(unsent for number, (_, unsent) in ended.items() if number > 21)
    assert ended[50][0] == pytest.approx(1011, abs=1.5)
    assert [when for when, _ in ended.values()] == pytest.approx([1015.5] * 30, abs=6)
    assert max(when for when, _ in ended.values()) < 1017


class Poisoned(SlowTransport):
    """Fails the whole load that a poisoned command is in."""

    def __init__(self, loop: VirtualLoop, error: Exception) -> None:
        super().__init__(loop, 0.01)
        self.error = error

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        replies = await super().send_batch(commands, until)
        if any(command[0] == "poison" for command in commands):
            raise self.error
        return replies


def fifty_and_one(loop: VirtualLoop, transport: SlowTransport, command: Any) -> list[Any]:
    """What came of one command and of fifty others that travelled with it."""

    async def ask() -> list[Any]:
        private_pool, until = RequestBatcher(), loop.now + 5
        commands = [("GET", b"%d" % number) for number in range(50)]
        commands[25:25] = [command]
        requests = [private_pool.exchange(transport, one, until) for one in commands]
        return await asyncio.gather(*requests, return_exceptions=True)

    return loop.run_until_complete(ask())


@pytest.mark.parametrize(
    "error", [UnicodeDecodeError("utf-8", b"", 0, 1, "no text"), ValueError("x"), RecursionError()]
)
def test_command_that_fails_its_load_fails_alone(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(batch_sender, "BATCH_SIZE", 100)

    results = fifty_and_one(loop, Poisoned(loop, error), ("poison",))

    assert type(results.pop(25)) is type(error)
    assert results == [("GET", b"%d" % number) for number in range(50)]


class Surprised(SlowTransport):
    """Its first trip of the background is ended by what a signal handler raises."""

    def __init__(self, loop: VirtualLoop, error: Exception) -> None:
        super().__init__(loop, 0.01)
        self.errors = [error]

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        if len(self.sent) and self.errors:
            raise self.errors.pop()
        return await super().send_batch(commands, until)


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("error", [LookupError(), client_errors.unsent(LookupError())])
def test_exception_from_outside_that_ends_a_trip_fails_no_request(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch, size: int, error: Exception
) -> None:
    monkeypatch.setattr(batch_sender, "BATCH_SIZE", size)
    transport = Surprised(loop, error)

    results = fifty_and_one(loop, transport, ("GET", b"more"))

    assert results.pop(25) == ("GET", b"more")
    assert results == [("GET", b"%d" % number) for number in range(50)]
    assert transport.errors == []


def test_command_that_cannot_be_written_travels_with_no_other(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sender, "BATCH_SIZE", 100)
    transport = SlowTransport(loop, 0.01)

    results = fifty_and_one(loop, transport, ("SET", b"k", "\ud800"))

    assert isinstance(results.pop(25), UnicodeEncodeError)
    assert results == transport.sent


def test_requests_that_fail_together_have_errors_of_their_own(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sender, "BATCH_SIZE", 100)
    refused = client_errors.unsent(redis.exceptions.ConnectionError("refused"))

    results = fifty_and_one(loop, Poisoned(loop, refused), ("poison",))[1:]

    assert len({id(error) for error in results}) == 50
    assert all(error.unsent for error in results)
    results[0].unsent = False
    assert all(error.unsent for error in results[1:])


class Stepping(SlowTransport):
    """Sends, then waits for the reply in several steps; what is cut before that has not left."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        try:
            await asyncio.sleep(0.01)
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            raise client_errors.unsent(error)  # noqa: B904  # the same one
        self.sent += commands
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        return list(commands)


def cancelled_at(
    turn: int, chosen: Any, monkeypatch: pytest.MonkeyPatch
) -> tuple[CancellingLoop, Stepping, list[Any]]:
    """What came of fifty-one requests, and of one after them, if somebody cancels tasks."""
    monkeypatch.setattr(batch_sender, "BATCH_SIZE", 20)
    loop = timed(CancellingLoop(turn, chosen), monkeypatch)
    transport = Stepping(loop, 0.01)

    async def ask() -> list[Any]:
        private_pool, until = RequestBatcher(), loop.now + 5

        async def one(number: int) -> Any:
            return await private_pool.exchange(transport, (number,), until)

        tasks = [asyncio.create_task(one(number), name=str(number)) for number in range(51)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert await private_pool.exchange(transport, ("after",), loop.now + 5) == ("after",)
        assert not private_pool.is_busy
        return results

    results = loop.run_until_complete(ask())
    loop.close()
    assert loop.now < 1004, "somebody was left to his time-out"
    return loop, transport, results


def test_cancelling_what_carries_requests_leaves_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before its first step and at each of its awaits in turn."""
    cancelled = turn = 0
    while True:
        turn += 1
        loop, transport, results = cancelled_at(turn, of_the_package, monkeypatch)
        if loop.iteration < turn:
            break
        cancelled += loop.cancelled
        for number, result in enumerate(results):
            assert result == (number,) or (isinstance(result, TimeoutError) and loop.cancelled)
            # Only what may have left is not known; nothing is sent twice without its flow.
            assert transport.sent.count((number,)) == 1
        assert sum(isinstance(result, TimeoutError) for result in results) <= 20
    assert cancelled > 10


@pytest.mark.parametrize("victim", ["0", "1", "25", "50"])
def test_cancelled_caller_harms_none_of_those_it_travels_with(
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
        spared = results.pop(int(victim))
        assert spared == (int(victim),) or isinstance(spared, asyncio.CancelledError)
        assert results == [(number,) for number in range(51) if number != int(victim)]


def test_what_a_courier_does_keeps_no_callers_context(loop: VirtualLoop) -> None:
    request_of = ContextVar[str]("request_of")
    seen = []

    class Looking(SlowTransport):
        async def send_batch(self, commands: Any, until: float) -> list[Any]:
            seen.append(request_of.get(None))
            return await super().send_batch(commands, until)

    async def ask() -> None:
        request_of.set("a user's")
        private_pool, transport = RequestBatcher(), Looking(loop, 0.1)
        await asyncio.gather(
            *[private_pool.exchange(transport, (n,), loop.now + 5) for n in range(3)]
        )

    loop.run_until_complete(ask())

    assert seen == ["a user's", None, None]


class HalfOpen(SlowTransport):
    """The first connection brings no reply until it is closed; new ones do."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        first = not self.sent
        self.sent += commands
        if not first:
            await asyncio.sleep(0.01)
            return list(commands)
        closed = asyncio.Event()
        writer = self.writer(closed)
        self.batcher.under_way = Exchange(SimpleNamespace(_writer=writer), until)
        await closed.wait()
        self.batcher.under_way = None
        raise self.no_reply()

    def writer(self, closed: asyncio.Event) -> Any:
        return SimpleNamespace(transport=SimpleNamespace(abort=closed.set))


class Unheard(HalfOpen):
    """The event loop loses that the first connection was closed, until that is said again."""

    def writer(self, closed: asyncio.Event) -> Any:
        told = SimpleNamespace(connection_lost=lambda error: closed.set())
        transport = SimpleNamespace(abort=lambda: None, get_protocol=lambda: told)
        return SimpleNamespace(transport=transport)


def renewed_at(loop: VirtualLoop, transport: SlowTransport, count: int) -> float:
    """When a renewal with one second was served that came after requests with sixty."""

    async def ask() -> float:
        transport.batcher, until = RequestBatcher(), loop.now + 60
        numbers = range(count)
        others = [asyncio.ensure_future(ask_of(transport, (n,), until)) for n in numbers]
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


async def ask_of(transport: SlowTransport, command: Any, until: float) -> Any:
    return await transport.batcher.exchange(transport, command, until)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_renewal_ends_a_trip_that_brings_nothing_in_its_time(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Its own or that of a request that has far more time."""
    monkeypatch.setattr(batch_sender, "BATCH_SIZE", 100)

    assert renewed_at(loop, HalfOpen(loop, 0), count) == pytest.approx(1001, abs=0.2)


def test_trip_that_was_ended_and_is_not_over_is_ended_by_the_next_look(loop: VirtualLoop) -> None:
    assert renewed_at(loop, Unheard(loop, 0), 5) < 1002


class BusyLoop(VirtualLoop):
    """Each of its turns takes so long that every timer is late."""

    def _run_once(self) -> None:
        self.now += 0.3
        super()._run_once()  # type: ignore[misc]


def test_renewal_ends_such_a_trip_though_each_turn_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = timed(BusyLoop(), monkeypatch)

    assert renewed_at(loop, HalfOpen(loop, 0), 1) < 1005

    loop.close()


def test_load_is_waited_for_no_longer_than_its_renewal_has(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sender, "BATCH_SIZE", 100)
    ends = []

    class Noting(SlowTransport):
        async def send_batch(self, commands: Any, until: float) -> list[Any]:
            ends.append((len(commands), until - loop.now))
            return await super().send_batch(commands, until)

    renewed_at(loop, Noting(loop, 0.1), 5)

    assert ends == [(1, 60), (5, pytest.approx(1))]


def test_renewal_does_not_end_a_trip_of_a_server_that_answers_others(loop: VirtualLoop) -> None:
    transport = HalfOpen(loop, 0)
    transport.sent.append(("earlier",))

    async def slow(commands: Any, until: float) -> list[Any]:
        trip = transport.batcher.under_way = Exchange(Connection(), until)
        await asyncio.sleep(0.8)
        assert not trip.is_ended
        return list(commands)

    transport.send_batch = slow  # type: ignore[method-assign]

    assert renewed_at(loop, transport, 1) == pytest.approx(1001.6, abs=0.01)


class Short(SlowTransport):
    """Some pipeline that returns a reply less than there were commands."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        return (await super().send_batch(commands, until))[:-1]


def test_load_with_too_few_replies_leaves_nobody_waiting(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sender, "BATCH_SIZE", 100)

    results = asked(Short(loop, 0.01), 10, 5)

    assert [type(result) for result in results] == [TimeoutError] * 10
    assert loop.now < 1001


@pytest.mark.filterwarnings("ignore:coroutine .*(_send_pending|send_batch):RuntimeWarning")
def test_interrupt_at_any_line_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those who waited then nor who uses the event loop after it."""
    for line in itertools.count(1):
        loop, interrupt = timed(VirtualLoop(), monkeypatch), Interrupting(line)
        waiting = interrupted(loop, interrupt)
        loop.close()
        assert not waiting, interrupt.where
        if not interrupt.where:
            break
    assert line > 100


def interrupted(loop: VirtualLoop, interrupt: Interrupting) -> set[Any]:
    """The requests that wait for ever after an interrupt."""
    transport, private_pool = SlowTransport(loop, 0.1), loop.run_until_complete(new_batcher())

    async def ask(number: int) -> Any:
        return await private_pool.exchange(transport, (number,), loop.now + 5, first=number == 3)

    tasks = [loop.create_task(ask(number)) for number in range(5)]
    sys.settrace(interrupt.call)
    try:
        loop.run_until_complete(asyncio.wait(tasks))
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    after = [loop.create_task(ask(number)) for number in range(5, 8)]
    _, waiting = loop.run_until_complete(asyncio.wait([*tasks, *after], timeout=20))
    for task in {*tasks, *after} - waiting:
        assert isinstance(task.exception(), (type(None), TimeoutError, KeyboardInterrupt))
    assert all(task.exception() is None for task in {*after} - waiting)
    return waiting


async def new_batcher() -> RequestBatcher:
    return RequestBatcher()


class Interrupting:
    """Raises KeyboardInterrupt at the so-manieth line that the courier runs."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0
        self.where: Any = None

    def call(self, frame: Any, event: str, detail: Any) -> Any:
        return self.subscription if frame.f_code.co_filename in FILES else None

    def subscription(self, frame: Any, event: str, detail: Any) -> Any:
        if event == "line":
            self.count += 1
            if self.count == self.at:
                self.where = frame.f_code.co_name, frame.f_lineno
                raise KeyboardInterrupt
        return self.subscription


class InterruptingOne(Interrupting):
    """Raises it where the task does that made this."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.task = asyncio.current_task()

    def subscription(self, frame: Any, event: str, detail: Any) -> Any:
        if asyncio.current_task() is not self.task:
            return self.subscription
        return super().subscription(frame, event, detail)


class OneAtATime(SlowTransport):
    """Two exchanges at once would read each other's replies."""

    is_under_way = False

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        assert not self.is_under_way
        self.is_under_way = True
        try:
            return await super().send_batch(commands, until)
        finally:
            self.is_under_way = False


@pytest.mark.filterwarnings("ignore:coroutine .*(_send_pending|send_batch):RuntimeWarning")
@pytest.mark.parametrize("others", [0, 3], ids=["alone", "with others"])
def test_task_that_is_interrupted_and_goes_on_keeps_nobody_from_his_reply(
    loop: VirtualLoop, others: int
) -> None:
    """At each line of the courier's in turn."""

    async def ask(line: int) -> Interrupting:
        private_pool, transport, interrupt = (
            RequestBatcher(),
            OneAtATime(loop, 0.01),
            InterruptingOne(line),
        )
        until, numbers = loop.now + 60, range(others)
        neighbours = [
            asyncio.ensure_future(private_pool.exchange(transport, (number,), until))
            for number in numbers
        ]
        sys.settrace(interrupt.call)
        try:
            await private_pool.exchange(transport, ("cut",), until)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        began = loop.now
        first = private_pool.exchange(transport, ("first",), until, first=True)
        replies = await asyncio.gather(*neighbours, first)
        assert replies == [*[(number,) for number in numbers], ("first",)]
        assert await private_pool.exchange(transport, ("next",), until) == ("next",)
        assert loop.now - began < 1, interrupt.where
        return interrupt

    for line in itertools.count(1):
        if not loop.run_until_complete(ask(line)).where:
            break
    assert line > 10


class ForgetfulTransport(SlowTransport):
    """Its second load is awaited by a task that nobody wakes when the reply is there."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        if len(self.sent) == 1:
            self.sent += commands
            reply = self.loop.create_future()
            self.loop.call_later(0.01, _resolve_unheard, reply)
            await reply
        return await super().send_batch(commands, until)


def _resolve_unheard(reply: asyncio.Future[None]) -> None:
    """Have a future done, while what it is to wake is lost, as by a signal handler's exception."""
    task = asyncio.current_task()
    assert task is None
    for other in asyncio.all_tasks():
        if getattr(other, "_fut_waiter", None) is reply:
            reply.remove_done_callback(_wakeup_of(reply))
    reply.set_result(None)


def _wakeup_of(reply: asyncio.Future[None]) -> Any:
    ((callback, _),) = reply._callbacks  # type: ignore[attr-defined]
    return callback


def test_task_that_nobody_wakes_keeps_no_others_from_travelling(loop: VirtualLoop) -> None:
    transport = ForgetfulTransport(loop, 0.1)

    results = asked(transport, 4, 5)

    assert results == [(0,), (1,), (2,), (3,)]
    assert loop.now < 1002


class SlowTurns(SlowTransport):
    """A server that answers at once, on an event loop whose every turn takes long."""

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        self.sent += commands
        await asyncio.sleep(0)
        if len(self.sent) == 2:
            reply = self.loop.create_future()
            steps = map(self._begin_slowly, [None] * 7 + [reply])
            self.beginners = [asyncio.ensure_future(step) for step in steps]
            await reply
        return list(commands)

    async def _begin_slowly(self, reply: asyncio.Future[None] | None) -> None:
        self.loop.now += 1.5
        if reply is not None:  # it is read in the next turn, before what is due then
            self.loop.call_soon(reply.set_result, None)
        await self.batcher.exchange(self, ("late",), self.loop.now + 60)


def test_task_that_is_about_to_be_woken_is_not_given_up(loop: VirtualLoop) -> None:
    """However many looks are due by then."""
    results = asked(SlowTurns(loop, 0), 6, 60)

    assert results == [(number,) for number in range(6)]


def test_caller_that_nobody_wakes_keeps_no_others_from_travelling(loop: VirtualLoop) -> None:
    """He is lost to his program; what he had under way is given up."""
    transport = SlowTransport(loop, 0.1)

    async def ask() -> tuple[asyncio.Task[Any], list[Any]]:
        private_pool, until = RequestBatcher(), loop.now + 60
        lost = asyncio.create_task(ask_by(private_pool, ("lost",)))
        await asyncio.sleep(0)
        waiter: Any = lost._fut_waiter  # type: ignore[attr-defined]
        waiter.remove_done_callback(_wakeup_of(waiter))
        others = [private_pool.exchange(transport, (number,), until) for number in range(3)]
        return lost, await asyncio.gather(*others)

    async def ask_by(private_pool: RequestBatcher, command: Any) -> Any:
        return await private_pool.exchange(transport, command, loop.now + 60)

    lost, results = loop.run_until_complete(ask())

    assert results == [(0,), (1,), (2,)]
    assert loop.now < 1002
    lost._log_destroy_pending = False  # type: ignore[attr-defined]
