"""Forked children, killed holders, and many processes that use one lock."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time

import pytest
from support.fronts import LEGACY
from support.workers import count_up, hold_until_killed, in_child, wait_with_child

from redis_lock_decorators import LockError, LockNotOwnedError, Locks, RedisLock, redis_lock

fork_only = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
needs_asyncio = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no asyncio")


@pytest.fixture
def client(server):
    return server.client()


@fork_only
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_child_neither_holds_nor_releases_its_parents_lease(client, name):
    with RedisLock(name, client=client) as lease:
        state = in_child(lambda: (lease.lost, lease.remaining(), lease.owned()))
        released = in_child(lease.release)
        extended = in_child(lease.extend)
        checked = in_child(lease.check)

        assert state == "(True, 0.0, False)"
        for refused in (released, extended, checked):
            assert f"the parent process {os.getpid()}" in refused
        assert lease.owned()


@fork_only
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_child_that_leaves_its_parents_block_is_refused(client, name):
    with contextlib.ExitStack() as block:
        lease = block.enter_context(RedisLock(name, client=client))
        refused = in_child(block.close)

        assert refused.startswith(LockNotOwnedError.__name__)
        assert lease.owned()


@fork_only
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_child_acquires_its_own_locks_but_not_its_parents(client, name):
    def work():
        with RedisLock(f"{name}:own", client=client) as own:
            return own.owned(), RedisLock(name, client=client).acquire(0.05)

    with RedisLock(name, client=client) as lease:
        assert in_child(work) == "(True, None)"
        assert lease.owned()


@fork_only
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_factory_is_called_once_in_each_process(server, name):
    calls = []

    def factory():
        calls.append(os.getpid())
        return server.client()

    locks = Locks(factory)

    def use():
        for _ in range(2):
            with locks.lock(name):
                pass
        return calls

    use()
    child = in_child(use)

    assert calls == [os.getpid()]
    assert len(child.split(",")) == 2


def test_lock_of_a_killed_holder_is_free_after_its_lease(server, client, name):
    context = multiprocessing.get_context("spawn")
    inside = context.Event()
    holder = context.Process(target=hold_until_killed, args=(server.port, name, inside, 2.0))
    holder.start()
    assert inside.wait(30)

    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    killed = time.monotonic()
    left = client.pttl(f"sys:lock:{name}") / 1000
    assert RedisLock(name, client=client).acquire(0) is None
    with RedisLock(name, client=client, acquire_time=10) as lease:
        waited = time.monotonic() - killed
        assert lease.owned()
    assert 0 < left < waited + 0.01  # Redis rounds to milliseconds


@fork_only
@pytest.mark.parametrize("is_async", [False, pytest.param(True, marks=needs_asyncio)])
def test_killed_waiter_whose_child_lives_on_is_not_waited_for(server, client, name, is_async):
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe()
    known = set(client.pubsub_channels())
    with RedisLock(name, client=client):
        waiter = context.Process(
            target=wait_with_child, args=(server.port, name, is_async, sending), daemon=True
        )
        waiter.start()
        assert receiving.poll(30)
        child = receiving.recv()
        assert set(client.pubsub_channels()) - known

        waiter.kill()
        waiter.join()

        end = time.monotonic() + 10
        while set(client.pubsub_channels()) - known:
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)


def test_processes_exclude_each_other(server, client, name):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=count_up, args=(server.port, name, 25)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert int(client.get(f"count:{name}")) == 100
    assert not client.exists(f"sys:lock:{name}")


def test_name_from_arguments_is_the_same_in_every_process(server, client, name):
    """A name made from arguments does not depend on the hash seed."""
    import subprocess

    code = (
        "import sys, redis; from redis_lock_decorators import redis_lock\n"
        f"@redis_lock(client=redis.Redis(port={server.port}))\n"
        "def work(item): pass\n"
        f"print(work.lock_for([{name!r}, 1, 2.5, None]).owner())"
    )

    @redis_lock(client=client)
    def work(item):
        found = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": "7"},
            capture_output=True,
            text=True,
            check=True,
        )
        return found.stdout.strip(), work.lock_for(item).owner()

    theirs, ours = work([name, 1, 2.5, None])

    assert theirs == ours


def test_leases_of_two_clients_of_one_server_are_distinct(server, name):
    first, second = server.client(), server.client()

    with RedisLock(name, client=first) as lease:
        assert RedisLock(name, client=second).acquire(0.05) is None
        with pytest.raises(LockError):
            RedisLock(name, client=first).acquire()
        assert lease.owned()
