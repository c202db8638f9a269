"""Sentinel changes the master while locks are held and awaited."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import pytest
from support.connecting import connect, to_sentinels
from support.replication import Watched, until, until_in_step
from support.scene import LEASE, Scene

import redis_lock_decorators as blocking
import redis_lock_decorators.asyncio as tasks
from redis_lock_decorators.testing import LocalSentinel

NOT_RECEIVED = "a replica may lack the last leases of a master that crashed"
TWO_MASTERS = "until the old master is demoted, clients may use different masters"


@pytest.fixture
def sentinels():
    # A live server must not be considered down: a second failover would lose data.
    with LocalSentinel(down_after=10) as sentinels:
        yield sentinels


def test_coordinated_failover(tmp_path, rounds, record_property, sentinels):
    watched = Watched(sentinels)
    with sentinels.sentinel_nodes[0].client() as client:
        version = client.info("server").get("valkey_version", "0")
    if int(version.partition(".")[0]) < 9:
        pytest.skip("COORDINATED needs Valkey 9")
    with Scene(tmp_path, to_sentinels(sentinels)) as scene:
        for _ in rounds:
            with scene.holding():
                with scene.fault():
                    old, _ = watched.fail_over("COORDINATED")
                time.sleep(0.5)
            watched.until_role(old, "slave")
            until_in_step(old)
            time.sleep(1)
        scene.finish([watched.master], record_property, scene.slow())


def test_locks_work_through_failovers(tmp_path, rounds, record_property, sentinels):
    watched, allowed = Watched(sentinels), []
    with Scene(tmp_path, to_sentinels(sentinels)) as scene:
        for _ in rounds:
            with scene.holding(), scene.fault():
                old, _ = watched.fail_over()
                watched.until_role(old, "slave")
            allowed.append(scene.two_masters(TWO_MASTERS))
            until_in_step(old)
            time.sleep(1)
        scene.finish([watched.master], record_property, allowed)


def test_all_connections_of_a_client_use_one_master(tmp_path, record_property, sentinels):
    """New connections reach the new master, and none stays at the old one, which keeps running."""
    watched = Watched(sentinels)
    plan = {"kinds": ("threads",), "threads": 14, "later": 12, "patiences": (0.0,), "rest": 0.02}
    with Scene(tmp_path, to_sentinels(sentinels), locks={"x": ("poll",)}, **plan) as scene:
        with scene.fault(lasting=2):
            watched.fail_over()
        with scene.fault(lasting=0.5):
            scene.lockers.begin_later()
        allowed = [scene.two_masters("until it reconnects, a client uses the old master only")]
        time.sleep(2 * LEASE)
        scene.finish([watched.master], record_property, allowed)


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_waiter_leaves_a_replaced_master_that_is_not_demoted(sentinels, kind):
    watched, acquired = Watched(sentinels), []

    async def wait_in_task():
        client = connect(to_sentinels(sentinels), kind)
        acquired.append(await tasks.RedisLock("a", client=client, acquire_time=15).acquire())
        for used in (client, *client.connection_pool.sentinel_manager.sentinels):
            await used.aclose()

    def wait_in_thread():
        with connect(to_sentinels(sentinels), kind) as client:
            acquired.append(blocking.RedisLock("a", client=client, acquire_time=15).acquire())

    waiter = wait_in_thread if kind == "blocking" else lambda: asyncio.run(wait_in_task())
    thread = threading.Thread(target=waiter)
    with connect(to_sentinels(sentinels), "blocking") as client, contextlib.ExitStack() as stack:
        lease = blocking.RedisLock("a", client=client, expire=30).acquire()
        old = stack.enter_context(watched.master.client())
        thread.start()
        time.sleep(0.5)
        old.execute_command("ACL", "SETUSER", "default", "-replicaof", "-slaveof")
        _, master = watched.fail_over()
        pool = client.connection_pool
        until(lambda: pool.get_master_address()[1] == master.port)  # the holder's client knows it

        lease.release()
        thread.join(30)

        assert acquired[0] is not None
        with master.client() as new:
            assert new.get("sys:lock:a") == acquired[0].identifier.encode()
        assert old.info("replication")["role"] == "master"


def test_locks_work_after_the_master_was_killed(tmp_path, record_property):
    with LocalSentinel() as sentinels, Scene(tmp_path, to_sentinels(sentinels)) as scene:
        watched = Watched(sentinels)
        with scene.holding(), scene.fault():
            old = watched.master
            old.kill()
            watched.until_master_is_not(old)
        scene.finish([watched.master], record_property, [scene.lossy(NOT_RECEIVED)])
