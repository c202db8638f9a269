"""Work in the background comes to its end whichever wake-up of the event loop is lost."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis
from support import batching
from support.simulation import new_claim
from support.virtual_loop import VirtualLoop

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from redis_lock_decorators._flow.renewal.renewed_lease import TrackedLease
from redis_lock_decorators._io import asyncio_port
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.background import loops, supervised, timers
from redis_lock_decorators._io.background.wakeups import TaskWakeup
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators.asyncio._cancellation import BlockTask as TaskHolder
from redis_lock_decorators.asyncio._cancellation import running

#: Seconds of virtual time that a work gets, and it may take at most.
MOST, LONGEST = 30.0, 5.0


class LosingLoop(VirtualLoop):
    """Loses one of its calls, as if a signal handler raised an exception at its entry.

    Args:
        at: the number of the call; those do not count by which a test itself ends.
    """

    def __init__(self, at: int) -> None:
        super().__init__()
        self.calls, self.at, self.lost = 0, at, ""
        self.mine: set[object] = set()

    def is_lost(self, handle: Any) -> bool:
        """Whether the next call is lost."""
        if handle._callback in self.mine:
            return False
        self.calls += 1
        if self.calls != self.at:
            return False
        self.lost = repr(handle)
        return True


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], LosingLoop]]:
    """Makes event loops."""
    opened: list[LosingLoop] = []
    run = asyncio.Handle._run  # type: ignore[attr-defined]

    def run_or_lose(handle: Any) -> None:
        if not opened[-1].is_lost(handle):
            run(handle)

    def opens(at: int) -> LosingLoop:
        opened.append(loop := LosingLoop(at))
        for module in (timers, loops.CallerLoop, *batching.MODULES, asyncio_port, supervised):
            name = "now" if module is loops.CallerLoop else "monotonic"
            monkeypatch.setattr(module, name, loop.time)
        return loop

    monkeypatch.setattr(asyncio.Handle, "_run", run_or_lose)
    yield opens
    for loop in opened:
        loop.close()


def done_after(loop: LosingLoop, begin: Callable[[], object], is_done: Callable[[], bool]) -> float:
    """The seconds that it took until something was done that is begun on an event loop."""
    found: list[float] = []

    def look() -> None:
        if is_done():
            found.append(loop.now - 1000)
        if found or loop.now >= 1000 + MOST:
            loop.stop()
        else:
            loop.call_later(0.05, look)

    loop.mine |= {begin, look}
    loop.call_soon(begin)
    loop.call_soon(look)
    loop.run_forever()
    seconds = loop.now
    _leave_nothing(loop)
    loop.now = seconds
    return found[0] if found else MOST


def _leave_nothing(loop: LosingLoop) -> None:
    loop.at = 0
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(1))


async def steps(ends: list[str]) -> None:
    """Everything that a work may wait for."""
    await asyncio.sleep(0)
    await timers.sleep(0.1)
    over = asyncio.get_running_loop().create_future()
    loops.CallerLoop().call(lambda: over.done() or over.set_result(None))
    await over
    await supervised.together([part(ends), part(ends)])
    await asyncio_port.finish(lambda: part(ends))
    ends.append("end")


async def part(ends: list[str]) -> None:
    await asyncio.sleep(0)
    await timers.sleep(0.1)
    ends.append("part")


def test_work_is_done_whichever_call_of_the_event_loop_is_lost(losing: Any) -> None:
    for at in range(1, 1000):
        loop, ends, told = losing(at), list[str](), list[str]()

        def begin(ends: list[str] = ends, told: list[str] = told) -> None:
            supervised.start(steps(ends), lambda: told.append("told"))

        seconds = done_after(loop, begin, lambda told=told: bool(told))

        assert ends == ["part"] * 3 + ["end"], loop.lost
        assert seconds < LONGEST, loop.lost
        if not loop.lost:
            break
    assert 20 < at < 1000


def test_work_that_was_lost_is_cancelled_with_its_task(losing: Any) -> None:
    for at in range(1, 10):
        loop = losing(at)
        begun: list[asyncio.Future[object]] = []

        def begin(begun: list[asyncio.Future[object]] = begun, loop: Any = loop) -> None:
            begun.append(supervised.start(timers.sleep(60)))
            cancel = begun[0].cancel
            loop.call_later(5, cancel)
            loop.call_later(6, cancel)

        seconds = done_after(loop, begin, lambda begun=begun: begun[0].done())

        assert begun[0].cancelled(), loop.lost
        assert seconds < 5 + LONGEST


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a task does not count cancellations")
def test_work_that_was_lost_is_cancelled_as_often_as_its_task(losing: Any) -> None:
    async def stubborn(told: list[float]) -> None:
        for _ in range(3):
            with contextlib.suppress(asyncio.CancelledError):
                await timers.sleep(60)
            told.append(asyncio.get_running_loop().time() - 1000)

    for at in range(1, 20):
        loop, told = losing(at), list[float]()
        begun: list[asyncio.Future[object]] = []

        def begin(
            begun: list[asyncio.Future[object]] = begun,
            loop: Any = loop,
            told: list[float] = told,
        ) -> None:
            begun.append(supervised.start(stubborn(told)))
            cancel = begun[0].cancel
            loop.mine.add(cancel)
            for moment in (5, 10, 15):
                loop.call_later(moment, cancel)

        seconds = done_after(loop, begin, lambda begun=begun: begun[0].done())

        assert seconds < 15 + LONGEST, loop.lost
        assert [round(moment) // 5 for moment in told] == [1, 2, 3], loop.lost


def test_work_that_was_lost_goes_on_in_its_context(losing: Any) -> None:
    variable = contextvars.ContextVar("variable", default="")

    async def looking(seen: list[str]) -> None:
        await asyncio.sleep(0)
        await timers.sleep(0.1)
        seen.append(variable.get())

    def begin(seen: list[str]) -> None:
        variable.set("set where it was begun")
        supervised.start(looking(seen))

    for at in range(1, 10):
        loop, seen = losing(at), list[str]()

        done_after(loop, partial(begin, seen), lambda seen=seen: bool(seen))

        assert seen == ["set where it was begun"], loop.lost


def ended_at(losing: Any, work: Callable[[], Any], is_counted: Any = None) -> int:
    """Do a work once for each call of the event loop that may be lost; how many there are.

    The work is to end within seconds, whichever it is.
    """
    for at in range(1, 100):
        loop, done = losing(at), list[object]()
        if is_counted is not None:
            plain = loop.is_lost
            loop.is_lost = lambda handle, lost=plain: is_counted(handle) and lost(handle)

        async def worked(done: list[object] = done) -> None:
            done.append(await work())

        def begin(loop: Any = loop, worked: Any = worked) -> None:
            loop.works = [supervised.start(worked())]

        seconds = done_after(loop, begin, lambda done=done: bool(done))
        assert seconds < LONGEST, loop.lost
        if not loop.lost:
            return at
    raise AssertionError("it never ends")


def test_time_out_comes_whichever_call_of_the_event_loop_is_lost(losing: Any) -> None:
    async def limited() -> str:
        try:
            async with timeout(1):
                await asyncio.get_running_loop().create_future()
        except asyncio.TimeoutError:
            return "limited"
        return "not limited"

    assert ended_at(losing, limited) > 3


def test_task_stops_waiting_for_news_whichever_call_of_the_event_loop_is_lost(losing: Any) -> None:
    async def waited() -> str:
        assert await TaskWakeup().wait(1) is None
        return "nothing"

    assert ended_at(losing, waited) > 2


def test_task_whose_lease_is_lost_is_cancelled_whichever_call_is_lost(losing: Any) -> None:
    async def body(begun: list[Any]) -> None:
        begun.append(TaskHolder(running()))  # type: ignore[arg-type]
        await asyncio.get_running_loop().create_future()

    async def cut() -> bool:
        begun: list[Any] = []
        task = asyncio.ensure_future(body(begun))
        while not begun:
            await asyncio.sleep(0)
        begun[0].cancel()
        await supervised.over([task])
        return task.cancelled()

    def is_no_step(handle: Any) -> bool:
        return "Task" not in repr(handle._callback)

    assert ended_at(losing, cut, is_no_step) > 1


def test_exception_of_work_that_was_lost_is_that_of_its_task(losing: Any) -> None:
    async def failing() -> None:
        await asyncio.sleep(0)
        raise LookupError("gone")

    for at in range(1, 5):
        begun: list[Any] = []

        def begin(begun: list[Any] = begun) -> None:
            begun.append(supervised.start(failing()))

        done_after(losing(at), begin, lambda begun=begun: begun[0].done())

        assert isinstance(begun[0].exception(), LookupError)


class Renewing:
    """A client and the way to its server, which renews every lease."""

    may_resend = False
    connection_pool = execute_command = None

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        await timers.sleep(0.01)  # a connection that can be read stays so until it is
        return [self.reply(*command) for command in commands]

    def reply(self, verb: str, script: str, count: int, *details: Any) -> str:
        identifier, serial = details[count : count + 2]
        return f"{identifier}:{serial}"

    def no_reply(self) -> Exception:
        return redis.TimeoutError("no reply")

    def close(self) -> None:
        pass

    async def drop_idle_connections(self) -> None:
        pass


class BlockTask:
    """Who holds a lease."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop, self.told = loop, False
        self.claim = new_claim("a", expire=3)

    def begin(self) -> None:
        """Have it kept."""
        client, lease_loop = Renewing(self.loop), loops.CallerLoop()
        port = AsyncioPort(client, ClientState(client, RequestBatcher(), lease_loop), client)
        self.claim.mark_held(self.loop.now)
        self.watch = TrackedLease(self, type(self).notify, self.claim, port, Options(expire=3))
        lease_loop.renewer.add(self.watch)

    def notify(self) -> None:
        self.told = True


def test_lease_is_kept_whichever_call_of_the_event_loop_is_lost(losing: Any) -> None:
    for at in range(1, 1000):
        holder = BlockTask(loop := losing(at))
        done_after(loop, holder.begin, lambda: loop.now > 1012)

        assert holder.claim.is_live(loop.now), loop.lost
        assert not holder.told
        if not loop.lost:
            break
    assert 20 < at < 1000


class Polling:
    """An awaitable that lets others go first until a time, always at the same place.

    Attributes:
        tasks: those that have run its steps.
    """

    def __init__(self, loop: VirtualLoop, until: float) -> None:
        self.loop, self.until = loop, until
        self.tasks: set[object] = set()

    def __await__(self) -> Iterator[None]:
        while self.loop.now < self.until:
            self.tasks.add(asyncio.current_task())
            yield


class SlowSteps(VirtualLoop):
    """An event loop whose iterations take time, so that polling ends."""

    def _run_once(self) -> None:
        self.now += 0.01
        super()._run_once()  # type: ignore[misc]


def test_work_that_polls_is_run_by_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = SlowSteps()
    monkeypatch.setattr(supervised, "monotonic", loop.time)
    monkeypatch.setattr(timers, "monotonic", loop.time)
    polling = Polling(loop, loop.now + 3)

    async def work() -> None:
        await polling

    async def main() -> None:
        await supervised.over([supervised.start(work())])

    loop.run_until_complete(main())
    loop.close()

    assert len(polling.tasks) == 1
