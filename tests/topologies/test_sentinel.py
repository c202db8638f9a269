"""Sentinel changes the master while locks are held and awaited."""

from __future__ import annotations

import time

import pytest
from support.connecting import to_sentinels
from support.replication import Watched, until_in_step
from support.scene import LEASE, Scene

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


def test_failover(tmp_path, rounds, record_property, sentinels):
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


def test_killed_master(tmp_path, record_property):
    with LocalSentinel() as sentinels, Scene(tmp_path, to_sentinels(sentinels)) as scene:
        watched = Watched(sentinels)
        with scene.holding(), scene.fault():
            old = watched.master
            old.kill()
            watched.until_master_is_not(old)
        scene.finish([watched.master], record_property, [scene.lossy(NOT_RECEIVED)])
