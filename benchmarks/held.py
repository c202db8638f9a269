"""What renewal of held locks costs, next to python-redis-lock in the same run.

    pip install python-redis-lock
    python benchmarks/held.py [--locks 500] [--seconds 4] [--many 10000]

Each package holds its locks in a new process for the given time, with an ``expire`` of 3 s;
then this package alone holds ``--many`` locks. The columns:

held        locks that are still in Redis at the end
threads     of the process, without the main thread
conns       connections to the server
requests/s  sent to the server (EVALSHA and EVAL; all of them are renewals)
renewals/s  locks renewed; one request may renew many (counts GET: scripts call it once per lock)
CPU         of the process, as a share of one core
per CPU s   renewals per second of CPU time
memory      growth of the process per lock (resident; Linux only)

python-redis-lock renews after two thirds of the lease, this package after one third. It therefore
sends half as many renewals for the same ``expire``: compare the cost of one renewal.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import pathlib
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import redis
import redis.asyncio

import redis_lock_decorators
import redis_lock_decorators.asyncio
from redis_lock_decorators.testing import LocalServer

EXPIRE = 3
COLUMNS = ("held", "threads", "conns", "requests/s", "renewals/s", "CPU", "per CPU s", "memory")
#: Acquires locks by name and returns the objects that hold them.
AcquireAll = Callable[[list[str]], list[Any]]


def python_redis_lock(port: int) -> AcquireAll:
    import redis_lock

    # All of its threads may need a connection at the same time.
    client = redis.Redis(port=port, max_connections=10_000)

    def acquire_all(names):
        locks = [redis_lock.Lock(client, name, expire=EXPIRE, auto_renewal=True) for name in names]
        for lock in locks:
            lock.acquire()
        return locks

    return acquire_all


def blocking(port: int) -> AcquireAll:
    client, kind = redis.Redis(port=port), redis_lock_decorators.RedisLock
    return lambda names: [kind(name, client=client, expire=EXPIRE).acquire() for name in names]


def hold_blocking(acquire_all: AcquireAll, names: list[str], usage: Usage, seconds: float) -> None:
    """Hold blocking locks and measure the process."""
    for lock in acquire_all(["warm-up"]):
        lock.release()
    usage.note_memory()
    held = acquire_all(names)
    usage.begin()
    time.sleep(seconds)
    usage.end(held)


async def hold_asyncio(port: int, names: list[str], usage: Usage, seconds: float) -> None:
    """The same on an event loop."""
    client = redis.asyncio.Redis(host="127.0.0.1", port=port)
    kind = redis_lock_decorators.asyncio.RedisLock

    async def acquire(name):
        return await kind(name, client=client, expire=EXPIRE).acquire()

    await (await acquire("warm-up")).release()
    usage.note_memory()
    held = [await acquire(name) for name in names]
    usage.begin()
    await asyncio.sleep(seconds)
    usage.end(held)
    await client.aclose()


class Usage:
    """What a process and its server do while locks are held."""

    def __init__(self, port: int) -> None:
        self._client = redis.Redis(port=port)
        self._client.ping()
        self.found: dict[str, float] = {}

    def note_memory(self) -> None:
        """Measure the memory before the locks are acquired."""
        self._memory = resident()

    def begin(self) -> None:
        """Start measuring: the locks are held."""
        self._calls = self._commands()
        self._cpu, self._time = time.process_time(), time.perf_counter()

    def end(self, held: list[Any]) -> None:
        """Stop measuring, and keep the locks that are held until the process ends."""
        self._held = held
        cpu, seconds = time.process_time() - self._cpu, time.perf_counter() - self._time
        calls = {name: n - self._calls.get(name, 0) for name, n in self._commands().items()}
        renewed = calls.get("get", 0)
        self.found = {
            "held": self._client.dbsize(),
            "threads": threading.active_count() - 1,
            "conns": len(self._client.client_list()) - 1,
            "requests/s": (calls.get("evalsha", 0) + calls.get("eval", 0)) / seconds,
            "renewals/s": renewed / seconds,
            "CPU": cpu / seconds,
            "per CPU s": renewed / cpu,
            "memory": (resident() - self._memory) / len(held),
        }

    def _commands(self) -> dict[str, int]:
        stats = self._client.info("commandstats")
        return {name.removeprefix("cmdstat_"): found["calls"] for name, found in stats.items()}


def resident() -> int:
    """Bytes of memory in use."""
    gc.collect()
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def hold(way: str, port: int, locks: int, seconds: float) -> None:
    """Hold locks in this process and print the figures as JSON."""
    usage, names = Usage(port), [f"benchmark:{number}" for number in range(locks)]
    if way == "asyncio":
        asyncio.run(hold_asyncio(port, names, usage, seconds))
    else:
        acquire_all = {"blocking": blocking, "python-redis-lock": python_redis_lock}[way](port)
        hold_blocking(acquire_all, names, usage, seconds)
    print(json.dumps(usage.found), flush=True)
    os._exit(0)  # The locks are not released one by one.


def measured(way: str, locks: int, seconds: float) -> dict[str, float]:
    """The figures of a new process with its own server."""
    with LocalServer() as server:
        options = ("--way", way, "--port", server.port, "--locks", locks, "--seconds", seconds)
        command = [sys.executable, __file__, *map(str, options)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def line(way: str, locks: int, found: dict[str, float]) -> str:
    held, threads, conns, requests, renewals, cpu, per_cpu, memory = map(found.get, COLUMNS)
    return (
        f"{way:22}{locks:7}{held:8.0f}{threads:9.0f}{conns:7.0f}{requests:12.1f}"
        f"{renewals:12.0f}{cpu:8.1%}{per_cpu:11.0f}{memory / 1024:8.1f} KiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--locks", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        hold(options.way, options.port, options.locks, options.seconds)
        return
    print(f"redis-py {redis.__version__}, loopback, expire {EXPIRE} s, {options.seconds:g} s each")
    print(
        f"{'':22}{'locks':>7}{'held':>8}{'threads':>9}{'conns':>7}{'requests/s':>12}"
        f"{'renewals/s':>12}{'CPU':>8}{'per CPU s':>11}{'memory':>12}"
    )
    ways = ["python-redis-lock", "blocking", "asyncio"]
    runs = [(way, options.locks) for way in ways] + [(way, options.many) for way in ways[1:]]
    for way, locks in runs:
        print(line(way, locks, measured(way, locks, options.seconds)), flush=True)


if __name__ == "__main__":
    main()
