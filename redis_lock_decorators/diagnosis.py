"""Find what would break locks: of a server, its user, the network, and the client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from redis_lock_decorators._diagnosis import (
    client_settings,
    clocks,
    coverage,
    notifications,
    rights,
    server_state,
    trial,
)
from redis_lock_decorators._diagnosis.clocks import ClockSample
from redis_lock_decorators._diagnosis.finding import Finding, Severity, at, merged, unchecked
from redis_lock_decorators._diagnosis.nodes import (
    Asker,
    Node,
    connected,
    is_cluster,
    nodes_of,
    parsed_info,
    random_name,
    refuse_other,
    trial_names,
)
from redis_lock_decorators._io.client_checks import refuse_unfit
from redis_lock_decorators._io.client_types import BlockingClient
from redis_lock_decorators._rules.keys import key_of
from redis_lock_decorators._rules.permissions import commands

__all__ = ["Finding", "Severity", "diagnose"]

ROUND_TRIPS = 3
Check = Callable[[], Iterator[Finding]]


def diagnose(
    client: BlockingClient,
    *,
    expire: float = 10,
    prefix: str = "sys:lock:",
    uses: Sequence[str] = (),
) -> list[Finding]:
    """Find what would break locks that are used through a client, worst first.

    Each command is tried on a throw-away key under the prefix, and a throw-away lock is acquired,
    handed from one thread to another and released, on each primary node. That takes less than a
    second on a healthy server. Neither the data nor the settings of a server are changed.

    Args:
        client: the Redis client.
        expire: the length of the leases in seconds, as the program gives it.
        prefix: the text before the name in the Redis key.
        uses: features that the program needs in addition to waiting in queues, as they are named
            in the list of permissions: ``"fencing"``, ``"min_hold"``, ``"replicas"`` …

    Raises:
        ConfigurationError: the client is one of asyncio, or a use is unknown.
    """
    refuse_unfit(client, awaited=False)
    needed = [rights.WAITING, *([rights.CLUSTER] if is_cluster(client) else []), *uses]
    commands(needed)  # refuses unknown ones
    nodes = nodes_of(client)
    return merged(_findings(client, nodes, expire, prefix, needed))


def _findings(
    client: Any, nodes: list[Node], expire: float, prefix: str, uses: list[str]
) -> Iterator[Finding]:
    if not nodes:
        yield from _unknown_client(client, prefix)
        return
    samples: list[ClockSample] = []
    names = trial_names(client, prefix, nodes)
    settings = client_settings.settings_of(client, nodes[0].parameters)
    yield from client_settings.findings(settings, expire)
    yield from coverage.findings(client)
    for node in nodes:
        name = names.get(node.address)
        for finding in _of_node(client, node, name, expire, prefix, uses, samples):
            yield at(node.address, finding)
    yield from clocks.findings(samples)


def _unknown_client(client: Any, prefix: str) -> Iterator[Finding]:
    """Try a lock of a client whose connections are not known, such as a wrapper."""
    kind = type(client).__name__
    yield unchecked("The server and its user", f"the connections of a {kind} are not known")
    name = random_name()
    yield from _tried(client, prefix, name, [])


def _of_node(
    client: Any,
    node: Node,
    name: str | None,
    expire: float,
    prefix: str,
    uses: list[str],
    samples: list[ClockSample],
) -> Iterator[Finding]:
    found: list[Finding] = []
    try:
        with connected(node) as asker:
            found += _asked(node, asker, expire, samples)
            if node.is_primary and name is not None:
                found += _rights(asker, prefix, name, uses, found)
    except Exception as error:
        refuse_other(error)
        yield coverage.unreachable(node, error)
        return
    yield from found
    if node.is_primary and name is not None:
        yield from _locks(client, node, name, prefix, found)


def _asked(
    node: Node, asker: Asker, expire: float, samples: list[ClockSample]
) -> Iterator[Finding]:
    yield from client_settings.far(_round_trip(asker), expire)
    sample = clocks.sampled(node.address, asker)
    if sample is None:
        yield Finding(Severity.UNCHECKED, "The clock of the server", "TIME is refused")
    else:
        samples.append(sample)
    reply = asker.ask("INFO")
    if isinstance(reply, Exception):
        yield unchecked("Eviction, memory, version, role, persistence and replicas", reply)
    elif node.is_primary:
        yield from server_state.findings(parsed_info(reply))


def _round_trip(asker: Asker) -> float:
    """The shortest of a few, in seconds."""

    def seconds() -> float:
        began = time.monotonic()
        asker.ask("PING")
        return time.monotonic() - began

    return min(seconds() for _ in range(ROUND_TRIPS))


def _rights(
    asker: Asker, prefix: str, name: str, uses: list[str], found: Sequence[Finding]
) -> list[Finding]:
    tried = rights.tried(asker, prefix, name)
    is_explained = any(finding.severity is Severity.FAILURE for finding in found)
    refused = [] if is_explained else rights.refused(tried)
    return [*refused, *rights.findings(tried, prefix, uses)]


def _locks(
    client: Any, node: Node, name: str, prefix: str, found: Sequence[Finding]
) -> Iterator[Finding]:
    """Try messages and a lock, unless it is known already why they fail."""
    known = {finding.severity for finding in found}
    if Severity.FAILURE in known:
        return
    is_notified = Severity.WAITING not in known
    messages = [lambda: _messages(node, key_of(prefix, name))] if is_notified else []
    yield from _tried(client, prefix, name, messages, is_notified)


def _tried(
    client: Any, prefix: str, name: str, messages: list[Check], is_notified: bool = True
) -> Iterator[Finding]:
    """Use a lock; yield the findings of the first check that has any.

    The others would fail for the same reason.
    """
    checks: list[Check] = [lambda: trial.used(client, prefix, name), *messages]
    if is_notified:
        checks.append(lambda: trial.handed_over(client, prefix, name))
    try:
        yield from next(filter(None, (list(check()) for check in checks)), [])
    finally:
        trial.remove(client, prefix, name)


def _messages(node: Node, key: bytes) -> Iterator[Finding]:
    try:
        delivery = notifications.tried(node, key)
    except Exception as error:
        refuse_other(error)
        yield unchecked("The delivery of messages", error)
        return
    if delivery is not None:
        yield from notifications.findings(delivery)
