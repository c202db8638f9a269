"""A slot moves to another node of a cluster while its locks are held and awaited."""

from __future__ import annotations

import contextlib
import time

import pytest
import redis
from support.cluster_nodes import Nodes
from support.connecting import to_cluster
from support.plans import LONG
from support.scene import Scene

from redis_lock_decorators.testing import LocalCluster

HOW = ["classic", "atomic"]


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def nodes(cluster):
    nodes = Nodes(cluster)
    for client in nodes.clients:
        client.flushall()
    yield nodes
    nodes.close()


def mover(nodes, how):
    """The function that moves a key's slot."""
    if how == "classic":
        return nodes.move
    try:
        nodes.clients[0].execute_command("CLUSTER", "GETSLOTMIGRATIONS")
    except redis.ResponseError:
        pytest.skip("atomic slot migration needs Valkey 9")
    return nodes.migrate


@pytest.mark.parametrize("how", HOW)
def test_slot_migration(tmp_path, rounds, record_property, cluster, nodes, how):
    move = mover(nodes, how)
    with Scene(tmp_path, to_cluster(cluster), lambda way: nodes.at(0, way)) as scene:
        for turn in rounds:
            with scene.holding():
                with scene.fault():
                    for name in scene.locks.values():
                        move(f"sys:lock:{name}".encode(), (turn + 1) % 3)
                time.sleep(1)
            time.sleep(1)
        scene.finish(cluster.nodes, record_property)


@pytest.mark.parametrize("how", HOW)
def test_subscriptions_cut_at_the_old_node_after_migration(
    tmp_path, rounds, record_property, cluster, nodes, how
):
    """Another lock stays at the old node, so its channel is still subscribed there."""
    move, moved = mover(nodes, how), [f"moved-{place}" for place in range(6)]
    plan = {"patiences": (LONG,), "lease": 10.0, "threads": 8, "tasks": 8, "moment": 0.3}
    plan["long"] = (
        0.0  # a block of one and a half leases would exceed the longest wait allowed here
    )
    locks = dict.fromkeys(("stays", *moved), ("queue",))
    with Scene(tmp_path, to_cluster(cluster), lambda way: nodes.at(0, way), locks, **plan) as scene:
        keys = [f"sys:lock:{scene.locks[label]}".encode() for label in moved]
        for turn in rounds:
            home = nodes.owner(keys[0])
            with contextlib.ExitStack() as held:
                for label in locks:
                    held.enter_context(scene.holding(label, waiting=0))
                with scene.fault(lasting=3):
                    for key in keys:
                        move(key, (turn + 1) % 3)
                # Waiters have followed their slots by now.
                nodes.clients[home].client_kill_filter(_type="pubsub", skipme=True)
                time.sleep(2)
            time.sleep(1)
        scene.finish(cluster.nodes, record_property)
