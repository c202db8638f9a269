"""Replicated servers and their failovers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import redis

from redis_lock_decorators.testing import LocalSentinel, LocalServer, Node

SECONDS = 20.0
SYNC_IMMEDIATELY = ("--repl-diskless-sync-delay", "0")


class Pair:
    """A master and its replica, which can swap roles; a context manager."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Pair:
        with contextlib.ExitStack() as stack:
            self.master = stack.enter_context(LocalServer(*SYNC_IMMEDIATELY))
            follow = "--replicaof", self.master.host, str(self.master.port)
            self.replica = stack.enter_context(LocalServer(*SYNC_IMMEDIATELY, *follow))
            until_in_step(self.replica)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def fail_over(self) -> None:
        """Swap their roles, as an operator does, without data loss."""
        until_in_step(self.replica)
        with self.master.client() as old, self.replica.client() as new:
            old.execute_command("FAILOVER", "TO", self.replica.host, self.replica.port)
            until(lambda: new.info("replication")["role"] == "master")
        self.master, self.replica = self.replica, self.master


def until(is_so: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + SECONDS
    while True:
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
            if is_so():
                return
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.01)


def until_in_step(replica: Any) -> None:
    """Wait until a replica has all that its master has."""
    with replica.client() as client:
        until(lambda: client.info("replication").get("master_link_status") == "up")


class Watched:
    """A Sentinel set, with its current master."""

    def __init__(self, sentinels: LocalSentinel) -> None:
        self._sentinels = sentinels

    @property
    def nodes(self) -> list[Node]:
        return [self._sentinels.master, *self._sentinels.replicas]

    @property
    def master(self) -> Node:
        """The address of the master according to the first Sentinel."""
        with self._sentinels.sentinel_nodes[0].client() as client:
            said = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
        place = said if isinstance(said, (list, tuple)) else list(said)
        return next(node for node in self.nodes if node.port == int(place[1]))

    def fail_over(self, *words: str) -> tuple[Node, Node]:
        """Have Sentinel fail over; returns the old and the new master."""
        old = self.master
        with self._sentinels.sentinel_nodes[0].client() as client:
            client.execute_command("SENTINEL", "FAILOVER", "mymaster", *words)
        return old, self.until_master_is_not(old)

    def until_master_is_not(self, old: Node) -> Node:
        """Wait until another server is the master, and return it."""
        until(lambda: self.master is not old)
        new = self.master
        self.until_role(new, "master")
        return new

    def until_role(self, node: Node, role: str) -> None:
        """Wait until a server has a role."""
        with node.client() as client:
            until(lambda: client.info("replication")["role"] == role)
