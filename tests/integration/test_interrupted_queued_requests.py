"""An exception in a task whose request waits for that of another task leaves no lock behind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.interruptions import Interrupted, Interruption, interrupt_every_line

from redis_lock_decorators import asyncio as tasks
from redis_lock_decorators import redis_lock

aioredis = pytest.importorskip("redis.asyncio")

#: The interrupted line may be one at which a coroutine was made and is not awaited.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")

Acquire = Callable[[Any, str], Awaitable[None]]


class InterruptionOfTask(Interruption):
    """Raises at the n-th line of the package that the current task runs."""

    def __enter__(self) -> Interruption:
        self._task = asyncio.current_task()
        return super().__enter__()

    def _line(self, frame: Any, event: str, argument: object) -> Any:
        if asyncio.current_task() is not self._task:
            return self._line
        return super()._line(frame, event, argument)


async def block(client: Any, name: str) -> None:
    async with tasks.RedisLock(name, client=client):
        pass


async def several(client: Any, name: str) -> None:
    async with tasks.RedisLock([name, f"{name}:other"], client=client):
        pass


async def fenced(client: Any, name: str) -> None:
    async with tasks.RedisLock(name, client=client, fencing=True):
        pass


async def queue(client: Any, name: str) -> None:
    async with tasks.RedisLock(name, client=client, wait="queue"):
        pass


async def function(client: Any, name: str) -> None:
    identifier = await tasks.acquire_lock(client, name)
    sys.settrace(None)  # by hand, a release that is interrupted is the program's to repeat
    await tasks.release_lock(client, name, identifier)


async def decorated(client: Any, name: str) -> None:
    @redis_lock(name, client=client)
    async def work() -> None:
        """Nothing."""

    await work()


async def others(client: Any, name: str) -> None:
    """Keep an exchange under way."""
    for number in range(3):
        async with tasks.RedisLock(f"{name}:{number}:of-others", client=client):
            pass


async def acquire_beside_others(
    server: Any, name: str, acquire: Acquire, interruption: Interruption
) -> type[BaseException] | None:
    """Acquire with an interruption; the class of the exception that it has raised."""
    async with aioredis.Redis.from_url(server.url) as client:
        await block(client, f"{name}:first")
        work = [asyncio.create_task(others(client, f"{name}:{number}")) for number in range(3)]
        await asyncio.sleep(0)
        outcome = await asyncio.create_task(interrupted(client, name, acquire, interruption))
        await asyncio.gather(*work)
        return outcome


async def interrupted(
    client: Any, name: str, acquire: Acquire, interruption: Interruption
) -> type[BaseException] | None:
    # The event loop would end with an exception that no task catches.
    try:
        with interruption:
            await acquire(client, name)
    except Interrupted as error:
        return type(error)
    return None


@pytest.mark.parametrize("acquire", [block, several, fenced, queue, function, decorated])
def test_interrupted_acquisition_beside_others_leaves_no_key(
    server: Any, direct: Any, name: str, acquire: Acquire
) -> None:
    def work(interruption: Interruption) -> None:
        of_task = InterruptionOfTask(interruption.left)
        outcome = asyncio.run(acquire_beside_others(server, name, acquire, of_task))
        interruption.left, interruption.location = of_task.left, of_task.location
        held = direct.exists(f"sys:lock:{name}", f"sys:lock:{name}:other")
        assert not held, of_task.location
        if outcome is not None:
            raise outcome

    assert interrupt_every_line(work) > 50
