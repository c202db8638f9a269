"""What the processes of ``redis-lock demo`` do: read a counter, compute, and write it back."""

from __future__ import annotations

import itertools
import multiprocessing.connection
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from redis_lock_decorators import configure, current_lease, redis_lock
from redis_lock_decorators.cli.connecting import connected

STEPS = (1, 1, -1, 1, -1, 1, -1) * 100  # what each worker does: log in (1), log out (-1)
EXPIRE = 2.0
PATIENCE = 30


@dataclass(frozen=True)
class Place:
    """Where the processes meet.

    Attributes:
        url: of the server; None for that of the environment.
        prefix: what all its keys begin with, in one slot of a cluster.
    """

    url: str | None = field(repr=False)
    prefix: str

    def key(self, name: str) -> str:
        """Return the key "online" (the counter), "history", "inside" or "waits"."""
        return f"{self.prefix}{name}"

    def connect(self) -> Any:
        """Return the client of this process, which its locks use too."""
        client = connected(self.url)
        configure(get_redis_connection=lambda: client, prefix=self.prefix)
        return client


Section = Callable[[Any, Place, int], None]


def change(client: Any, place: Place, step: int, pause: float = 0.0) -> None:
    """Read the count, compute, write back. The history has which state each write had read."""
    online, history = place.key("online"), place.key("history")
    count, seen = client.pipeline().get(online).llen(history).execute()
    time.sleep(pause)
    count = int(count or 0) + step
    client.pipeline().set(online, count).rpush(history, f"{step}:{seen}").execute()


@redis_lock("counter", expire=EXPIRE, acquire_time=PATIENCE)
def change_locked(client: Any, place: Place, step: int) -> None:
    """Do the same under the lock."""
    change(client, place, step)


@redis_lock("counter", expire=EXPIRE, acquire_time=PATIENCE)
def stall(client: Any, place: Place) -> None:
    """Enter the section, report it, and hang between reading and writing."""
    lease = current_lease()
    client.rpush(place.key("inside"), lease.key if lease else "")
    change(client, place, 1, pause=PATIENCE)


def bound(task: Callable[..., None], *arguments: Any) -> None:
    """Run a task until the parent process ends, however it ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()
    task(*arguments)


def _end_after(sentinel: Any) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


def work(place: Place, ready: Any, section: Section) -> None:
    """Do all steps."""
    client = place.connect()
    ready.wait(PATIENCE)
    for step in STEPS:
        section(client, place, step)


def work_until(place: Place, ready: Any, stop: Any) -> None:
    """Do steps under the lock until the event; report the longest wait."""
    client, longest = place.connect(), 0.0
    ready.wait(PATIENCE)
    for step in itertools.takewhile(lambda _: not stop.is_set(), itertools.cycle(STEPS)):
        began = time.monotonic()
        change_locked(client, place, step)
        longest = max(longest, time.monotonic() - began)
    client.rpush(place.key("waits"), longest)


def work_and_hang(place: Place, ready: Any) -> None:
    """Hang in the section, once the others work."""
    client = place.connect()
    ready.wait(PATIENCE)
    time.sleep(0.5)
    stall(client, place)
