"""What a check found."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

from redis_lock_decorators._rules.redaction import described


class Severity(enum.Enum):
    """How bad a finding is; the members are in this order, worst first."""

    EXCLUSION = "breaks exclusion"
    FAILURE = "locks fail"
    WAITING = "breaks waiting"
    RISK = "risk"
    SLOW = "slow"
    UNCHECKED = "not checked"
    HINT = "hint"


ORDER = tuple(Severity)
BREAKING = frozenset((Severity.EXCLUSION, Severity.FAILURE, Severity.WAITING))


@dataclass(frozen=True)
class Finding:
    """Something about a server, a user or a client that concerns locks.

    Attributes:
        severity: how bad it is.
        title: what was found.
        meaning: what it does to locks; of a check that was not made, the reason.
        cure: what to do; "" if nothing need be done.
        servers: the addresses of the servers that have it; empty if it concerns the client.
    """

    severity: Severity
    title: str
    meaning: str
    cure: str = ""
    servers: tuple[str, ...] = ()

    @property
    def is_breaking(self) -> bool:
        """Whether locks do not exclude, do not work, or do not wake their waiters."""
        return self.severity in BREAKING


def at(server: str, finding: Finding) -> Finding:
    """The same finding, of one server unless it names others."""
    return finding if finding.servers else replace(finding, servers=(server,))


def unchecked(title: str, error: Exception | str) -> Finding:
    """The finding that a check could not be made."""
    reason = error if isinstance(error, str) else described(error)
    return Finding(Severity.UNCHECKED, title, reason)


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Join the same finding of several servers; return the worst first."""
    joined: dict[Finding, list[str]] = {}
    for finding in findings:
        joined.setdefault(replace(finding, servers=()), []).extend(finding.servers)
    found = [replace(one, servers=tuple(dict.fromkeys(at))) for one, at in joined.items()]
    return sorted(found, key=lambda one: ORDER.index(one.severity))
