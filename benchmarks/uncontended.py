"""What one uncontended lock costs, next to redis-py's own Lock in the same run.

    python benchmarks/uncontended.py [--rounds 30] [--cycles 300] [--cores 2]

Client and server run on one core, where a reply is read as soon as it is written. On two cores,
most of the time is spent waking the other core, which says nothing about the lock. ``--cores 2``
leaves the choice of cores to the system. The first line is the cost of two bare round trips.

The locks are measured in alternating short rounds on one server, in shuffled order, so that noise
affects them equally. The table gives the median round of each, per cycle of acquire and release,
and its ratio to redis-py.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import statistics
import time
from collections.abc import Callable

import redis

from redis_lock_decorators import RedisLock, acquire_lock, redis_lock, release_lock
from redis_lock_decorators.testing import LocalServer

#: What the others are compared with.
PEER = "redis-py: with client.lock(…)"
#: The same lock without hooks and with one.
REUSED, OBSERVED = "with a reused RedisLock", "with a reused RedisLock, a hook"


def ignored(event: object) -> None:
    """A hook that does nothing: what remains is the cost of the events."""


class Traced(redis.Redis):
    """A client whose ``execute_command`` is overridden: our commands go through it."""

    def execute_command(self, *args, **options):
        return super().execute_command(*args, **options)


def ways(client: redis.Redis, traced: redis.Redis) -> dict[str, Callable[[], None]]:
    """One cycle of each kind of lock."""
    shared = RedisLock("benchmark", client=client)
    # Such a client may send a request twice, so its releases are noted in the server for a while,
    # and other releases of that lock note theirs too.
    shared_traced = RedisLock("benchmark of a wrapped client", client=traced)

    observed = RedisLock("benchmark", client=client, hooks=[ignored])

    @redis_lock("benchmark:{n}", client=client)
    def decorated(n):
        pass

    def redis_py():
        with client.lock("benchmark", timeout=10):
            pass

    def each_time():
        with RedisLock("benchmark", client=client):
            pass

    def reused():
        with shared:
            pass

    def wrapped():
        with shared_traced:
            pass

    def observed_block():
        with observed:
            pass

    def functions():
        release_lock(client, "benchmark", acquire_lock(client, "benchmark"), method="script")

    bare = socket.create_connection(("127.0.0.1", client.connection_pool.connection_kwargs["port"]))
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def round_trips():
        for _ in range(2):
            bare.send(b"PING\r\n")
            bare.recv(100)

    return {
        "two bare round trips": round_trips,
        PEER: redis_py,
        "with RedisLock(…)": each_time,
        REUSED: reused,
        OBSERVED: observed_block,
        "@redis_lock": lambda: decorated(1),
        "acquire_lock, release_lock": functions,
        "with RedisLock, wrapped client": wrapped,
    }


def measured(
    cycles_of: dict[str, Callable[[], None]], rounds: int, cycles: int
) -> dict[str, float]:
    """The median microseconds of one cycle of each kind of lock."""
    samples: dict[str, list[float]] = {name: [] for name in cycles_of}
    for _ in range(rounds):
        for name in random.sample(list(cycles_of), len(cycles_of)):
            cycle = cycles_of[name]
            started = time.perf_counter()
            for _ in range(cycles):
                cycle()
            samples[name].append((time.perf_counter() - started) / cycles * 1e6)
    return {name: statistics.median(times) for name, times in samples.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--cores", type=int, choices=(1, 2), default=1)
    options = parser.parse_args()
    if options.cores == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the server inherits it
    with LocalServer() as server:
        cycles_of = ways(server.client(), Traced(port=server.port))
        measured(cycles_of, 2, options.cycles)
        medians = measured(cycles_of, options.rounds, options.cycles)
    base = medians[PEER]
    cores = "one core" if options.cores == 1 else "two cores"
    print(f"redis-py {redis.__version__}, one thread, loopback, {cores}, µs per cycle (median)")
    for name, microseconds in medians.items():
        print(f"{name:32} {microseconds:8.1f}   {microseconds / base:5.2f}")
    extra = medians["@redis_lock"] - medians[REUSED]
    print(f"the decorator adds {extra:.1f} µs to a reused lock")
    print(f"hooks make a reused lock cost {medians[OBSERVED] / medians[REUSED]:.2f} times as much")


if __name__ == "__main__":
    main()
