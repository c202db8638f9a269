"""No module is imported once locks are in use.

A thread that forks while another one imports leaves the child with the lock of a half imported
module, which nothing releases: the child would wait for it at its first lock.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

#: What both programs do first: all that a program does before it uses its locks.
BEGIN = """
import sys, redis, redis.asyncio
from redis_lock_decorators import LockError, Locks, redis_lock
from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock
from redis_lock_decorators import RedisLock

ALL = {"on_lost": lambda lease, why: None, "hooks": [lambda event: None], "fencing": True,
       "owner_info": True, "min_hold": 0.01, "max_hold": 60, "expire": 0.6}
OPTIONS = [{}, ALL, {"wait": "poll"}, {"wait": "queue"}, {"wait": "cohort", "owner_info": True},
           {"auto_renew": False}, {"release_method": "transaction"}, {"replicas": 1}]
TRY = {"acquire_time": 0.3}
before = set(sys.modules)

def end():
    late = sorted(set(sys.modules) - before)
    assert late == [], late
"""
BLOCKING = """
import time
client = redis.Redis.from_url(sys.argv[1], retry_on_timeout=False)
for options in OPTIONS:
    name = f"late imports {options.keys()}"
    try:
        with RedisLock(name, **options, **TRY) as lease:
            lease.extend()
            lease.owned()
            try:
                RedisLock(name, **options, **TRY).acquire()
            except LockError as error:
                str(error)
            time.sleep(0.3)
            client.delete(lease.key)
            time.sleep(0.3)
    except LockError as error:
        str(error)
try:
    RedisLock("refused", client=redis.Redis(port=1), acquire_time=0.1).acquire()
except (LockError, OSError, redis.RedisError) as error:
    str(error)
redis_lock("a plain function")(lambda: None)()
Locks().async_lock("made late")
end()
"""
ASYNCIO = """
import asyncio

@redis_lock("a coroutine function")
async def function():
    pass

async def main():
    client = redis.asyncio.Redis.from_url(sys.argv[1])
    for options in OPTIONS:
        name = f"late imports {options.keys()}"
        try:
            async with AsyncRedisLock(name, **options, **TRY) as lease:
                await lease.extend()
                await lease.owned()
                try:
                    await AsyncRedisLock(name, **options, **TRY).acquire()
                except LockError as error:
                    str(error)
                await asyncio.sleep(0.3)
                await client.delete(lease.key)
                await asyncio.sleep(0.3)
        except LockError as error:
            str(error)
    try:
        refusing = redis.asyncio.Redis(port=1)
        await AsyncRedisLock("refused", client=refusing, acquire_time=0.1).acquire()
    except (LockError, OSError, redis.RedisError) as error:
        str(error)
    await function()
    await client.aclose()

asyncio.run(main())
end()
"""


@pytest.mark.parametrize("program", [BLOCKING, ASYNCIO], ids=["blocking", "asyncio"])
def test_locks_import_nothing_when_they_are_used(server: Any, program: str) -> None:
    url = f"redis://localhost:{server.port}"

    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program, url],
        env=os.environ | {"REDIS_URL": url},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
