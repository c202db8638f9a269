"""The nodes of a cluster, and slot migration between them."""

from __future__ import annotations

import time
from typing import Any

import redis

from redis_lock_decorators._rules.keys import slot_of
from redis_lock_decorators.testing import Node

SECONDS = 20.0


class Nodes:
    """The masters of a cluster, each with its own client, and their node ids."""

    def __init__(self, cluster: Any) -> None:
        self.nodes = cluster.nodes
        self.clients = [redis.Redis(host=node.host, port=node.port) for node in cluster.nodes]
        self.names = [client.execute_command("CLUSTER", "MYID") for client in self.clients]

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def owner(self, key: bytes) -> int:
        """The index of the node that has the key."""
        slot = slot_of(key)
        return next(
            place
            for place, client in enumerate(self.clients)
            if any(start <= slot <= end for start, end in self._own_slots(client, place))
        )

    def _own_slots(self, client: Any, place: int) -> list[tuple[int, int]]:
        return [
            (start, end)
            for start, end, master, *_ in client.execute_command("CLUSTER", "SLOTS")
            if master[2] in (self.names[place], self.names[place].decode())
        ]

    def move(self, key: bytes, to: int) -> None:
        """Migrate the key's slot and its keys, as redis-cli does."""
        slot, source = slot_of(key), self.owner(key)
        here, there = self.clients[source], self.clients[to]
        there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.names[source])
        here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.names[to])
        port = there.connection_pool.connection_kwargs["port"]
        while keys := here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            here.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *keys)
        for client in (there, here, *self.clients):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.names[to])

    def move_all(self, keys: list[bytes], source: int, to: int) -> None:
        """Migrate the slots of keys, and the keys in them, in a moment."""
        here, there = self.clients[source], self.clients[to]
        slots = [slot_of(key) for key in keys]
        _each(there, [("CLUSTER", "SETSLOT", s, "IMPORTING", self.names[source]) for s in slots])
        _each(here, [("CLUSTER", "SETSLOT", s, "MIGRATING", self.names[to]) for s in slots])
        port = there.connection_pool.connection_kwargs["port"]
        found = _each(here, [("CLUSTER", "GETKEYSINSLOT", s, 100) for s in slots])
        migrate = ("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS")
        _each(here, [(*migrate, *names) for names in found if names])
        for client in (there, here, *self.clients):
            _each(client, [("CLUSTER", "SETSLOT", s, "NODE", self.names[to]) for s in slots])

    def migrate(self, key: bytes, to: int) -> None:
        """Migrate the key's slot atomically, as Valkey 9 does."""
        slot, here = slot_of(key), self.clients[self.owner(key)]
        here.execute_command(
            "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", self.names[to]
        )
        end = time.monotonic() + SECONDS
        while self.owner_or_none(key) != to:
            assert time.monotonic() < end, "the slot did not move"
            time.sleep(0.01)

    def owner_or_none(self, key: bytes) -> int | None:
        """The same, or None while no node has the slot."""
        try:
            return self.owner(key)
        except StopIteration:
            return None

    def at(self, place: int, prefix: str) -> str:
        """A lock name whose key is at a node."""
        names = (f"{prefix}-{number}" for number in range(1000))
        return next(name for name in names if self.owner(f"sys:lock:{name}".encode()) == place)

    def fail_over(self, master: Node, replica: Node) -> None:
        """Promote a replica in place of its master, without data loss."""
        replica.wait_until_says("master_link_status:up", "INFO")
        with replica.client() as client:
            client.execute_command("CLUSTER", "FAILOVER")
        replica.wait_until_says("role:master", "INFO")


def _each(client: Any, commands: list[tuple[Any, ...]]) -> list[Any]:
    """The replies to commands in one pipeline."""
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return list(pipeline.execute())
