"""Code of an event loop that runs elsewhere, as finalizers do, leaves its timers alone.

The garbage collector may close a coroutine on any thread, also where another event loop runs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from support import batching
from support.simulation import new_claim
from support.virtual_loop import VirtualLoop

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._flow.renewal.schedule import MOST_REMOVED
from redis_lock_decorators._flow.renewal.tracked_lease import TrackedLease
from redis_lock_decorators._io.asyncio_port import AsyncioPort
from redis_lock_decorators._io.background import finishing, starting, supervised, timers, unreleased
from redis_lock_decorators._io.background.caller_loop import CallerLoop
from redis_lock_decorators._io.background.wakeups import TaskWakeup
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._io.transport.batcher import RequestBatcher
from redis_lock_decorators._rules.options import Options


class Answering:
    """A client and its transport; each request succeeds, after a moment."""

    may_resend = opens_connections = False
    connection_pool = execute_command = None

    async def send_batch(self, commands: Any, until: float) -> list[Any]:
        await asyncio.sleep(0.01)
        return [self._reply(*command) for command in commands]

    def _reply(self, verb: str, script: str, count: int, *details: Any) -> str:
        identifier, serial = details[count : count + 2]
        return f"{identifier}:{serial}"

    def no_reply(self) -> Exception:
        return redis.TimeoutError("no reply")

    def close(self) -> None:
        pass

    async def drop_idle_connections(self) -> None:
        pass


class Holder:
    """The holder of a renewed lease."""

    def __init__(self, port: AsyncioPort, name: str) -> None:
        self.claim = new_claim(name, expire=3)
        self.claim.mark_held(port.lease_loop.now())
        self.is_lost = False
        self.tracked = TrackedLease(self, type(self).lose, self.claim, port, Options(expire=3))
        self.ownership = self.tracked.ownership
        port.renewer.add(self.tracked)

    def lose(self) -> None:
        self.is_lost = True


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    monkeypatch.setattr(CallerLoop, "now", loop.time)
    for module in (timers, starting, supervised, finishing, *batching.MODULES):
        monkeypatch.setattr(module, "monotonic", loop.time)
    yield loop
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(1))
    loop.close()


async def new_port() -> AsyncioPort:
    client = Answering()
    return AsyncioPort(client, ClientState(client, RequestBatcher(), CallerLoop()), client)


async def call(function: Callable[[], object]) -> None:
    function()


def call_elsewhere(function: Callable[[], object]) -> None:
    """Call a function on another running event loop."""
    other = VirtualLoop()
    try:
        other.run_until_complete(call(function))
    finally:
        other.close()


@pytest.mark.parametrize("where", [call_elsewhere, lambda function: function()], ids=["loop", "no"])
def test_leases_are_renewed_after_a_removal_elsewhere(loop: VirtualLoop, where: Any) -> None:
    async def begin() -> list[Holder]:
        port = await new_port()
        holders = [Holder(port, f"x{number}") for number in range(MOST_REMOVED + 1)]
        await asyncio.sleep(1.1)
        assert all(holder.tracked.due > 0 for holder in holders)
        return holders

    live, *others = loop.run_until_complete(begin())
    renewer = live.tracked.port.renewer  # type: ignore[attr-defined]

    def remove() -> None:
        for holder in others:
            renewer.remove(holder.tracked)

    where(remove)
    loop.run_until_complete(asyncio.sleep(6))

    assert live.claim.is_live(loop.now)
    assert not live.is_lost


def test_function_called_from_elsewhere_runs_on_the_own_loop(loop: VirtualLoop) -> None:
    seen: list[object] = []

    async def begin() -> CallerLoop:
        return CallerLoop()

    lease_loop = loop.run_until_complete(begin())
    call_elsewhere(lambda: lease_loop.call(lambda: seen.append(asyncio.get_running_loop())))
    assert seen == []
    loop.run_until_complete(asyncio.sleep(0.1))

    assert seen == [loop]


def test_call_on_a_closed_loop_does_nothing() -> None:
    async def begin() -> CallerLoop:
        return CallerLoop()

    loop = VirtualLoop()
    lease_loop = loop.run_until_complete(begin())
    loop.close()

    lease_loop.call(lambda: pytest.fail("it was called"))
    call_elsewhere(lambda: lease_loop.call(lambda: pytest.fail("it was called")))


def test_release_without_stack_is_made_on_its_own_loop(loop: VirtualLoop) -> None:
    seen: list[object] = []

    async def release() -> None:
        seen.append(asyncio.get_running_loop())

    unreleased.unreleased.append((loop, release))
    call_elsewhere(lambda: unreleased.release_soon(loop))
    loop.run_until_complete(asyncio.sleep(0.1))

    assert seen == [loop]


def test_requests_are_sent_after_an_exchange_is_closed_elsewhere(loop: VirtualLoop) -> None:
    transport = Answering()

    async def begin() -> tuple[Any, Any]:
        batcher = RequestBatcher()
        first = batcher.exchange(transport, ("EVAL", "", 0, "a", 1), loop.now + 5)
        first.send(None)
        return first, batcher.queue(transport, ("EVAL", "", 0, "b", 2), loop.now + 5)

    first, reply = loop.run_until_complete(begin())
    call_elsewhere(first.close)

    assert loop.run_until_complete(asyncio.wait_for(reply, 5)) == "b:2"
    timer = loop.run_until_complete(_tasks())._timer
    assert {handle._loop for handle in timer._timers.handles} == {loop}  # type: ignore[attr-defined]


async def _tasks() -> supervised.BackgroundTasks:
    return supervised.background_tasks()


def test_wakeup_from_another_thread_uses_no_unsafe_call() -> None:
    """In debug mode, asyncio refuses calls on other threads that are not thread-safe."""
    failures: list[BaseException] = []
    wakeup = TaskWakeup()

    def notify() -> None:
        try:
            asyncio.run(call(lambda: wakeup.notify(Signal.RETRY)))
        except RuntimeError as error:
            failures.append(error)

    async def wait() -> Signal | None:
        thread = threading.Thread(target=notify)
        loop = asyncio.get_running_loop()
        loop.call_soon(thread.start)
        loop.call_soon(thread.join)
        return await wakeup.wait(60)

    assert asyncio.run(wait(), debug=True) is Signal.RETRY
    assert failures == []


def test_wakeup_of_a_closed_loop_does_nothing() -> None:
    wakeup, loop = TaskWakeup(), VirtualLoop()
    task = loop.create_task(wakeup.wait(60))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    wakeup.notify(Signal.RETRY)
    call_elsewhere(lambda: wakeup.notify(Signal.RETRY))

    task._log_destroy_pending = False  # type: ignore[attr-defined]
