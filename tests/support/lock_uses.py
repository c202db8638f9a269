"""Uses of a lock that are played with each configuration of a client."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import redis

import redis_lock_decorators.asyncio.lock
import redis_lock_decorators.lock
from redis_lock_decorators import LockLostError, LockTimeoutError
from support.fronts import do
from support.leftovers import until

WAITS = ("queue", "cohort", "poll")
METHODS = ("script", "transaction", "native")
#: Seconds that a waiter waits for a lock that it must acquire.
LONG = 30.0
#: A value that is no text in any encoding of the table but Latin-1.
EXTERNAL = b"\xff\xfe\x80"


@dataclass
class Scene:
    """A use of a lock with one configuration and one ``wait`` strategy.

    Attributes:
        client, other: two clients of the same configuration.
        server: a plain client of the same database.
    """

    front: Any
    client: Any
    other: Any
    server: Any
    name: str
    wait: str

    def lock(self, client: Any = None, **options: Any) -> Any:
        kind = self.front.package.RedisLock
        options = {"wait": self.wait, "acquire_time": LONG, "expire": LONG, **options}
        return kind(self.name, client=client or self.client, **options)

    @property
    def key(self) -> bytes:
        return f"sys:lock:{self.name}".encode()


async def alone(scene: Scene) -> None:
    """A holder excludes others; after its release the key is gone."""
    async with scene.front.held(scene.lock()) as lease:
        assert scene.server.get(scene.key) == lease.identifier.encode()
        assert await do(lease.extend(2 * LONG)) is True
        assert await do(lease.owned()) is True
        assert await do(scene.lock().owner()) == lease.identifier

        async def compete() -> None:
            other = scene.lock(scene.other)
            assert await tried(lambda: other.acquire(blocking=False)) is None
            with pytest.raises(LockTimeoutError):
                async with scene.front.held(scene.lock(scene.other, acquire_time=0.3)):
                    pass

        await together(scene, compete)
    assert not scene.server.exists(scene.key)


async def wanted_by_many(scene: Scene) -> None:
    """Waiters of two clients enter one at a time, the first after an external holder."""
    inside, entered = [], []
    scene.server.set(scene.key, EXTERNAL, px=100)

    def waiter(client: Any) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            async with scene.front.held(scene.lock(client)):
                inside.append(1)
                await scene.front.sleep(0.01)
                assert len(inside) == 1
                entered.append(inside.pop())

        return work

    await together(scene, *[waiter(client) for client in (scene.client, scene.other) * 3])
    assert len(entered) == 6


async def renewed(scene: Scene) -> None:
    """A block lasts longer than its first lease; the key keeps its identifier."""
    async with scene.front.held(scene.lock(expire=3)) as lease:
        for _ in range(14):
            await scene.front.sleep(0.25)
            assert scene.server.get(scene.key) == lease.identifier.encode()
        lease.check()


async def lost(scene: Scene) -> None:
    """The key is deleted: the holder is notified in the block and at its exit."""
    losses: list[Any] = []
    with pytest.raises(LockLostError):
        async with scene.front.held(
            scene.lock(expire=3, on_lost=lambda lease, why: losses.append(why))
        ):
            scene.server.delete(scene.key)
            await until(scene.front, lambda: losses, lambda: "the loss was not reported")
    await until(scene.front, lambda: losses, lambda: "the loss was not reported")


async def by_functions(scene: Scene) -> None:
    """The three functions, and each release method."""
    package, client = scene.front.package, scene.client
    for method in METHODS:
        name = f"{scene.name}:{method}"
        identifier = await do(package.acquire_lock(client, name, 5, LONG))
        assert identifier
        assert await do(package.acquire_lock(client, name, 0)) is False
        assert await do(package.extend_lock(client, name, identifier, LONG)) is True
        assert await do(package.release_lock(client, name, "no", method=method)) is False
        assert await do(package.release_lock(client, name, identifier, method=method)) is True
        assert not scene.server.exists(f"sys:lock:{name}")


async def by_every_method(scene: Scene) -> None:
    """A lock that is handed off with each release method."""
    for method in METHODS:
        scene.name += method

        async def one(client: Any = None, method: str = method) -> None:
            async with scene.front.held(scene.lock(client, release_method=method)):
                await scene.front.sleep(0.01)

        await together(scene, one, lambda one=one: one(scene.other), one)


async def in_place_of_redis_py(scene: Scene) -> None:
    """redis-py's own ``lock``, with our class."""
    package = redis_lock_decorators
    is_blocking = scene.front.name == "blocking"
    kind = (package.lock if is_blocking else package.asyncio.lock).Lock
    key = await _as_sent(scene.other, scene.server, scene.name)
    scene.server.set(key, EXTERNAL)
    lock = scene.client.lock(scene.name, timeout=LONG, lock_class=kind)

    assert await tried(lambda: lock.acquire(blocking=False)) is False
    scene.server.pexpire(key, 100)
    assert await do(lock.acquire(blocking_timeout=LONG))
    assert await do(lock.owned())
    assert await do(lock.extend(5))
    assert await do(lock.locked())
    await do(lock.release())

    assert not scene.server.exists(key)


async def tried(attempt: Callable[[], Any]) -> Any:
    """Return the result of one try; retry if a busy machine has used up the connection timeout."""
    end = time.monotonic() + LONG
    while True:
        try:
            return await do(attempt())
        except redis.TimeoutError:
            if time.monotonic() > end:
                raise


async def _as_sent(client: Any, server: Any, name: str) -> bytes:
    """The key that redis-py sends for a name, so that its own locks and ours exclude each other.

    hiredis writes UTF-8 regardless of the client's ``encoding``.
    """
    for key in (name.encode(), client.get_encoder().encode(name)):
        server.set(key, "x")
        exists = await do(client.exists(name))
        server.delete(key)
        if exists:
            return key
    raise AssertionError("the client uses another key")


async def together(scene: Scene, *works: Callable[[], Awaitable[Any]]) -> None:
    """Run works concurrently and raise the first error."""
    for result in await scene.front.elsewhere(*works):
        if isinstance(result, BaseException):
            raise result


#: The scenes for each ``wait`` strategy, and those that are run once.
FOR_EACH_WAIT = (alone, wanted_by_many, lost)
ONCE = (by_functions, by_every_method, in_place_of_redis_py)
