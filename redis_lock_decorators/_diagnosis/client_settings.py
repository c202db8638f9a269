"""Judge the time-outs and retries of a client, compared with the lease."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from redis_lock_decorators._diagnosis.finding import Finding, Severity
from redis_lock_decorators._io.client_state import has_own_connections
from redis_lock_decorators._io.transport.private_connection import PATIENCE
from redis_lock_decorators._rules.lease_times import SHARE
from redis_lock_decorators.errors import in_seconds

#: Seconds. Below, a short pause of the server or the network looks like an outage.
SHORTEST_TIMEOUT = 0.1
#: The share of a lease from which a round trip is too long to renew it reliably.
LONG_ROUND_TRIP = 1 / 10


@dataclass(frozen=True)
class ClientSettings:
    """How a client waits for replies.

    Attributes:
        timeout: its ``socket_timeout`` in seconds; None for no limit.
        retries: how often it repeats a request on its own.
        is_limited: its locks use connections of their own, with a limit of their own: those of a
            client that is neither wrapped nor traced, and of one server.
    """

    timeout: float | None
    retries: int
    is_limited: bool


def settings_of(client: Any, parameters: dict[str, Any]) -> ClientSettings:
    """Read the settings of a client, and of a connection that it makes."""
    retry = getattr(client, "retry", None) or parameters.get("retry")
    retries = getattr(retry, "_retries", 0)
    timeout = parameters.get("socket_timeout")
    return ClientSettings(timeout, max(0, retries), has_own_connections(client))


def findings(settings: ClientSettings, expire: float) -> Iterator[Finding]:
    """Judge time-outs and retries for leases of ``expire`` seconds."""
    timeout, is_limited = settings.timeout, settings.is_limited
    if timeout is not None and timeout < SHORTEST_TIMEOUT:
        yield Finding(
            Severity.RISK,
            f"socket_timeout of the client is short: {in_seconds(timeout)}",
            "Each pause of the server or the network looks like an outage: leases are not renewed, "
            "and requests are repeated.",
            "Give a socket_timeout of a second or more.",
        )
    patience = min(timeout or PATIENCE, PATIENCE) if is_limited else timeout
    if patience is None:
        yield Finding(
            Severity.RISK,
            "The client has no socket_timeout",
            "Its locks use its own requests, which wait for a silent server without a limit.",
            f"Give a socket_timeout of {(1 - SHARE) * expire / 2:.1f} s or less.",
        )
    elif patience >= (1 - SHARE) * expire:
        yield Finding(
            Severity.RISK,
            f"One lost reply costs most of a lease of {in_seconds(expire)}",
            f"The client waits {in_seconds(patience)} for a reply. A lease is renewed after a "
            "third of its time, so one reply that does not arrive can end it.",
            f"Give an expire of more than {patience / (1 - SHARE):.1f} s, or a shorter "
            "socket_timeout.",
        )
    yield from _retries(settings, expire)


def _retries(settings: ClientSettings, expire: float) -> Iterator[Finding]:
    if settings.is_limited or settings.timeout is None:
        return
    total = settings.timeout * (settings.retries + 1)
    if settings.retries and total > expire:
        yield Finding(
            Severity.HINT,
            f"The client repeats a request for up to {in_seconds(total)}",
            "Code that acquires or releases a lock waits so long for a silent server, longer than "
            f"a lease of {in_seconds(expire)}.",
            "Give the client fewer retries or a shorter socket_timeout.",
        )


def far(seconds: float, expire: float) -> Iterator[Finding]:
    """Judge the shortest round trip."""
    if seconds > LONG_ROUND_TRIP * expire:
        yield Finding(
            Severity.RISK,
            f"A round trip takes {seconds * 1000:.0f} ms",
            f"That is much of a lease of {in_seconds(expire)}: a few lost replies end it.",
            "Give a longer expire, or use a server that is nearer.",
        )
