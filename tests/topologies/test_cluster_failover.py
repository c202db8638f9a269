"""A cluster's replica replaces its master while locks are held and awaited."""

from __future__ import annotations

import time

import pytest
from redis.cluster import RedisCluster
from support.connecting import to_cluster
from support.scene import Scene

from redis_lock_decorators import RedisLock
from redis_lock_decorators._rules.keys import slot_of

NOT_RECEIVED = "a replica may lack the last leases of a master that crashed"


def test_locks_work_through_failovers(tmp_path, rounds, record_property, cluster, nodes):
    master = cluster.masters[0]
    (replica,) = cluster.replicas_of(master)
    with Scene(tmp_path, to_cluster(cluster), lambda way: nodes.at(0, way)) as scene:
        for _ in rounds:
            with scene.holding():
                with scene.fault():
                    nodes.fail_over(master, replica)
                    master, replica = replica, master
                time.sleep(1)
            time.sleep(1)
        scene.finish([master], record_property, scene.slow())


def test_locks_work_after_the_master_was_killed(tmp_path, record_property, cluster, nodes):
    master = cluster.masters[0]
    (replica,) = cluster.replicas_of(master)
    with Scene(tmp_path, to_cluster(cluster), lambda way: nodes.at(0, way)) as scene:
        with scene.holding(), scene.fault():
            master.kill()
            replica.wait_until_says("role:master", "INFO")
            for node in cluster.nodes:
                if node is not master:
                    node.wait_until_says("cluster_state:ok", "CLUSTER", "INFO")
        scene.finish([replica], record_property, [scene.lossy(NOT_RECEIVED)])


@pytest.mark.parametrize("options", [{}, {"fencing": True}])
def test_replicas_of_the_wrong_node_confirm_no_lock_while_its_slot_moves(cluster, nodes, options):
    name = nodes.at(0, "moving")
    slot = slot_of(f"sys:lock:{name}".encode())
    here, there = nodes.clients[:2]
    there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", nodes.names[0])
    here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", nodes.names[1])
    with RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port) as client:
        lock = RedisLock(name, client=client, replicas=1, **options)

        assert lock.acquire(0) is None

        for node in (there, here):
            node.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
        with lock:
            assert here.get(f"sys:lock:{name}") is not None
