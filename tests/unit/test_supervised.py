"""Background tasks end whichever callback of the event loop is lost."""

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

from redis_lock_decorators._flow.renewal.tracked_lease import TrackedLease
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.background import finishing, starting, supervised, timers
from redis_lock_decorators._io.background.caller_loop import CallerLoop
from redis_lock_decorators._io.background.wakeups import TaskWakeup
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.timeouts import timeout
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators.asyncio._cancellation import BlockTask as TaskHolder
from redis_lock_decorators.asyncio._cancellation import running

#: Seconds of virtual time after which a test gives up, and that a task may take at most.
MOST, LONGEST = 30.0, 5.0


class LosingLoop(VirtualLoop):
    """Loses one of its callbacks, as if a signal handler raised an exception at its entry.

    Args:
        at: the number of the callback, without the test's own.
    """

    def __init__(self, at: int) -> None:
        super().__init__()
        self.calls, self.at, self.lost = 0, at, ""
        self.mine: set[object] = set()

    def is_lost(self, handle: Any) -> bool:
        """Whether the next callback is lost."""
        if handle._callback in self.mine:
            return False
        self.calls += 1
        if self.calls != self.at:
            return False
        self.lost = repr(handle)
        return True


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], LosingLoop]]:
    """Create event loops."""
    opened: list[LosingLoop] = []
    run = asyncio.Handle._run  # type: ignore[attr-defined]

    def run_or_lose(handle: Any) -> None:
        loop = handle._loop
        # Loops that earlier tests left in other threads lose nothing.
        if loop not in opened or not loop.is_lost(handle):
            run(handle)

    def opens(at: int) -> LosingLoop:
        opened.append(loop := LosingLoop(at))
        for module in (timers, CallerLoop, *batching.MODULES, finishing, starting, supervised):
            name = "now" if module is CallerLoop else "monotonic"
            monkeypatch.setattr(module, name, loop.time)
        return loop

    monkeypatch.setattr(asyncio.Handle, "_run", run_or_lose)
    yield opens
    for loop in opened:
        loop.close()


def done_after(loop: LosingLoop, begin: Callable[[], object], is_done: Callable[[], bool]) -> float:
    """Call ``begin`` on an event loop; return the seconds until ``is_done()``."""
    found: list[float] = []

    def check() -> None:
        if is_done():
            found.append(loop.now - 1000)
        if found or loop.now >= 1000 + MOST:
            loop.stop()
        else:
            loop.call_later(0.05, check)

    loop.mine |= {begin, check}
    loop.call_soon(begin)
    loop.call_soon(check)
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
    """Wait for everything that a background task may wait for."""
    await asyncio.sleep(0)
    await timers.sleep(0.1)
    called = asyncio.get_running_loop().create_future()
    CallerLoop().call(lambda: called.done() or called.set_result(None))
    await called
    await starting.gather([part(ends), part(ends)])
    await finishing.finish(lambda: part(ends))
    ends.append("end")


async def part(ends: list[str]) -> None:
    await asyncio.sleep(0)
    await timers.sleep(0.1)
    ends.append("part")


def test_task_ends_whichever_callback_is_lost(losing: Any) -> None:
    for at in range(1, 1000):
        loop, ends, ended = losing(at), list[str](), list[str]()

        def begin(ends: list[str] = ends, ended: list[str] = ended) -> None:
            starting.start(steps(ends), lambda: ended.append("ended"))

        seconds = done_after(loop, begin, lambda ended=ended: bool(ended))

        assert ends == ["part"] * 3 + ["end"], loop.lost
        assert seconds < LONGEST, loop.lost
        if not loop.lost:
            break
    assert 20 < at < 1000


def test_resumed_task_can_be_cancelled(losing: Any) -> None:
    for at in range(1, 10):
        loop = losing(at)
        begun: list[asyncio.Future[object]] = []

        def begin(begun: list[asyncio.Future[object]] = begun, loop: Any = loop) -> None:
            begun.append(starting.start(timers.sleep(60)))
            cancel = begun[0].cancel
            loop.call_later(5, cancel)
            loop.call_later(6, cancel)

        seconds = done_after(loop, begin, lambda begun=begun: begun[0].done())

        assert begun[0].cancelled(), loop.lost
        assert seconds < 5 + LONGEST


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a task does not count cancellations")
def test_resumed_task_is_cancelled_as_often_as_the_original(losing: Any) -> None:
    async def stubborn(cancelled: list[float]) -> None:
        for _ in range(3):
            with contextlib.suppress(asyncio.CancelledError):
                await timers.sleep(60)
            cancelled.append(asyncio.get_running_loop().time() - 1000)

    for at in range(1, 20):
        loop, cancelled = losing(at), list[float]()
        begun: list[asyncio.Future[object]] = []

        def begin(
            begun: list[asyncio.Future[object]] = begun,
            loop: Any = loop,
            cancelled: list[float] = cancelled,
        ) -> None:
            begun.append(starting.start(stubborn(cancelled)))
            cancel = begun[0].cancel
            loop.mine.add(cancel)
            for moment in (5, 10, 15):
                loop.call_later(moment, cancel)

        seconds = done_after(loop, begin, lambda begun=begun: begun[0].done())

        assert seconds < 15 + LONGEST, loop.lost
        assert [round(moment) // 5 for moment in cancelled] == [1, 2, 3], loop.lost


def test_resumed_task_keeps_its_context(losing: Any) -> None:
    variable = contextvars.ContextVar("variable", default="")

    async def reading(seen: list[str]) -> None:
        await asyncio.sleep(0)
        await timers.sleep(0.1)
        seen.append(variable.get())

    def begin(seen: list[str]) -> None:
        variable.set("set by the caller")
        starting.start_in_context(reading(seen))

    for at in range(1, 10):
        loop, seen = losing(at), list[str]()

        done_after(loop, partial(begin, seen), lambda seen=seen: bool(seen))

        assert seen == ["set by the caller"], loop.lost


def ended_at(losing: Any, work: Callable[[], Any], is_counted: Any = None) -> int:
    """Run work once for each callback that can be lost; return how many there are.

    The work must end within seconds each time.
    """
    for at in range(1, 100):
        loop, done = losing(at), list[object]()
        if is_counted is not None:
            plain = loop.is_lost
            loop.is_lost = lambda handle, lost=plain: is_counted(handle) and lost(handle)

        async def worked(done: list[object] = done) -> None:
            done.append(await work())

        def begin(loop: Any = loop, worked: Any = worked) -> None:
            loop.works = [starting.start(worked())]

        seconds = done_after(loop, begin, lambda done=done: bool(done))
        assert seconds < LONGEST, loop.lost
        if not loop.lost:
            return at
    raise AssertionError("the work does not end")


def test_timeout_fires_whichever_callback_is_lost(losing: Any) -> None:
    async def limited() -> str:
        try:
            async with timeout(1):
                await asyncio.get_running_loop().create_future()
        except asyncio.TimeoutError:
            return "limited"
        return "not limited"

    assert ended_at(losing, limited) > 3


def test_wait_for_a_signal_ends_whichever_callback_is_lost(losing: Any) -> None:
    async def waited() -> str:
        assert await TaskWakeup().wait(1) is None
        return "nothing"

    assert ended_at(losing, waited) > 2


def test_lost_lease_cancels_its_task_whichever_callback_is_lost(losing: Any) -> None:
    async def body(begun: list[Any]) -> None:
        begun.append(TaskHolder(running()))  # type: ignore[arg-type]
        await asyncio.get_running_loop().create_future()

    async def cut() -> bool:
        begun: list[Any] = []
        task = asyncio.ensure_future(body(begun))
        while not begun:
            await asyncio.sleep(0)
        begun[0].cancel()
        await starting.wait_all([task])
        return task.cancelled()

    def is_no_step(handle: Any) -> bool:
        return "Task" not in repr(handle._callback)

    assert ended_at(losing, cut, is_no_step) > 1


def test_exception_of_a_resumed_task_is_raised_by_the_original(losing: Any) -> None:
    async def failing() -> None:
        await asyncio.sleep(0)
        raise LookupError("gone")

    for at in range(1, 5):
        begun: list[Any] = []

        def begin(begun: list[Any] = begun) -> None:
            begun.append(starting.start(failing()))

        done_after(losing(at), begin, lambda begun=begun: begun[0].done())

        assert isinstance(begun[0].exception(), LookupError)


class Renewing:
    """A client and its transport; each lease is renewed."""

    may_resend = opens_connections = False
    connection_pool = execute_command = None

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        await timers.sleep(0.01)  # a readable connection remains so until it is read
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
    """The holder of a lease."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop, self.is_lost = loop, False
        self.claim = new_claim("a", expire=3)

    def begin(self) -> None:
        """Start to renew it."""
        client, lease_loop = Renewing(self.loop), CallerLoop()
        port = AsyncioPort(client, ClientState(client, RequestBatcher(), lease_loop), client)
        self.claim.mark_held(self.loop.now)
        self.watch = TrackedLease(self, type(self).notify, self.claim, port, Options(expire=3))
        self.ownership = self.watch.ownership
        lease_loop.renewer.add(self.watch)

    def notify(self) -> None:
        self.is_lost = True


def test_lease_is_renewed_whichever_callback_is_lost(losing: Any) -> None:
    for at in range(1, 1000):
        holder = BlockTask(loop := losing(at))
        done_after(loop, holder.begin, lambda: loop.now > 1012)

        assert holder.claim.is_live(loop.now), loop.lost
        assert not holder.is_lost
        if not loop.lost:
            break
    assert 20 < at < 1000
