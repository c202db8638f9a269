"""A cancellation is raised though the client swallows it, as redis-py does before Python 3.12."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis
from support.virtual_loop import VirtualLoop

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from redis_lock_decorators._io.background.cancellable import _in_separate_task, nothing
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.asyncio_client import ClientTransport
from redis_lock_decorators._io.transport.subscriptions import find_nodes


class Swallowing:
    """A client whose methods swallow a cancellation, then return a reply or fail."""

    connection_pool = None

    def __init__(self, fails: bool) -> None:
        self.fails = fails

    async def execute_command(self, *command: Any, **options: Any) -> str:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            if self.fails:
                raise redis.ConnectionError("broken") from None
        return "reply"

    async def initialize(self) -> None:
        await self.execute_command()


async def send(client: Any) -> object:
    return await ClientTransport(client).send_batch([("GET", "a")], monotonic() + 60)


async def locate(client: Any) -> object:
    await find_nodes(client, monotonic() + 60)
    return None


Work = Callable[[Any], Awaitable[object]]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("work", [send, locate])
def test_cancellation_that_a_client_swallows_is_raised(work: Work, fails: bool) -> None:
    async def main() -> bool:
        task = asyncio.ensure_future(work(Swallowing(fails)))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    loop = VirtualLoop()
    assert loop.run_until_complete(main())
    loop.close()


def test_reply_of_a_client_is_returned_without_a_cancellation() -> None:
    loop = VirtualLoop()
    assert loop.run_until_complete(send(Swallowing(False))) == ["reply"]
    loop.close()


def test_separate_task_sends_nothing_after_its_caller_was_cancelled() -> None:
    """As before Python 3.11. The caller undoes then what was sent."""

    async def main() -> None:
        async def work() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            await asyncio.sleep(0)
            ended.append(caller.done())

        ended: list[bool] = []
        caller = asyncio.ensure_future(_in_separate_task(work(), nothing))
        for _ in range(3):
            await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert ended == [False]

    asyncio.run(main())
