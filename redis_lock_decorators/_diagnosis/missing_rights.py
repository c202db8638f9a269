"""Judge what a user must not do, or what a server lacks, by what locks need it for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redis_lock_decorators._diagnosis.finding import Finding, Severity
from redis_lock_decorators._diagnosis.rights import CLUSTER, WAITING, Denial, Denials, Rights
from redis_lock_decorators._rules.permissions import CHANNEL, RIGHTS, commands, key_pattern

#: Of these the lack is tolerated: they record releases, or skip crashed waiters and save requests.
RECORDS = frozenset(("TIME", "ZREMRANGEBYSCORE", "ZREMRANGEBYRANK"))
SAVINGS = frozenset(("INFO", "PUBSUB|NUMSUB", "HSET", "HEXISTS"))
#: Of "every lock", these serve hand-overs only.
HAND_OVERS = frozenset(("EXISTS", "ZSCORE"))
#: Without them other commands are used.
REPLACED = frozenset(("PEXPIRETIME",))
#: The commands that a server knows under one of these names only.
NATIVE = frozenset(("DELIFEQ", "DELEX"))


def refused(rights: Rights) -> Iterator[Finding]:
    """Yield that the server does not write."""
    if rights.refusal is not None:
        yield Finding(
            Severity.FAILURE,
            "The server refuses to write the key of a lock",
            f"{type(rights.refusal).__name__}: {rights.refusal}",
            "Remove what it names; see also the server's log.",
        )


def findings(rights: Rights, prefix: str, uses: Sequence[str]) -> Iterator[Finding]:
    """Yield what the denials mean to locks that are used so; hints for the other uses."""
    denials, chosen = rights.denials, set(commands(uses))
    yield from _places(denials, prefix, chosen)
    yield from _commands(denials, chosen)
    yield from _unused(denials, uses, chosen)


def _places(denials: Denials, prefix: str, chosen: set[str]) -> Iterator[Finding]:
    keys = [one for one, denial in denials.items() if denial is Denial.KEY and one in chosen]
    if keys:
        yield Finding(
            Severity.FAILURE,
            f"The user must not use keys that begin with {prefix}",
            f"{_listed(keys)} on such a key: locks cannot be used.",
            f"ACL SETUSER … ~{key_pattern(prefix)}  (redis-lock doctor --acl USER prints all)",
        )
    channels = [one for one, denial in denials.items() if denial is Denial.CHANNEL]
    if chosen.intersection(channels):
        yield Finding(
            Severity.WAITING,
            f"The user must not use the channels {CHANNEL}*",
            "Waiters are not notified of a hand-over. They poll, and the order of arrival is lost.",
            f"ACL SETUSER … &{CHANNEL}*  (redis-lock doctor --acl USER prints all)",
        )


def _commands(denials: Denials, chosen: set[str]) -> Iterator[Finding]:
    for denial in (Denial.COMMAND, Denial.UNKNOWN):
        refused = [one for one, found in denials.items() if found is denial and one in chosen]
        refused = [one for one in refused if one not in NATIVE | REPLACED]
        for severity in Severity:
            if found := [one for one in refused if _severity(one) is severity]:
                yield _of_commands(severity, found, denial)


def _severity(command: str) -> Severity:
    if command in RECORDS:
        return Severity.RISK
    if command in SAVINGS:
        return Severity.SLOW
    if command in HAND_OVERS:
        return Severity.WAITING
    is_waiting = command in RIGHTS[WAITING] and command not in RIGHTS["every lock"]
    return Severity.WAITING if is_waiting else Severity.FAILURE


MEANINGS = {
    Severity.FAILURE: "Locks that need this cannot be acquired, renewed or released.",
    Severity.WAITING: "Locks are not handed to waiters. They poll, and the order of arrival is "
    "lost.",
    Severity.RISK: "Releases are not recorded: one whose reply is lost may be reported as a loss.",
    Severity.SLOW: "A waiter may need one more request, and a crashed waiter may delay the others "
    "by up to 2.5 s.",
}


def _of_commands(severity: Severity, refused: list[str], denial: Denial) -> Finding:
    names = _listed(refused)
    if denial is Denial.UNKNOWN:
        return Finding(
            severity,
            f"The server lacks {names}",
            MEANINGS[severity],
            "Take its rename-command out of the server's configuration, or use a server or proxy "
            "that has it.",
        )
    allowed = " ".join(f"+{one.lower()}" for one in refused)
    return Finding(
        severity,
        f"The user must not run {names}",
        MEANINGS[severity],
        f"ACL SETUSER … {allowed}  (redis-lock doctor --acl USER prints all)",
    )


def _unused(denials: Denials, uses: Sequence[str], chosen: set[str]) -> Iterator[Finding]:
    """Hints about uses that were not asked for, and about the native release."""
    for use, needed in RIGHTS.items():
        if use == CLUSTER and use not in uses:
            continue
        if use == 'release_method="native"':
            missing = list(needed) if denials.keys() >= set(needed) else []
        else:
            missing = [one for one in needed if one in denials and one not in chosen]
            missing = [one for one in missing if one not in REPLACED]
        if missing:
            reasons = dict.fromkeys(denials[one].value for one in missing)
            yield Finding(
                Severity.FAILURE if use in uses else Severity.HINT,
                f"Not available here: {use}",
                f"{_listed(missing)}: {', '.join(reasons)}.",
                "Nothing, unless you use it." if use not in uses else "Use another method.",
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name.replace("|", " ") for name in names)
