"""Waiters are killed while a monitor subscribes to all channels."""

from __future__ import annotations

import time

import pytest
from support.connecting import to_server
from support.plans import LONG
from support.queues import queue_of
from support.replication import until
from support.scene import LEASE, LOCKS, Scene

from redis_lock_decorators.testing import LocalServer

#: The number of waiting processes that are killed, and of waiters in each.
VICTIMS, WAITERS = 3, 2


def processes_in(client, name):
    """The channels of the processes that wait for a lock."""
    return {entry.partition(b"|")[0] for entry in client.zrange(queue_of(name), 0, -1)}


@pytest.mark.parametrize("way", ["queue-fenced", "mixed"])
@pytest.mark.parametrize("pattern", ["*", "other:*"])
def test_killed_waiters_do_not_delay_others(tmp_path, rounds, record_property, way, pattern):
    with (
        LocalServer() as server,
        server.client() as client,
        client.pubsub() as monitor,
        Scene(tmp_path, to_server(server.port), locks={way: LOCKS[way]}) as scene,
    ):
        monitor.psubscribe(pattern)
        monitor.get_message(timeout=1)
        name = scene.locks[way]
        for turn in rounds:
            with scene.holding(way), scene.fault():
                victims = [f"threads.victim{place}.{turn}" for place in range(VICTIMS)]
                for victim in victims:
                    scene.lockers.start(victim, scene.plan(threads=WAITERS, patiences=(LONG,)))
                until(lambda: len(processes_in(client, name)) == VICTIMS + 2)
                for victim in victims:
                    scene.lockers.kill(victim)
            time.sleep(1)
        scene.finish([server], record_property, healing=LEASE + 2)
