"""A task continues though an exception comes while asyncio schedules it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.interruptions import Interrupted

from redis_lock_decorators._io.background.outcomes import settle
from redis_lock_decorators._io.background.timers import sleep
from redis_lock_decorators._io.background.wakeups import TaskWakeup
from redis_lock_decorators._io.transport.batch import Request


class InterruptionOfScheduling:
    """Raises once, before or after asyncio has scheduled what ``settle`` continues."""

    def __init__(self, event: str) -> None:
        self._event, self.happened = event, False

    def trace(self, frame: Any, event: str, argument: object) -> Any:
        caller = frame.f_back
        is_meant = frame.f_code.co_name == "call_soon" and caller is not None
        if self.happened or not is_meant or caller.f_code.co_name != "settle":
            return None
        if self._event == "call":
            self._raise()
        return self._line

    def _line(self, frame: Any, event: str, argument: object) -> Any:
        if event == self._event and not self.happened:
            self._raise()
        return self._line

    def _raise(self) -> None:
        self.happened = True
        raise Interrupted


async def by_timer() -> object:
    return await sleep(0.01)


async def by_signal() -> object:
    wakeup = TaskWakeup()
    asyncio.get_running_loop().call_soon(wakeup.notify, None)
    await wakeup.wait(60)
    return None


async def by_reply() -> object:
    reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    request = Request(("GET", "key"), reply, 0.0, 0.0)
    asyncio.get_running_loop().call_soon(request.set_reply, 1)
    assert await reply == 1
    return None


async def by_error() -> object:
    reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(settle, reply, KeyError())
    with pytest.raises(KeyError):
        await reply
    return None


@pytest.mark.parametrize("event", ["call", "return"])
@pytest.mark.parametrize("wait", [by_timer, by_signal, by_reply, by_error])
def test_waiting_task_continues(wait: Callable[[], Awaitable[object]], event: str) -> None:
    interruption, steps = InterruptionOfScheduling(event), []

    async def work() -> None:
        await wait()
        for number in range(5):  # nothing but what it awaits continues it
            steps.append(number)
            await asyncio.sleep(0)

    async def test() -> None:
        task = asyncio.ensure_future(work())
        sys.settrace(interruption.trace)
        try:
            await asyncio.wait([task], timeout=10)
        finally:
            sys.settrace(None)
        assert task.done()
        assert task.exception() is None

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # of the callback that was interrupted
    loop.run_until_complete(test())
    loop.close()

    assert interruption.happened
    assert steps == list(range(5))
