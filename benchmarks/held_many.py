"""Memory and CPU of a process that holds up to 100,000 locks, and of its server.

    python benchmarks/held_many.py [--most 100000] [--write docs/reference]

A new process acquires more and more locks, with the default ``expire`` of 10 s, and holds them;
once with threads, once with asyncio. At each number of locks it is measured for two renewals of
each lock. ``--write`` updates docs/reference/benchmarks.rst and its picture, held.svg. The columns:

memory  of the process, resident, since before the first lock (Linux only); of the server,
        ``used_memory``, likewise
CPU     as a share of one core, while the locks are held and renewed
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import redis
import redis.asyncio
from contention import report
from contention.conditions import conditions
from contention.pictures import held_picture
from held import resident

import redis_lock_decorators
import redis_lock_decorators.asyncio
from redis_lock_decorators.testing import LocalServer

EXPIRE = 10
#: Seconds of one measurement: a lease is renewed after a third of ``expire``.
SECONDS = 2 * EXPIRE / 3
SHARES = (0.1, 0.25, 0.5, 0.75, 1)
#: Tasks that acquire locks at the same time.
TASKS = 50
KINDS = ("threads", "asyncio")
FIGURES = ("memory", "CPU")
HEADER = ("locks", *(f"{figure}, {kind}" for kind in (*KINDS, "server") for figure in FIGURES))
MIB = 2**20

#: Acquires and keeps the locks with these numbers.
Acquire = Callable[[range], Awaitable[None]]


def threads(port: int, held: list[Any]) -> Acquire:
    client = redis.Redis(port=port)

    async def acquire(numbers: range) -> None:
        for number in numbers:
            lock = redis_lock_decorators.RedisLock(str(number), client=client, expire=EXPIRE)
            held.append(lock.acquire())

    return acquire


def tasks(port: int, held: list[Any]) -> Acquire:
    client = redis.asyncio.Redis(port=port)

    async def one(number: int) -> None:
        lock = redis_lock_decorators.asyncio.RedisLock(str(number), client=client, expire=EXPIRE)
        held.append(await lock.acquire())

    async def acquire(numbers: range) -> None:
        for first in range(numbers.start, numbers.stop, TASKS):
            await asyncio.gather(*map(one, range(first, min(first + TASKS, numbers.stop))))

    return acquire


async def hold(kind: str, port: int, most: int) -> None:
    """Hold more and more locks and print the figures of each step as JSON."""
    held: list[Any] = []
    acquire = (threads if kind == "threads" else tasks)(port, held)
    server = redis.Redis(port=port)
    await acquire(range(1))
    empty = resident(), server.info("memory")["used_memory"]
    for share in SHARES:
        await acquire(range(len(held), round(most * share)))
        before, began = used(server), time.perf_counter()
        if kind == "threads":
            time.sleep(SECONDS)
        else:
            await asyncio.sleep(SECONDS)
        elapsed = time.perf_counter() - began
        cpu = [(now - then) / elapsed for then, now in zip(before, used(server), strict=True)]
        memory = resident() - empty[0], server.info("memory")["used_memory"] - empty[1]
        if server.dbsize() < len(held):
            raise SystemExit(f"{kind}: {len(held) - server.dbsize()} of {len(held)} locks are lost")
        found = {"locks": len(held), "memory": memory, "CPU": cpu}
        print(json.dumps(found), flush=True)
    os._exit(0)  # The locks are not released one by one.


def used(server: redis.Redis) -> tuple[float, float]:
    """CPU seconds of this process and of the server so far."""
    cpu = server.info("cpu")
    return time.process_time(), cpu["used_cpu_user"] + cpu["used_cpu_sys"]


def measured(kind: str, most: int) -> list[dict[str, Any]]:
    """The figures of a new process with its own server."""
    with LocalServer() as server:
        options = ("--kind", kind, "--port", server.port, "--most", most)
        command = [sys.executable, __file__, *map(str, options)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600)
    return [json.loads(line) for line in done.stdout.splitlines()]


def rows(found: dict[str, list[dict[str, Any]]]) -> list[tuple[str, ...]]:
    """The table: what each kind of process needs, and what the server needs (with asyncio)."""
    return [
        (
            f"{one['locks']:,}",
            *cells(one["memory"][0], one["CPU"][0]),
            *cells(other["memory"][0], other["CPU"][0]),
            *cells(other["memory"][1], other["CPU"][1]),
        )
        for one, other in zip(*(found[kind] for kind in KINDS), strict=True)
    ]


def cells(memory: float, cpu: float) -> tuple[str, str]:
    return f"{memory / MIB:.1f} MiB", f"{100 * cpu:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--most", type=int, default=100_000, help="so many locks in the end")
    parser.add_argument(
        "--write", type=pathlib.Path, metavar="docs/reference", help="update its page"
    )
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        asyncio.run(hold(options.kind, options.port, options.most))
    with LocalServer() as server:
        setting = conditions(server.client(), f"expire {EXPIRE} s")
    print(setting)
    table = rows({kind: measured(kind, options.most) for kind in KINDS})
    print(report.plain("locks", table, HEADER))
    if options.write:
        page = options.write / "benchmarks.rst"
        tables = report.markup("held locks", table, HEADER)
        report.put(page, f"{setting}.\n\n{tables}", "held locks")
        picture = held_picture(page.read_text(encoding="utf-8"))
        (options.write / "held.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
