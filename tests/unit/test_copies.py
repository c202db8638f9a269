"""Which objects can be copied and pickled, and the errors for those that cannot."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import redis.asyncio

from redis_lock_decorators import Locks, RedisLock, configure, current_lease, redis_lock
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._shared.lease_base import claim_for
from redis_lock_decorators._shared.settings import DEFAULT, Settings
from redis_lock_decorators.asyncio.lease import Lease as AsyncLease
from redis_lock_decorators.asyncio.lock import Lock as AsyncDropIn
from redis_lock_decorators.asyncio.redislock import RedisLock as AsyncRedisLock
from redis_lock_decorators.lease import Lease
from redis_lock_decorators.lock import Lock as RedisPyLockBase

CLIENTS: dict[Any, Any] = {RedisLock: redis.Redis, AsyncRedisLock: redis.asyncio.Redis}
KINDS = tuple(CLIENTS)


def pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))  # noqa: S301 — own data


every_copy = pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])


def connect() -> redis.Redis:
    return redis.Redis()


def content(lock: Any) -> Any:
    return lock._names, repr(lock._config.options), lock._config._factory, lock._get_lock_name


@every_copy
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "arguments",
    [
        {"lock_name": "a"},
        {"lock_name": ["b", "a"], "expire": 3, "acquire_time": None},
        {"lock_name": b"\xff", "wait": "poll", "prefix": "p:", "on_lost": print},
        {"get_lock_name": os.path.basename, "get_redis_connection": redis.Redis},
        {},
    ],
)
def test_lock_with_the_default_settings_is_copied(kind, arguments, copied):
    lock = kind(**arguments)

    other = copied(lock)

    assert type(other) is kind
    assert content(other) == content(lock)
    assert other._blocks is not lock._blocks


def test_unpickled_lock_uses_the_settings_of_its_process():
    written = pickle.dumps(RedisLock("a", acquire_time=1))

    configure(expire=7)
    try:
        options = pickle.loads(written)._config.options  # noqa: S301 — own data
    finally:
        configure(expire=10)

    assert (options.expire, options.acquire_time) == (7, 1)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copied_lock_shares_its_client_and_settings(copied):
    client, locks = connect(), Locks(connect, expire=3)

    assert copied(RedisLock("a", client=client))._config._client is client
    assert copied(locks.lock("a"))._config._settings is locks._settings


@pytest.mark.parametrize("kind", KINDS)
def test_lock_with_a_client_cannot_be_pickled(kind):
    with pytest.raises(TypeError, match=r"get_redis_connection=… with a function of a module"):
        pickle.dumps(kind("a", client=CLIENTS[kind]()))


@pytest.mark.parametrize("make", [Locks.lock, Locks.async_lock])
def test_lock_of_a_locks_object_cannot_be_pickled(make):
    with pytest.raises(TypeError, match="send its name, and create the lock there"):
        pickle.dumps(make(Locks(connect), "a"))


@every_copy
def test_locks_object_cannot_be_copied(copied):
    with pytest.raises(TypeError, match="create it in a module, and import it"):
        copied(Locks(connect))


@every_copy
@pytest.mark.parametrize("kind", [Lease, AsyncLease])
def test_lease_cannot_be_copied(kind, copied):
    options = Options()
    loop = SimpleNamespace(is_closed=lambda: False)
    port: Any = SimpleNamespace(now=monotonic, loop=loop)
    lease = kind(claim_for(("a",), options, None), port, options)

    with pytest.raises(TypeError, match="belongs to the process that acquired it"):
        copied(lease)


@pytest.mark.parametrize("kind", [RedisPyLockBase, AsyncDropIn])
def test_drop_in_can_be_copied_but_not_pickled(kind):
    lock = kind(redis.asyncio.Redis() if kind is AsyncDropIn else connect(), "a", timeout=3)
    lock.local.token = "mine"  # noqa: S105

    assert copy.copy(lock).local.token == b"mine"
    for refuse in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"set its local\.token to release"):
            refuse(lock)


# Functions sent by value, as cloudpickle does: with what their wrapper refers to


def config_of(function: Any) -> Any:
    """Return the configuration in the closure of a decorated function."""
    names = function.__code__.co_freevars
    return function.__closure__[names.index("config")].cell_contents


def work(x: int) -> str | None:
    lease = current_lease()
    return lease and lease.key


def test_function_sent_by_value_uses_the_settings_of_its_process():
    sent = pickled(config_of(redis_lock("order:{x}", expire=3, on_lost=print)(work)))

    assert sent._settings is DEFAULT
    assert (sent.options.expire, sent.options.on_lost) == (3, print)


def test_function_with_a_client_or_locks_object_is_not_sent_by_value():
    with pytest.raises(TypeError, match=r"with client=…, as connections belong to their process"):
        pickle.dumps(config_of(redis_lock("x", client=connect())(work)))
    with pytest.raises(TypeError, match="defined in a module is pickled by its name"):
        pickle.dumps(config_of(Locks(connect).redis_lock("x")(work)))


@every_copy
def test_default_settings_are_their_own_copy(copied):
    assert copied(DEFAULT) is DEFAULT
    assert copied(configure.__self__) is configure.__self__
    with pytest.raises(TypeError, match="create it in a module, and import it"):
        copied(Settings())


SENT = """
import asyncio
import pickle
from types import SimpleNamespace
import sys

from redis_lock_decorators import RedisLock, configure

configure(prefix="app:")
functions = pickle.load(sys.stdin.buffer)
for function in functions:
    print(function.lock_for(7)._own_keys()[0].decode())
"""


def test_functions_of_cloudpickle_use_the_settings_of_their_process():
    cloudpickle = pytest.importorskip("cloudpickle")
    space: dict[str, Any] = {"redis_lock": redis_lock, "__name__": "__main__"}
    exec(FUNCTIONS, space)  # noqa: S102 — functions that cannot be imported

    ran = subprocess.run(
        [sys.executable, "-c", SENT],
        input=cloudpickle.dumps(space["functions"]),
        capture_output=True,
        check=False,
    )

    assert ran.stdout.decode().split() == ["app:a:7", "app:b:7", "app:7", "app:d:7"], ran.stderr


FUNCTIONS = """
@redis_lock("a:{x}")
def a(x): redis_lock("inner")
@redis_lock("b:{x}")
async def b(x): ...
@redis_lock
def c(x): yield x
@redis_lock(get_lock_name=lambda x: f"d:{x}")
async def d(x): yield x
functions = [a, b, c, d]
"""
