"""Functions that tests run in other processes; importable, so that they can be spawned."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import redis

from redis_lock_decorators import LockLostError, RedisLock
from redis_lock_decorators import asyncio as async_locks
from support.fronts import FRONTS


def hold_until_killed(port: int, name: str, inside: Any, expire: float = 0.5) -> None:
    with RedisLock(name, client=redis.Redis(port=port), expire=expire):
        inside.set()
        time.sleep(60)


def count_up(port: int, name: str, times: int) -> None:
    client = redis.Redis(port=port)
    for _ in range(times):
        with RedisLock(name, client=client, acquire_time=60, delta=0.002):
            seen = int(client.get(f"count:{name}") or 0)
            client.set(f"count:{name}", seen + 1)


def enter_once(orders: Any) -> None:
    """Enter the lock that is received, and send the monotonic time of entry."""
    orders.send("ready")
    port, name = orders.recv()
    client = redis.Redis(port=port)
    orders.send("waits")
    with RedisLock(name, client=client, acquire_time=60, expire=2, delta=0.01):
        orders.send(time.monotonic())
    orders.recv()


def wait_with_child(port: int, name: str, is_async: bool, child: Any) -> None:
    """Wait for a lock, and fork a child that outlives this process; send its process ID."""
    client = redis.Redis(port=port)
    known = set(client.pubsub_channels())

    async def wait_in_task() -> None:
        import redis.asyncio

        own = redis.asyncio.Redis(port=port)
        await async_locks.RedisLock(name, client=own, acquire_time=60).acquire()

    def wait() -> None:
        if is_async:
            asyncio.run(wait_in_task())
        RedisLock(name, client=client, acquire_time=60).acquire()

    threading.Thread(target=wait, daemon=True).start()
    while not set(client.pubsub_channels()) - known:
        time.sleep(0.01)
    pid = os.fork()
    if pid:
        child.send(pid)
    time.sleep(60)
    os._exit(0)


class Rival:
    """Another process that waits for a lock which a test holds."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._orders, theirs = context.Pipe()
        self._process = context.Process(target=enter_once, args=(theirs,), daemon=True)
        self._process.start()
        self._receive()

    def wants(self, place: Any, name: str) -> None:
        """Start to wait for a lock; returns once it waits."""
        self._orders.send((place.port, name))
        self._receive()

    def entered(self) -> float:
        """When it entered, in monotonic seconds, which processes of a machine share."""
        when: float = self._receive()
        return when

    def stop(self) -> None:
        """Stop the process (SIGSTOP)."""
        os.kill(self._process.pid or 0, signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue the process."""
        os.kill(self._process.pid or 0, signal.SIGCONT)

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()

    def _receive(self) -> Any:
        assert self._orders.poll(60), "the other process does not answer"
        return self._orders.recv()


class Holding:
    """Another process that holds a lock until it is killed, at the latest when the block ends."""

    def __init__(self, port: int, name: str, expire: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._inside = context.Event()
        arguments = (port, name, self._inside, expire)
        self._process = context.Process(target=hold_until_killed, args=arguments, daemon=True)

    def __enter__(self) -> Holding:
        self._process.start()
        assert self._inside.wait(60), "the other process does not enter"
        return self

    def __exit__(self, *failure: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()


def hold_until_lost(port: int, name: str, expire: float, world: str, signal: Any) -> None:
    """Hold a lock until it is lost; send its first deadline, then how the loss was reported."""
    front = next(front for front in FRONTS if front.name == world)
    front.run(_hold_until_lost(front, port, name, expire, signal))


async def _hold_until_lost(front: Any, port: int, name: str, expire: float, signal: Any) -> None:
    place, losses, at_edge = SimpleNamespace(host="127.0.0.1", port=port), [], None
    lock = front.package.RedisLock(
        name, client=front.client(place), expire=expire, on_lost=lambda _, why: losses.append(why)
    )
    try:
        async with front.held(lock) as lease:
            signal.send(lease.deadline)
            while not lease.lost:
                await front.sleep(0.002)
    except LockLostError as error:
        at_edge = error
    try:
        lease.check()
    except LockLostError as error:
        checked = error
    while not losses:
        await front.sleep(0.002)
    await front.sleep(0.1)  # a second call would have arrived by now
    signal.send((lease.deadline, type(at_edge).__name__, type(checked).__name__, losses))


def in_child(work: Callable[[], object]) -> str:
    """What ``work()`` returns in a forked child, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(work()).encode())
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as replies:
        text = replies.read().decode()
    os.waitpid(child, 0)
    return text


def take_turns(port: int, name: str, times: int, world: str, signal: Any) -> None:
    """Enter a lock by waiters of a cohort, ``times`` times once two processes do; send results."""
    front = next(front for front in FRONTS if front.name == world)
    front.run(_take_turns(front, port, name, times, signal))


async def _take_turns(front: Any, port: int, name: str, times: int, signal: Any) -> None:
    place, looking = SimpleNamespace(host="127.0.0.1", port=port), redis.Redis(port=port)
    lock = front.package.RedisLock(
        name, client=front.client(place), acquire_time=60, wait="cohort", expire=5
    )
    met: list[int] = []
    turns: list[float] = []

    async def enter() -> None:
        done = 0
        while done < times:
            async with front.held(lock):
                met.append(looking.incr(f"inside:{name}"))
                turns.append(time.monotonic())
                looking.sadd(f"came:{name}", os.getpid())
                done += looking.scard(f"came:{name}") == 2
                await front.sleep(0.001)
                looking.decr(f"inside:{name}")

    signal.send("ready")
    signal.recv()
    results = await front.elsewhere(*[enter] * 4)
    looking.close()
    signal.send((max(met), turns, [repr(error) for error in results if error is not None]))
