"""The rights that SECURITY.rst lists are enough."""

from __future__ import annotations

import pathlib
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from support.fronts import BlockingFront

from redis_lock_decorators import RedisLock, acquire_lock, extend_lock, release_lock
from redis_lock_decorators.lock import Lock
from redis_lock_decorators.world.blocking import run

SECURITY = pathlib.Path(__file__).parents[2] / "SECURITY.rst"
ITEMS = SECURITY.read_text().partition("ACL must allow")[2].split("\n- ")[1:]
EVERY, TRANSACTION, OTHERS, QUEUE = [re.findall(r"``([A-Z|]+)``", item) for item in ITEMS]
KEYS = ("~sys:lock:*", "&redis-lock:*")


@contextmanager
def limited(server: Any, direct: Any, rights: list[str]) -> Iterator[Any]:
    """A client that may do just that; nothing else was refused to it at the end."""
    allowed = [f"+{right}" for right in rights]
    direct.execute_command("ACL", "SETUSER", "limited", "reset", "on", "nopass", *KEYS, *allowed)
    direct.execute_command("ACL", "LOG", "RESET")
    yield redis.Redis(
        host=server.host,
        port=server.port,
        username="limited",
        password="any",  # noqa: S106
    )
    refused = [
        entry
        for entry in direct.acl_log()
        if not entry["object"].startswith("client|")  # redis-py introduces itself
    ]
    direct.acl_deluser("limited")
    assert refused == []


def hold(**options: Any) -> Callable[[Any, str], None]:
    """One holder of a lock."""

    def work(client: Any, name: str) -> None:
        with RedisLock(name, client=client, **options) as lease:
            assert lease.extend(5)
            assert lease.owned()

    return work


def wait(**options: Any) -> Callable[[Any, str], None]:
    """A lock that goes through several hands."""

    async def one(client: Any, name: str) -> None:
        with RedisLock(name, client=client, **options):
            time.sleep(0.1)

    def work(client: Any, name: str) -> None:
        works = [lambda: one(client, name)] * 3
        assert run(BlockingFront().elsewhere(*works)) == [None] * 3

    return work


def recipe(method: str) -> Callable[[Any, str], None]:
    """The three functions."""

    def work(client: Any, name: str) -> None:
        identifier = acquire_lock(client, name)
        assert extend_lock(client, name, identifier, 5)
        assert release_lock(client, name, identifier, method=method)

    return work


def stand_in(client: Any, name: str) -> None:
    """A lock in the place of redis-py's."""
    for timeout in (3, None):
        with Lock(client, f"sys:lock:{name}", timeout=timeout) as lock:
            assert lock.owned()
            if timeout:
                lock.extend(2)
                lock.reacquire()


@pytest.mark.parametrize(
    ("rights", "work"),
    [
        (EVERY, hold(wait="poll")),
        (EVERY, hold()),
        (EVERY + OTHERS, hold(min_hold=0.1)),
        (EVERY, wait(wait="poll")),
        (EVERY, recipe("script")),
        (EVERY + TRANSACTION, recipe("transaction")),
        (EVERY + TRANSACTION, recipe("native")),
        (EVERY + TRANSACTION, hold(release_method="transaction", min_hold=0.1)),
        (EVERY + OTHERS, hold(fencing=True)),
        (EVERY + OTHERS, stand_in),
        (EVERY + QUEUE, wait()),
        (EVERY + QUEUE, wait(wait="cohort")),
        (EVERY + QUEUE, wait(min_hold=0.3)),
        (EVERY + OTHERS + QUEUE, wait(fencing=True)),
        (EVERY + TRANSACTION + QUEUE, wait(release_method="transaction")),
        (EVERY + TRANSACTION + QUEUE, wait(release_method="native")),
    ],
)
def test_rights_that_are_listed_are_enough(server, direct, name, rights, work, caplog):
    rights = [right for right in rights if right != "DELEX"]  # Redis 8.4 has it

    with limited(server, direct, rights) as client:
        work(client, name)

    assert caplog.records == []
