"""A master and its replica swap roles without data loss while locks are held and awaited."""

from __future__ import annotations

import time

import pytest
from support.connecting import to_port_in, to_server
from support.replication import Pair
from support.scene import Scene

from redis_lock_decorators.testing import LocalAddress


@pytest.mark.parametrize("old_connections", ["kept", "cut"])
def test_locks_work_through_failovers_behind_one_address(
    tmp_path, rounds, record_property, old_connections
):
    """As with a virtual IP, a DNS name or a proxy."""
    with (
        Pair() as pair,
        LocalAddress(pair.master) as address,
        Scene(tmp_path, to_server(address.port)) as scene,
    ):
        for _ in rounds:
            with scene.holding():
                with scene.fault():
                    pair.fail_over()
                    address.point_to(pair.master)
                    if old_connections == "cut":
                        address.cut()
                time.sleep(1)
            time.sleep(1)
        scene.finish([pair.master], record_property, scene.slow())


def test_locks_work_through_failovers_with_master_discovery(tmp_path, rounds, record_property):
    """Connections to the old master stay open, including subscriptions."""
    path = tmp_path / "port"
    with Pair() as pair:
        path.write_text(str(pair.master.port))
        with Scene(tmp_path, to_port_in(path)) as scene:
            for _ in rounds:
                with scene.holding():
                    with scene.fault():
                        pair.fail_over()
                        path.write_text(str(pair.master.port))
                    time.sleep(0.5)
                time.sleep(1)
            scene.finish([pair.master], record_property, scene.slow())
