"""Judge what a user must not do, or what a server lacks, by what locks need it for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redis_lock_decorators._diagnosis.finding import Finding, Severity
from redis_lock_decorators._diagnosis.rights import WAITING, Denial, Denials, Rights
from redis_lock_decorators._rules.permissions import CHANNEL, RIGHTS, commands, key_pattern
from redis_lock_decorators._rules.redaction import described

#: Of these the lack is tolerated: they record releases, or skip crashed waiters and save requests.
RECORDS = frozenset(("TIME", "ZREMRANGEBYSCORE", "ZREMRANGEBYRANK"))
SAVINGS = frozenset(("INFO", "PUBSUB|NUMSUB", "HSET", "HEXISTS"))
#: Of "every lock", these serve hand-overs only.
HAND_OVERS = frozenset(("EXISTS", "ZSCORE"))
#: Without them other commands are used.
REPLACED = frozenset(("PEXPIRETIME",))
#: A server knows one of its two commands at most, and is used only if it does.
NATIVE = 'release_method="native"'
#: Without their commands locks are released by other ones, or only not shown.
OPTIONAL = ('release_method="transaction"', NATIVE, "redis-lock ls and show")
#: Features that fail without any of their commands.
ESSENTIAL = ("fencing", "min_hold", "replicas", "locks in place of redis-py's")


def refused(rights: Rights) -> Iterator[Finding]:
    """Yield that the server does not write."""
    if rights.refusal is not None:
        yield Finding(
            Severity.FAILURE,
            "The server refuses to write the key of a lock",
            described(rights.refusal),
            "Remove what it names; see also the server's log.",
        )


def findings(rights: Rights, prefix: str, uses: Sequence[str]) -> Iterator[Finding]:
    """Yield what the denials mean to locks that are used so; hints for the other uses."""
    denials, chosen = rights.denials, set(commands(uses))
    core = set(commands([use for use in uses if use not in OPTIONAL]))
    yield from _places(denials, prefix, chosen)
    yield from _commands(denials, core, uses)
    yield from _features(denials, core, uses)


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


def _commands(denials: Denials, core: set[str], uses: Sequence[str]) -> Iterator[Finding]:
    for denial in (Denial.COMMAND, Denial.UNKNOWN):
        refused = [one for one, found in denials.items() if found is denial]
        refused = [one for one in refused if one in core and one not in REPLACED]
        for severity in Severity:
            if found := [one for one in refused if _severity(one, uses) is severity]:
                yield _of_commands(severity, found, denial)


def _severity(command: str, uses: Sequence[str]) -> Severity:
    if any(command in RIGHTS[use] for use in ESSENTIAL if use in uses):
        return Severity.FAILURE
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


def _features(denials: Denials, core: set[str], uses: Sequence[str]) -> Iterator[Finding]:
    """Yield the optional features that do not work, and as hints those that are not used."""
    for use in (*OPTIONAL, *ESSENTIAL):
        if missing := _missing(use, denials, core, uses):
            reasons = dict.fromkeys(denials[one].value for one in missing)
            yield Finding(
                _severity_of_feature(use, uses),
                f"Not available here: {use}",
                f"{_listed(missing)}: {', '.join(reasons)}.",
                "Do without it, or see to these commands." if use in uses else "",
            )


def _missing(use: str, denials: Denials, core: set[str], uses: Sequence[str]) -> list[str]:
    """The commands that a feature lacks, without those that are findings of their own."""
    needed = [one for one in RIGHTS[use] if one in denials and one not in REPLACED]
    if use == NATIVE:
        return needed if len(needed) == len(RIGHTS[use]) else []
    if use in OPTIONAL:
        return [one for one in needed if one not in core]
    return [] if use in uses else needed


def _severity_of_feature(use: str, uses: Sequence[str]) -> Severity:
    if use not in uses:
        return Severity.HINT
    return Severity.FAILURE if use == NATIVE else Severity.RISK


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name.replace("|", " ") for name in names)
