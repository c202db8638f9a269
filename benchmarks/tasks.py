"""What asyncio locks cost, next to redis-py's own asyncio Lock in the same run.

    python benchmarks/tasks.py [--rounds 15]

One task alone: median microseconds per cycle of acquire and release. Two hundred tasks at
once, each with its own lock: cycles per second, and the connections that they opened
(redis-py's pool may open as many as it needs).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable

import redis
import redis.asyncio

from redis_lock_decorators import redis_lock
from redis_lock_decorators.asyncio import RedisLock
from redis_lock_decorators.testing import LocalServer

TASKS = 200
Cycle = Callable[[int], Awaitable[None]]


def ways(theirs: redis.asyncio.Redis, ours: redis.asyncio.Redis) -> dict[str, Cycle]:
    """One cycle of each kind of lock; the argument is the lock's number."""

    async def redis_py(number):
        async with theirs.lock(f"benchmark:{number}", timeout=10):
            pass

    async def each_time(number):
        async with RedisLock(f"benchmark:{number}", client=ours):
            pass

    @redis_lock("benchmark:{number}", client=ours)
    async def decorated(number):
        pass

    return {
        "redis-py: async with client.lock(…)": redis_py,
        "async with RedisLock(…)": each_time,
        "@redis_lock": decorated,
    }


async def alone(cycle: Cycle, cycles: int = 300) -> float:
    """Microseconds per cycle of one task."""
    started = time.perf_counter()
    for _ in range(cycles):
        await cycle(0)
    return (time.perf_counter() - started) / cycles * 1e6


async def together(cycle: Cycle, cycles: int = 10) -> float:
    """Cycles per second of many tasks."""

    async def work(number):
        for _ in range(cycles):
            await cycle(number)

    started = time.perf_counter()
    await asyncio.gather(*[work(number) for number in range(TASKS)])
    return TASKS * cycles / (time.perf_counter() - started)


async def measured(
    cycles_of: dict[str, Cycle], measure: Callable[[Cycle], Awaitable[float]], rounds: int
) -> dict[str, float]:
    """The median of each kind of lock; each round measures all, in shuffled order."""
    samples: dict[str, list[float]] = {name: [] for name in cycles_of}
    for _ in range(rounds):
        for name in random.sample(list(cycles_of), len(cycles_of)):
            samples[name].append(await measure(cycles_of[name]))
    return {name: statistics.median(values) for name, values in samples.items()}


async def run(server: LocalServer, rounds: int) -> None:
    theirs = redis.asyncio.Redis(port=server.port, max_connections=1000)
    ours = redis.asyncio.Redis(port=server.port, client_name="ours")
    watcher = server.client()
    cycles_of = ways(theirs, ours)
    base, *others = cycles_of
    single = await measured(cycles_of, alone, rounds)
    many = await measured(cycles_of, together, rounds)
    print(f"redis-py {redis.__version__}, loopback: one task, then {TASKS} tasks at once")
    for name in (base, *others):
        print(
            f"{name:36} {single[name]:7.1f} µs {single[name] / single[base]:5.2f}"
            f"   {many[name]:8.0f}/s {many[name] / many[base]:5.2f}"
        )
    connections = [one for one in watcher.client_list() if one["name"] == "ours"]
    print(f"connections for {TASKS} tasks: ours {len(connections)}")
    await theirs.aclose()
    await ours.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with LocalServer() as server:
        asyncio.run(run(server, options.rounds))


if __name__ == "__main__":
    main()
