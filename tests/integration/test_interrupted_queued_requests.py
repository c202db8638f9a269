"""An exception in a task whose request waits for that of another: no key is left, no loss told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import pytest
from support.interruptions import Interrupted, Interruption, interrupt_every_line

from redis_lock_decorators import asyncio as tasks
from redis_lock_decorators import redis_lock

aioredis = pytest.importorskip("redis.asyncio")

#: The interrupted line may be one at which a coroutine was made and is not awaited.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")

Use = Callable[[Any, str, Interruption], Awaitable[None]]

#: The names of locks whose ``on_lost`` was called.
losses: list[str] = []


class InterruptionOfTask(Interruption):
    """Raises at the n-th line of the package that the current task runs."""

    def __enter__(self) -> Interruption:
        self._task = asyncio.current_task()
        return super().__enter__()

    def _line(self, frame: Any, event: str, argument: object) -> Any:
        if asyncio.current_task() is not self._task:
            return self._line
        return super()._line(frame, event, argument)


async def block(client: Any, name: str, interruption: Interruption) -> None:
    with interruption:
        async with tasks.RedisLock(name, client=client):
            pass


async def several(client: Any, name: str, interruption: Interruption) -> None:
    with interruption:
        async with tasks.RedisLock([name, f"{name}:other"], client=client):
            pass


async def fenced(client: Any, name: str, interruption: Interruption) -> None:
    with interruption:
        async with tasks.RedisLock(name, client=client, fencing=True):
            pass


async def queue(client: Any, name: str, interruption: Interruption) -> None:
    with interruption:
        async with tasks.RedisLock(name, client=client, wait="queue"):
            pass


async def function(client: Any, name: str, interruption: Interruption) -> None:
    with interruption:
        identifier = await tasks.acquire_lock(client, name)
    await tasks.release_lock(client, name, identifier)


async def decorated(client: Any, name: str, interruption: Interruption) -> None:
    @redis_lock(name, client=client)
    async def work() -> None:
        """Nothing."""

    with interruption:
        await work()


async def release(client: Any, name: str, interruption: Interruption) -> None:
    lock = tasks.RedisLock(name, client=client, on_lost=lambda *_: losses.append(name))
    with ExitStack() as stack:
        async with lock:
            other = asyncio.create_task(once(client, name))
            await asyncio.sleep(0)
            stack.enter_context(interruption)
    await other


async def once(client: Any, name: str) -> None:
    async with tasks.RedisLock(f"{name}:once", client=client):
        pass


async def others(client: Any, name: str, ended: asyncio.Event) -> None:
    """Keep an exchange under way."""
    while not ended.is_set():
        async with tasks.RedisLock(f"{name}:of-others", client=client):
            pass


async def use_beside_others(
    server: Any, name: str, use: Use, interruption: Interruption
) -> type[BaseException] | None:
    """Use a lock with an interruption; the class of the exception that it has raised."""
    async with aioredis.Redis.from_url(server.url) as client:
        async with tasks.RedisLock(f"{name}:first", client=client):
            pass
        ended = asyncio.Event()
        other = asyncio.create_task(others(client, name, ended))
        outcome = await asyncio.create_task(outcome_of(use(client, name, interruption)))
        ended.set()
        await other
        return outcome


async def outcome_of(work: Awaitable[None]) -> type[BaseException] | None:
    # The event loop would end with an exception that no task catches.
    try:
        await work
    except Interrupted as error:
        return type(error)
    return None


@pytest.mark.parametrize(
    "use",
    [
        *(block, queue, function, release),
        *(pytest.param(use, marks=pytest.mark.slow) for use in (several, fenced, decorated)),
    ],
)
def test_interrupted_request_beside_others_leaves_no_key_and_reports_no_loss(
    server: Any, direct: Any, name: str, use: Use
) -> None:
    losses.clear()

    def work(interruption: Interruption) -> None:
        of_task = InterruptionOfTask(interruption.left)
        outcome = asyncio.run(use_beside_others(server, name, use, of_task))
        interruption.left, interruption.location = of_task.left, of_task.location
        held = direct.exists(f"sys:lock:{name}", f"sys:lock:{name}:other")
        assert not held, of_task.location
        assert not losses, of_task.location
        if outcome is not None:
            raise outcome

    assert interrupt_every_line(work) > 50
