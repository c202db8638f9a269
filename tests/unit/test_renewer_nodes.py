"""Renewals at several cluster nodes: each node is waited for on its own."""

from __future__ import annotations

from typing import Any

from support.faults import delivered
from support.renewers import new_lease_loop, renewals
from support.simulated_loop import HeldLease

#: Seconds after which a client that has no time limit gives up a request.
HUNG = 1000.0


def test_node_without_replies_does_not_end_renewals_at_another() -> None:
    _, port = new_lease_loop(cluster=True)
    leases = [HeldLease(port, name, expire=10) for name in "abcdefgh"]
    both = HeldLease(port, "a2", "b2", "c2", "d2", expire=10)
    silent = port.node(leases[0].key)
    healthy = [lease for lease in leases if port.node(lease.key) != silent]
    others = [lease for lease in leases if port.node(lease.key) == silent]
    assert len(healthy) > 1
    assert {port.node(key) for key in both.claim.keys} == {0, 1}

    def usual(request: Any) -> Any:
        sent = port.log[-1]
        if sent.verb == "renew" and port.node(sent.command[3]) == silent:
            request.port.clock.advance(HUNG)  # the client does not know the time limit
        return delivered(request)

    port.usual = usual
    port.clock.advance(60)

    assert all(lease.is_live() for lease in healthy)
    assert not any(lease.notifications for lease in healthy)
    assert all(lease.notifications for lease in [*others, both])


def test_leases_at_one_node_are_renewed_at_the_same_time() -> None:
    _, port = new_lease_loop(cluster=True)
    leases = [HeldLease(port, f"{{a}}{number}", expire=10) for number in range(20)]

    port.clock.advance(9)

    assert all(lease.is_live() for lease in leases)
    assert len(renewals(port)) <= 3
