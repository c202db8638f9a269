"""Find what would break locks: of a server, its user, the network, and the client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis_lock_decorators._diagnosis import (
    client_settings,
    clocks,
    coverage,
    missing_rights,
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
from redis_lock_decorators._io.client_checks import refuse_unfit_client
from redis_lock_decorators._io.client_types import BlockingClient
from redis_lock_decorators._rules.keys import DEFAULT_PREFIX, key_of
from redis_lock_decorators._rules.permissions import commands

__all__ = ["Finding", "Severity", "diagnose"]

ROUND_TRIPS = 3
FENCING = "fencing"
Check = Callable[[], Iterator[Finding]]


def diagnose(
    client: BlockingClient,
    *,
    expire: float = 10,
    prefix: str = DEFAULT_PREFIX,
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
    refuse_unfit_client(client, awaited=False)
    needed = [rights.WAITING, *([rights.CLUSTER] if is_cluster(client) else []), *uses]
    commands(needed)  # refuses unknown ones
    nodes = nodes_of(client)
    return merged(_Diagnosis(client, prefix, expire, needed).findings(nodes))


@dataclass
class _Diagnosis:
    """One diagnosis.

    Attributes:
        client: the client.
        prefix: of the keys.
        expire: seconds of a lease.
        uses: the features that are needed.
        samples: the clocks of the servers that were asked.
    """

    client: Any
    prefix: str
    expire: float
    uses: Sequence[str]
    samples: list[ClockSample] = field(default_factory=list)

    def findings(self, nodes: Sequence[Node]) -> Iterator[Finding]:
        """Check the client, each server, and what they have in common."""
        if not nodes:
            yield from self._of_unknown_client()
            return
        names = trial_names(self.client, self.prefix, nodes)
        settings = client_settings.settings_of(self.client, nodes[0].parameters)
        yield from client_settings.findings(settings, self.expire)
        yield from coverage.findings(self.client)
        for node in nodes:
            for finding in self._of_node(node, names.get(node.address)):
                yield at(node.address, finding)
        yield from clocks.findings(self.samples)

    def _of_unknown_client(self) -> Iterator[Finding]:
        """Try a lock of a client whose connections are not known, such as a wrapper."""
        kind = type(self.client).__name__
        yield unchecked("The server and its user", f"the connections of a {kind} are not known")
        yield from self._tried(random_name(), [])

    def _of_node(self, node: Node, name: str | None) -> Iterator[Finding]:
        """Check one server; ``name`` is that of a lock there, None for a replica."""
        found: list[Finding] = []
        try:
            with connected(node) as asker:
                found += self._state(node, asker)
                if name is not None:
                    found += self._rights(asker, name, found)
        except Exception as error:
            refuse_other(error)
            yield coverage.unreachable(node, error)
            return
        yield from found
        if name is not None:
            yield from self._locks(node, name, {finding.severity for finding in found})

    def _state(self, node: Node, asker: Asker) -> Iterator[Finding]:
        yield from client_settings.far(_round_trip(asker), self.expire)
        sample = clocks.sampled(node.address, asker)
        if sample is None:
            yield unchecked("The clock of the server", "TIME is refused")
        else:
            self.samples.append(sample)
        reply = asker.ask("INFO")
        if isinstance(reply, Exception):
            yield unchecked("Eviction, memory, version, role, persistence and replicas", reply)
        elif node.is_primary:
            yield from server_state.findings(parsed_info(reply))

    def _rights(self, asker: Asker, name: str, found: Sequence[Finding]) -> Iterator[Finding]:
        tried = rights.tried(asker, self.prefix, name)
        if not any(finding.severity is Severity.FAILURE for finding in found):
            yield from missing_rights.refused(tried)
        yield from missing_rights.findings(tried, self.prefix, self.uses)

    def _locks(self, node: Node, name: str, known: set[Severity]) -> Iterator[Finding]:
        """Try messages and a lock, unless it is known already why they fail."""
        if Severity.FAILURE in known:
            return
        if Severity.WAITING in known:
            yield from self._tried(name, [], is_awaited=False)
        else:
            yield from self._tried(name, [lambda: _messages(node, key_of(self.prefix, name))])

    def _tried(
        self, name: str, messages: Sequence[Check], is_awaited: bool = True
    ) -> Iterator[Finding]:
        """Use a lock; yield the findings of the first check that has any.

        The others would fail for the same reason.
        """
        place = (self.client, self.prefix, name)
        checks: list[Check] = [lambda: trial.used(*place)]
        if FENCING in self.uses:
            checks.append(lambda: trial.fenced(*place))
        checks += messages
        if is_awaited:
            checks.append(lambda: trial.handed_over(*place))
        try:
            yield from next(filter(None, (list(check()) for check in checks)), [])
        finally:
            trial.remove(*place)


def _round_trip(asker: Asker) -> float:
    """The shortest of a few, in seconds."""

    def seconds() -> float:
        began = time.monotonic()
        asker.ask("PING")
        return time.monotonic() - began

    return min(seconds() for _ in range(ROUND_TRIPS))


def _messages(node: Node, key: bytes) -> Iterator[Finding]:
    try:
        delivery = notifications.tried(node, key)
    except Exception as error:
        refuse_other(error)
        yield unchecked("The delivery of messages", error)
        return
    if delivery is not None:
        yield from notifications.findings(delivery)
