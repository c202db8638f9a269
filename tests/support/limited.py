"""Users of a server or cluster with limited permissions, and the commands they used."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from redis_lock_decorators._rules import permissions
from redis_lock_decorators._rules.keys import slot_of
from redis_lock_decorators.testing import LocalCluster, LocalServer
from support.cluster_nodes import Nodes
from support.fronts import LEGACY

#: The kinds of places that the installed redis-py can use.
PLACES = ["server"] if LEGACY else ["server", "cluster"]
PASSWORD = "any"  # noqa: S105
#: Commands that clients send on their own; they tolerate a refusal or need no permission.
OWN = ("client|", "hello", "auth", "quit", "reset")


class Place:
    """A server, or the masters of a cluster, with a user of few permissions.

    Attributes:
        is_cluster: more than one node.
        known: the commands that the package may use and the server supports.
    """

    def __init__(self, nodes: Any, is_cluster: bool) -> None:
        self.nodes = list(nodes)
        self._numbers = itertools.count()
        self._name = "limited"  # a new name each time: clients of earlier users may still be active
        self.is_cluster = is_cluster
        self.admins = [redis.Redis(host=node.host, port=node.port) for node in self.nodes]
        self.known = {one.lower() for one in permissions.commands() if self._knows(one.lower())}

    def _knows(self, command: str) -> bool:
        try:
            self.admins[0].execute_command("ACL", "SETUSER", self._name, f"+{command}")
        except redis.ResponseError:
            return False
        return True

    @contextmanager
    def user(self, *rules: str) -> Iterator[None]:
        """Create the user with these rules, and reset the statistics and the ACL log."""
        self._name = f"limited-{next(self._numbers)}"
        allowed = [rule for rule in rules if rule[0] != "+" or rule[1:] in self.known]
        for admin in self.admins:
            admin.execute_command(
                "ACL",
                "SETUSER",
                self._name,
                "reset",
                "on",
                f">{PASSWORD}",
                "resetchannels",
                *allowed,
            )
            admin.execute_command("ACL", "LOG", "RESET")
            admin.script_flush()
            admin.execute_command("CONFIG", "RESETSTAT")
        try:
            yield
        finally:
            for admin in self.admins:
                admin.execute_command("ACL", "DELUSER", self._name)

    def change(self, *rules: str) -> None:
        """Change the rules of the current user."""
        for admin in self.admins:
            admin.execute_command("ACL", "SETUSER", self._name, *rules)

    @contextmanager
    def half_moved(self, key: str | None) -> Iterator[None]:
        """Leave the slot of a key half migrated to another node; None: nothing moves."""
        if key is None or not self.is_cluster:
            yield
            return
        nodes, slot = Nodes(self), slot_of(key.encode())
        here = nodes.owner(key.encode())
        there = (here + 1) % len(self.nodes)
        set_slot = ("CLUSTER", "SETSLOT", slot)
        nodes.clients[there].execute_command(*set_slot, "IMPORTING", nodes.names[here])
        nodes.clients[here].execute_command(*set_slot, "MIGRATING", nodes.names[there])
        try:
            yield
        finally:
            for node in (here, there):
                nodes.clients[node].execute_command(*set_slot, "STABLE")
            nodes.close()

    def left(self, key: str) -> int:
        """The number of keys that match, on all nodes."""
        found = [admin.keys(key) for admin in self.admins]
        return sum(map(len, found))

    def members(self, key: bytes) -> list[bytes]:
        """The members of a sorted set, on whatever node it is."""
        (found,) = [admin for admin in self.admins if admin.keys(key)]
        members: list[bytes] = found.zrange(key, 0, -1)
        return members

    def expires(self, key: bytes) -> bool:
        """Whether a key has a time to live, on whatever node it is."""
        return any(admin.keys(key) and admin.pttl(key) > 0 for admin in self.admins)

    def client(self, front: Any) -> Any:
        """A client of the user."""
        make = front.cluster if self.is_cluster else front.client
        return make(self.nodes[0], username=self._name, password=PASSWORD)

    def used(self) -> set[str]:
        """The commands that were run since, without those of ``refused`` and this method."""
        return {
            name.removeprefix("cmdstat_")
            for admin in self.admins
            for name, stats in admin.info("commandstats").items()
            if stats["calls"] > stats.get("rejected_calls", 0)
        } & self.known

    def refused(self) -> list[tuple[str, str]]:
        """The refusals of the user: the reason and the object."""
        found = [entry for admin in self.admins for entry in admin.acl_log()]
        return [
            (str(entry["reason"]), str(entry["object"]))
            for entry in found
            if entry["username"] == self._name and not str(entry["object"]).startswith(OWN)
        ]


@contextmanager
def started(kind: str) -> Iterator[Place]:
    """A running place of this kind."""
    with LocalCluster() if kind == "cluster" else LocalServer() as found:
        nodes = found.nodes if isinstance(found, LocalCluster) else [found]
        yield Place(nodes, isinstance(found, LocalCluster))
