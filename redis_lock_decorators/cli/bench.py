"""``redis-lock bench``: what locks cost on this server, from here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Console

from redis_lock_decorators._rules.keys import key_of, with_companions
from redis_lock_decorators.cli import measuring
from redis_lock_decorators.cli.output import Column, Pages, print_json
from redis_lock_decorators.cli.signals import ended_by_signals
from redis_lock_decorators.cli.texts import short_duration
from redis_lock_decorators.redislock import RedisLock

UNCONTENDED_SECONDS = 2.0
PEER = "redis-py's Lock"
COLUMNS = (
    Column("lock", width=24),
    Column("threads", width=7, is_number=True),
    Column("one block", width=9, is_number=True),
    Column("per second", width=10, is_number=True),
    Column("ratio", width=5, is_number=True),
    Column("longest wait"),
)


@dataclass(frozen=True)
class Figures:
    """A row.

    Attributes:
        lock: what was measured.
        threads: how many contended.
        seconds: of one block, the median.
        per_second: blocks.
        times_redis_py: how many times those of redis-py's Lock; None for a bare round trip.
        longest_wait: in seconds; None without contention.
    """

    lock: str
    threads: int
    seconds: float
    per_second: float
    times_redis_py: float | None
    longest_wait: float | None


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on a line for each row.")
@click.pass_obj
def bench(connection: Any, as_json: bool) -> None:
    """Measure locks on this server, from this machine, for about 5 seconds.

    Empty blocks are entered and left: first by one thread, then by several that contend for one
    lock. redis-py's own Lock is measured in the same run, in alternating short rounds: compare the
    rows. The ratio is how many times as many blocks per second as redis-py's a lock does.

    The locks are new ones under the prefix, and are deleted at the end. The server gets as many
    requests as one busy client sends.
    """
    name = f"redis-lock:bench:{os.urandom(4).hex()}"
    with ended_by_signals(), _progress(not as_json) as progress, _removed(connection, name):
        figures = [*_uncontended(connection, name, progress)]
        figures += _contended(connection, name, progress)
    if as_json:
        print_json(*map(asdict, figures))
    else:
        Pages(COLUMNS).add(map(_cells, figures))


def _uncontended(connection: Any, name: str, progress: Callable[[float], None]) -> list[Figures]:
    locks = _locks(connection, name)
    key = key_of(connection.prefix, name)
    del locks["RedisLock, wait=cohort"]  # the same as the queue without other threads
    ways: dict[str, Callable[[], object]] = {
        "bare round trip (EXISTS)": lambda: connection.client.exists(key),
        **{title: _block(lock) for title, lock in locks.items()},
    }
    medians = measuring.median_seconds(ways, UNCONTENDED_SECONDS, progress)
    return [
        Figures(
            *(title, 1, seconds, 1 / seconds),
            times_redis_py=medians[PEER] / seconds if title in locks else None,
            longest_wait=None,
        )
        for title, seconds in medians.items()
    ]


def _contended(connection: Any, name: str, progress: Callable[[float], None]) -> list[Figures]:
    found = measuring.contentions(_locks(connection, name), progress)
    peer = found[PEER].per_second
    return [
        Figures(
            *(title, measuring.THREADS, 1 / one.per_second, one.per_second),
            times_redis_py=one.per_second / peer,
            longest_wait=one.longest_wait,
        )
        for title, one in found.items()
    ]


def _locks(connection: Any, name: str) -> dict[str, measuring.Lock]:
    client, prefix = connection.client, connection.prefix
    queued = RedisLock(name, client=client, prefix=prefix, acquire_time=60)
    cohort = RedisLock(f"{name}:cohort", client=client, prefix=prefix, wait="cohort")
    return {
        PEER: lambda: client.lock(_peer_key(connection, name), timeout=10),
        "RedisLock": lambda: queued,
        "RedisLock, wait=cohort": lambda: cohort,
    }


def _block(lock: measuring.Lock) -> Callable[[], None]:
    def enter_and_leave() -> None:
        with lock():
            pass

    return enter_and_leave


def _peer_key(connection: Any, name: str) -> str:
    return f"{connection.prefix}{name}:redis-py"


@contextmanager
def _removed(connection: Any, name: str) -> Iterator[None]:
    """Delete at the end what the locks may have left."""
    try:
        yield
    finally:
        for one in (name, f"{name}:cohort"):
            key = key_of(connection.prefix, one)
            for each in with_companions(key):
                connection.client.delete(each)
        connection.client.delete(_peer_key(connection, name))


@contextmanager
def _progress(is_shown: bool) -> Iterator[Callable[[float], None]]:
    """A bar on the standard error, if that is a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn  # here: the other verbs start sooner

    screen = Console(stderr=True)
    total = UNCONTENDED_SECONDS + 3 * measuring.WINDOWS * measuring.WINDOW_SECONDS
    bars = Progress(
        *(TextColumn("measuring"), BarColumn()),
        console=screen,
        transient=True,
        disable=not (is_shown and screen.is_terminal),
    )
    with bars:
        task = bars.add_task("", total=total)
        yield lambda seconds: bars.advance(task, seconds)


def _cells(row: Figures) -> list[str]:
    return [
        row.lock,
        str(row.threads),
        short_duration(row.seconds),
        f"{row.per_second:.0f}",
        "" if row.times_redis_py is None else f"{row.times_redis_py:.2f}",
        "" if row.longest_wait is None else short_duration(row.longest_wait),
    ]
