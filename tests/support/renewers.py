"""Renewers of simulated leases, on an event loop in virtual time."""

from __future__ import annotations

from typing import Any

from redis.exceptions import NoPermissionError

from redis_lock_decorators._flow.release import release
from redis_lock_decorators._io.blocking_port import run
from support.faults import delivered
from support.simulated_loop import HeldLease, SimulatedLoop, renewing_port
from support.simulation import Clock, SimulatedPort, SimulatedServer

HOUR = 3600.0
#: Seconds from its deadline within which a loss is reported.
SOON = 0.05


def new_lease_loop(**server: Any) -> tuple[SimulatedLoop, SimulatedPort]:
    """An event loop with a renewer, and a client whose leases it renews."""
    lease_loop = SimulatedLoop(Clock())
    return lease_loop, renewing_port(lease_loop, server=SimulatedServer(lease_loop.clock, **server))


def renewals(port: SimulatedPort) -> list[float]:
    """The times at which renewals were sent."""
    return [sent.at for sent in port.log if sent.verb == "renew"]


def refuse_renewals(port: SimulatedPort) -> None:
    """Refuse every renewal, as to a user without the rights."""

    def usual(request: Any) -> Any:
        if port.verbs[-1] == "renew":
            raise NoPermissionError("no permissions to run the 'pexpire' command")
        return delivered(request)

    port.usual = usual


def release_keys(lease: HeldLease) -> None:
    """End the renewal of a lease and release it."""
    lease.port.renewer.remove(lease.watch)
    run(release(lease.port, lease.claim, "script"))


def assert_reported_once_at_its_deadline(lease: HeldLease) -> None:
    ((at, _),) = lease.notifications
    assert abs(at - lease.claim.deadline) <= SOON
