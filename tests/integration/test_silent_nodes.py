"""Cluster nodes that do not reply: locks of the other nodes are not concerned."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.cluster_nodes import Nodes
from support.fronts import LEGACY

from redis_lock_decorators._io.transport.client_calls import replies_of
from redis_lock_decorators.testing import LocalCluster

#: Seconds within which nodes that reply have replied.
PATIENCE = 10.0

pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 has no cluster of its own")


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster() as cluster:
        for node in cluster.nodes:
            node.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
        yield cluster


def echo(key: bytes, count: int) -> tuple[Any, ...]:
    return "EVAL", "return ARGV[1]", 1, key, count


def key_at(nodes: Nodes, place: int, name: str) -> bytes:
    return f"sys:lock:{nodes.at(place, name)}".encode()


def test_scripts_sent_together_do_not_wait_for_the_default_node(cluster, nodes, name):
    client = cluster.client()
    default = client.get_default_node().port
    place = next(at for at, node in enumerate(cluster.nodes) if node.port != default)
    key, replies = key_at(nodes, place, name), []
    silent = next(node for node in cluster.nodes if node.port == default)
    cached = cluster.nodes[place].client().script_load("return ARGV[1]")
    commands = [echo(key, 0), ("EVALSHA", cached, 1, key, 1)]
    call = threading.Thread(target=lambda: replies.extend(replies_of(client, commands)))

    silent.pause()
    try:
        call.start()
        call.join(PATIENCE)
        found = replies[:]
    finally:
        silent.resume()
        call.join()

    assert found == [b"0", b"1"]


def test_scripts_sent_together_follow_a_slot_that_moved(cluster, nodes, name):
    client = cluster.client()
    key = key_at(nodes, 0, name)
    commands = [echo(key, count) for count in range(3)]
    assert replies_of(client, commands) == [b"0", b"1", b"2"]

    nodes.move(key, 1)

    assert replies_of(client, commands) == [b"0", b"1", b"2"]
    assert replies_of(client, commands) == [b"0", b"1", b"2"]
    nodes.move(key, 0)
