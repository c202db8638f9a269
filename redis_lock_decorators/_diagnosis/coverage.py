"""Whether each hash slot of a cluster has a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from redis_lock_decorators._diagnosis.finding import Finding, Severity, at
from redis_lock_decorators._diagnosis.nodes import Node, is_cluster
from redis_lock_decorators._rules.redaction import described

SLOTS = 16_384


def findings(client: Any) -> Iterator[Finding]:
    """Yield a finding if slots have no node."""
    if not is_cluster(client):
        return
    missing = SLOTS - len(client.nodes_manager.slots_cache)
    if missing:
        yield Finding(
            Severity.FAILURE,
            f"{missing} of {SLOTS} hash slots have no node",
            "Locks with these slots cannot be used, and no lock at all with "
            "cluster-require-full-coverage yes.",
            "Assign the slots: redis-cli --cluster fix.",
        )


def unreachable(node: Node, error: Exception) -> Finding:
    """The finding that a server cannot be reached or refuses the user."""
    reason = described(error)
    if node.is_primary:
        found = Finding(
            Severity.FAILURE,
            "A server cannot be used",
            f"{reason.rstrip('.')}. Its locks cannot be acquired, renewed or released from here.",
            "Start it or have it replaced. If others reach it: it may announce an address that is "
            "not valid here (cluster-announce-ip), or a firewall is in between.",
        )
    else:
        found = Finding(
            Severity.RISK,
            "A replica cannot be used",
            f"{reason.rstrip('.')}. After a failover to it, its locks cannot be used from here.",
            "Start it, or see to the network.",
        )
    return at(node.address, found)
