"""What belongs to an event loop belongs to one process: a child may run on its parent's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.simulation import new_claim
from support.virtual_loop import VirtualLoop

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from redis_lock_decorators import LockNotOwnedError
from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.requests import ask
from redis_lock_decorators._io.background import loops, starting, supervised, timers
from redis_lock_decorators._io.background.loop_ends import at_end
from redis_lock_decorators._shared.settings import Settings


@pytest.fixture
def become_child(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Act as a forked child from now on."""
    return lambda: monkeypatch.setattr(fork, "process_id", -1)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Any:
    loop = VirtualLoop()
    for module in (timers, starting, supervised):
        monkeypatch.setattr(module, "monotonic", loop.time)
    yield loop
    loop.close()


def test_child_has_its_own_lease_loop_tasks_and_clients(
    loop: VirtualLoop, become_child: Callable[[], None]
) -> None:
    settings = Settings()

    async def found() -> list[object]:
        from redis.asyncio import Redis

        settings.get_async_redis_connection = Redis
        port = settings.async_port(None, None)
        shared = loops.caller_loop(), supervised.background_tasks(), port.client, port._batcher
        return [*shared]

    before = loop.run_until_complete(found())
    assert loop.run_until_complete(found()) == before
    become_child()
    after = loop.run_until_complete(found())

    assert all(new is not old for new, old in zip(after, before, strict=True))


def test_timers_and_calls_of_the_parent_do_nothing(
    loop: VirtualLoop, become_child: Callable[[], None]
) -> None:
    made: list[str] = []

    async def begin() -> Any:
        timer = timers.LoopTimer(lambda: made.append("timer"))
        timer.set(loop.time() + 1)
        return timer, loops.caller_loop()

    timer, lease_loop = loop.run_until_complete(begin())
    lease_loop.call(lambda: made.append("call"))
    become_child()
    loop.run_until_complete(asyncio.sleep(2))

    assert made == []
    del timer


def test_work_at_the_end_of_the_loop_is_the_parents(
    loop: VirtualLoop, become_child: Callable[[], None]
) -> None:
    made: list[str] = []

    async def work() -> None:
        made.append("work")

    async def begin() -> object:
        return at_end(work)

    hook = loop.run_until_complete(begin())
    become_child()
    loop.run_until_complete(loop.shutdown_asyncgens())

    assert made == []
    del hook


def test_no_request_is_sent_for_a_claim_of_the_parent(become_child: Callable[[], None]) -> None:
    claim = new_claim("a", expire=3)
    become_child()

    with pytest.raises(LockNotOwnedError, match="it is acquired by the parent process"):
        ask(None, "acquire", claim, claim.keys, until=1.0).send(None)  # type: ignore[arg-type]
