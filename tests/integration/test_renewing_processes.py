"""Leases of programs that end while holding, and of forked children."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import pytest
from support.fronts import do
from support.leftovers import ASYNCIO, TIDY_FRONTS, until
from support.workers import in_child

from redis_lock_decorators import LockNotOwnedError

FRONTS = TIDY_FRONTS

fork_only = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

pytestmark = pytest.mark.usefixtures("tidy")


HELD = {
    "blocking": """
import os, signal, sys, time, redis
from redis_lock_decorators import RedisLock
client = redis.Redis(port={port})
def inside():
    print("inside", flush=True)
    time.sleep(0.5)
{body}
""",
    "asyncio": """
import asyncio, os, signal, sys, redis.asyncio
from redis_lock_decorators.asyncio import RedisLock
async def inside():
    print("inside", flush=True)
    await asyncio.sleep(0.5)
async def main():
    client = redis.asyncio.Redis(port={port})
{body}
asyncio.run(main())
""",
}
#: How a program ends while it holds a lock: its code, exit status, and whether it deletes the key.
ENDS = {
    "its-end": ("lease = {wait}RedisLock({name!r}, client=client, expire=1.2).acquire()", 0, False),
    "sys-exit": ("{wait}with RedisLock({name!r}, client=client, expire=1.2): {exit}", 3, True),
    "os-exit": ("{wait}with RedisLock({name!r}, client=client, expire=1.2): {quit}", 4, False),
    "sigterm": ("{wait}with RedisLock({name!r}, client=client, expire=1.2): {kill}", -15, False),
}
BODIES = {
    "exit": "inside(); sys.exit(3)",
    "quit": "inside(); os._exit(4)",
    "kill": "inside(); os.kill(os.getpid(), signal.SIGTERM)",
}


def program(world, end, port, name):
    """A program that ends after holding a lock for longer than a third of its lease."""
    waits = world == "asyncio"
    bodies = {key: ("await " if waits else "") + body for key, body in BODIES.items()}
    line = ENDS[end][0]
    wait = "" if not waits else "async " if "with" in line else "await "
    lines = [line.format(wait=wait, name=name, **bodies)]
    if end == "its-end":
        lines.append("await inside()" if waits else "inside()")
        if waits:
            lines.append("await client.aclose()")
    indent = "    " if waits else ""
    return HELD[world].format(port=port, body="\n".join(indent + line for line in lines))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("world", [front.name for front in FRONTS])
@pytest.mark.parametrize("mode", [[], ["-X", "dev"]], ids=["", "dev"])
def test_program_that_ends_while_holding_prints_nothing(server, direct, name, world, end, mode):
    code = program(world, end, server.port, name)
    with subprocess.Popen(
        [sys.executable, *mode, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"inside\n"
        inside = time.monotonic()
        _, printed = process.communicate(timeout=60)
        duration = time.monotonic() - inside

    assert printed == b""
    assert process.returncode == ENDS[end][1]
    assert duration < 5  # half a second of work; the exit waits for no thread
    if ENDS[end][2]:
        assert not direct.exists(f"sys:lock:{name}")
    assert direct.pttl(f"sys:lock:{name}") <= 1_200
    time.sleep(1.3)
    assert not direct.exists(f"sys:lock:{name}")


@fork_only
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_child_neither_renews_nor_releases_an_inherited_lease(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=0.9)

    async def refused():
        with pytest.raises(LockNotOwnedError):
            await do(lease.release())
        with pytest.raises(LockNotOwnedError):
            await do(lease.extend())
        return lease.lost

    async with front.held(lock) as lease:
        first = lease.deadline

        result = in_child(lambda: _run(front, refused()))
        owned = direct.get(lease.key)
        await until(front, lambda: time.monotonic() > first + 0.3)

        assert result == "True"
        assert owned == lease.identifier.encode()
        assert await do(lease.owned())
        assert not lease.lost


@fork_only
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_child_renews_its_own_leases_and_the_parent_its_own(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=2)

    async def hold_own():
        client = front.client(server)
        held = front.package.RedisLock(f"{name}:child", client=client, expire=0.6)
        async with front.held(held) as mine:
            first = mine.deadline
            await until(front, lambda: time.monotonic() > first + 0.3)
            return await do(mine.owned()), mine.lost

    async with front.held(lock) as lease:
        await front.sleep(0.8)  # the thread that renews runs before the fork
        result = in_child(lambda: _run(front, hold_own()))

        assert result == "(True, False)"
        assert await do(lease.owned())
        await until(front, lambda: lease.deadline > time.monotonic() + 1.4)


@fork_only
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_released_lease_is_not_renewed_by_a_living_child(front, server, direct, name):
    lock = front.package.RedisLock(name, client=front.client(server), expire=0.6)
    lease = await do(lock.acquire())

    def outlive():
        lease_of_child = lease
        time.sleep(1.4)
        return lease_of_child.lost, direct.exists(lease_of_child.key)

    await do(lease.release())
    direct.set(lease.key, lease.identifier, px=600)

    assert in_child(outlive) == "(True, 0)"


def _run(front, work):
    """Run a coroutine in a forked child and return its result."""
    if front is ASYNCIO:
        return asyncio.run(work)
    found = []

    async def note():
        found.append(await work)

    front.run(note())
    return found[0]
