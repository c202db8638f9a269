"""A single server fails and comes back while locks are held and awaited."""

from __future__ import annotations

import time

import pytest
from support.connecting import to_server
from support.scene import LEASE, Scene

from redis_lock_decorators.testing import LocalServer

EMPTY = "a server without persistence loses its locks when it restarts"
SILENT = "leases cannot be renewed while the server does not answer"


@pytest.fixture
def server():
    with LocalServer() as server:
        yield server


def test_locks_work_through_restarts_without_data(tmp_path, rounds, record_property, server):
    allowed = []
    with Scene(tmp_path, to_server(server.port), moment=0.4, lease=2 * LEASE) as scene:
        for _ in rounds:
            # A polling waiter acquires the lock at once, and the holder notices only on release.
            with scene.holding("poll", auto_renew=False):
                with scene.fault():
                    server.restart()
                time.sleep(0.5)
            allowed.append(scene.lossy(EMPTY))
            time.sleep(1)
        scene.finish([server], record_property, allowed)


def test_locks_work_after_the_server_stopped_for_longer_than_a_lease(
    tmp_path, rounds, record_property, server
):
    allowed = []
    with Scene(tmp_path, to_server(server.port)) as scene:
        for _ in rounds:
            with scene.holding(), scene.fault():
                server.pause()
                time.sleep(1.5 * LEASE)
                server.resume()
            allowed.append(scene.silent(SILENT))
            time.sleep(1)
        scene.finish([server], record_property, allowed)


@pytest.mark.parametrize("mode", ["ALL", "WRITE"])
def test_locks_work_through_client_pauses(tmp_path, rounds, record_property, server, mode):
    with Scene(tmp_path, to_server(server.port)) as scene, server.client() as client:
        for _ in rounds:
            with scene.holding(), scene.fault(lasting=0.4 * LEASE):
                client.execute_command("CLIENT", "PAUSE", int(400 * LEASE), mode)
            time.sleep(1)
        scene.finish([server], record_property)


def test_locks_work_after_the_server_was_out_of_memory(tmp_path, rounds, record_property, server):
    with Scene(tmp_path, to_server(server.port)) as scene, server.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
        for _ in rounds:
            with scene.holding(), scene.fault():
                client.config_set("maxmemory", "1")
                time.sleep(1.5 * LEASE)
                client.config_set("maxmemory", "0")
            time.sleep(1)
        scene.finish([server], record_property)
