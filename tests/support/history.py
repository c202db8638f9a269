"""The histories that processes record of their locks, and the invariants that must hold.

Times are monotonic seconds, which all processes of a machine share. An attempt is a dictionary:

- ``lock``, ``strategy``, ``patience`` (seconds it may wait), ``invoked``;
- once it holds the lock: ``granted``, ``identifier``, ``fence``, ``deadline`` (None: unknown);
- when its block ends: ``releasing``, ``deadline`` again, ``lost`` (as reported by its lease);
- ``notified``: when ``on_lost`` was called, if it was;
- ``ended`` and ``outcome``: ok, refused, lost, cancelled, unknown, error or wrong, with ``why``.

For a short time a cohort hands a lease off without a request to Redis (decision 0031). Then:

- ``led``: for each member that received it in that time, when the first holder entered;
- ``handed_off``: its holder handed it off in that time.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import pathlib
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Attempt = dict[str, Any]
#: Outcomes that show the caller that its lease may be lost.
AWARE = ("lost", "unknown", "error", "cancelled")
#: Seconds for which a cohort hands a lease off without a request to Redis: in that time only the
#: last holder notices a loss.
UNCHECKED_SECONDS = 0.25


class Diary:
    """The log of one process: a line of JSON for each event, kept even if the process is killed."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self._file = os.open(folder / f"{name}.history", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._number = 0
        self._mutex = threading.Lock()

    def begin(self, **details: Any) -> int:
        """Start an attempt; returns its number."""
        with self._mutex:
            self._number += 1
            number = self._number
        self.note(number, invoked=time.monotonic(), **details)
        return number

    def note(self, number: int, **details: Any) -> None:
        """Record more about an attempt."""
        os.write(self._file, (json.dumps({"attempt": number, **details}) + "\n").encode())

    def granted(self, number: int, lease: Any) -> None:
        """Record that it holds the lock."""
        self.note(
            number,
            granted=time.monotonic(),
            deadline=lease.deadline,
            identifier=lease.identifier,
            fence=lease.fence,
        )

    def releasing(self, number: int, lease: Any) -> None:
        """Record that it is about to release the lock, or that its lease has ended."""
        self.note(number, releasing=time.monotonic(), deadline=lease.deadline, lost=lease.lost)

    def notified(self, number: int, why: str) -> None:
        """Record that ``on_lost`` was called."""
        self.note(number, notified=time.monotonic(), notified_why=why)

    def end(self, number: int, outcome: str, why: str | None = None) -> None:
        """Record the end of an attempt."""
        details = {} if why is None else {"why": why}
        self.note(number, ended=time.monotonic(), outcome=outcome, **details)


def attempts(folder: pathlib.Path) -> list[Attempt]:
    """All attempts of all processes, each with everything that was recorded."""
    found: dict[tuple[str, int], Attempt] = {}
    for path in sorted(folder.glob("*.history")):
        for line in path.read_text().splitlines():
            details = json.loads(line)
            number = details.pop("attempt")
            found.setdefault((path.stem, number), {"process": path.stem}).update(details)
    history = list(found.values())
    trace(history)
    return history


def trace(history: list[Attempt]) -> None:
    """Mark the leases of cohorts that were handed off without a request to Redis."""
    entered = [one for one in history if one.get("strategy") == "cohort" and "granted" in one]
    entered.sort(key=lambda one: (one["lock"], one["identifier"], one["granted"]))
    for _, chain in itertools.groupby(entered, key=lambda one: (one["lock"], one["identifier"])):
        leader, *next_members = chain
        member = leader
        for next_member in next_members:
            if member.get("releasing", math.inf) > leader["granted"] + UNCHECKED_SECONDS:
                break
            member["handed_off"], next_member["led"] = True, leader["granted"]
            member = next_member


@dataclass
class Harm:
    """The faults injected into one process: when it was stopped, and when it was killed."""

    stops: list[tuple[float, float]] = field(default_factory=list)
    killed: float | None = None


Harms = dict[str, Harm]


@dataclass(frozen=True)
class Allowed:
    """Leases that a fault may end.

    Those entered by ``since``, regarded as held until ``until`` at the latest. ``why`` names the
    guarantee that is not given. Until ``masters`` two servers acted as master.
    """

    since: float
    until: float
    why: str
    masters: float = -math.inf

    def explains_overlap(self, older: Attempt, newer: Attempt, end: float) -> bool:
        lost = self.explains_loss(older) or ("led" in newer and self.explains_loss(newer))
        return lost and end <= self.until

    def explains_loss(self, lease: Attempt) -> bool:
        return bool(lease.get("led", lease["granted"]) <= self.since)

    def explains_silence(self, older: Attempt, newer: Attempt) -> bool:
        """Whether the loss could not be known: two servers held it, or a cohort handed it off."""
        return self._was_at_two(older, newer) or self._was_handed_off(older, newer)

    def _was_at_two(self, older: Attempt, newer: Attempt) -> bool:
        """Whether one of them may have released at a server that was still a master.

        Or the newer one was notified of the loss: it entered where the lock was still free.
        """
        if newer["granted"] <= self.masters and _is_notified(newer):
            return True
        return any(one.get("releasing", math.inf) <= self.masters for one in (older, newer))

    def _was_handed_off(self, older: Attempt, newer: Attempt) -> bool:
        """Whether a cohort still handed off one of the leases after it was lost."""
        if "led" in newer and self.explains_loss(newer):
            return "handed_off" in newer or _is_notified(newer)
        return "handed_off" in older and self.explains_loss(older)


def ends(attempt: Attempt, harms: Harms) -> float:
    """When its holder stopped believing to hold the lock."""
    deadline, released = attempt["deadline"], attempt.get("releasing")
    if released is None:
        harm = harms.get(attempt["process"])
        released = math.inf if harm is None or harm.killed is None else harm.killed
    believed = math.inf if deadline is None else deadline
    return float(min(released, believed, attempt.get("notified", math.inf)))


def overlaps(history: list[Attempt], harms: Harms, allowed: Iterable[Allowed] = ()) -> list[str]:
    """Overlaps of two holders of a lock that no fault explains."""
    found = []
    for older, newer in overlapping(history, harms):
        until = min(ends(older, harms), ends(newer, harms))
        if not any(one.explains_overlap(older, newer, until) for one in allowed):
            seconds = until - newer["granted"]
            found.append(f"two held the lock for {seconds:.3f} s: {older} and {newer}")
    return found


def overlapping(history: list[Attempt], harms: Harms) -> Iterator[tuple[Attempt, Attempt]]:
    """The pairs that held a lock at the same time, the earlier one first."""
    for entered in _by_lock(history):
        inside: list[Attempt] = []
        for newer in entered:
            if ends(newer, harms) <= newer["granted"]:
                continue  # its lease had ended before it could notice the grant
            inside = [older for older in inside if ends(older, harms) > newer["granted"]]
            yield from ((older, newer) for older in inside)
            inside.append(newer)


def unnotified(history: list[Attempt], allowed: Iterable[Allowed] = ()) -> list[str]:
    """Holders that were not notified although another entered before they released.

    An allowed fault explains only that a cohort handed off a lease that the fault had ended.
    """
    found, allowed = [], list(allowed)
    for entered in _by_lock(history):
        inside: list[Attempt] = []
        for newer in entered:
            inside = [older for older in inside if older["releasing"] > newer["granted"]]
            for older in inside:
                explained = any(fault.explains_silence(older, newer) for fault in allowed)
                if not _is_notified(older) and not explained:
                    found.append(f"a loss was not reported: {older}, overlapping {newer}")
            if "releasing" in newer:
                inside.append(newer)
    return found


def losses(history: list[Attempt], allowed: Iterable[Allowed] = ()) -> list[str]:
    """Losses of leases that no fault explains."""
    allowed = list(allowed)
    lost = [one for one in history if "granted" in one and _is_lost(one)]
    return [
        f"a lease was lost: {one}"
        for one in lost
        if not any(fault.explains_loss(one) for fault in allowed)
    ]


def fences(history: list[Attempt], harms: Harms) -> list[str]:
    """Fences that are not greater than their predecessors."""
    found = []
    for entered in _by_lock(history):
        inside = [
            one
            for one in entered
            if one.get("fence") is not None and one["granted"] < ends(one, harms)
        ]
        for before, after in itertools.pairwise(inside):
            if after["fence"] <= before["fence"]:
                found.append(f"the fence does not grow: {before} and {after}")
    return found


def delays(history: list[Attempt], harms: Harms, lateness: float) -> list[str]:
    """Attempts that were refused too late, in processes that were not stopped."""
    found = []
    for one in history:
        if one.get("outcome") != "refused":
            continue
        stops = harms[one["process"]].stops
        if any(start < one["ended"] and end > one["invoked"] for start, end in stops):
            continue
        if one["ended"] > one["invoked"] + one["patience"] + lateness:
            found.append(f"refused too late: {one}")
    return found


def starved(
    history: list[Attempt], harms: Harms, healed: float, healing: float, idle: float = math.inf
) -> list[str]:
    """Attempts that waited for more than ``healing`` seconds after the last fault, or were refused.

    Or that waited for more than ``idle`` seconds while the lock was free: only this counts for
    polling waiters, as others may be faster any number of times.
    """
    found = []
    inside = {entered[0]["lock"]: _spans(entered, harms) for entered in _by_lock(history)}
    for one in history:
        if harms[one["process"]].killed is not None or one["patience"] < healing:
            continue
        answered = one.get("granted", one.get("ended", math.inf))
        begun = max(one["invoked"], healed)
        waited, free = answered - begun, _free(inside.get(one.get("lock"), ()), begun, answered)
        if waited > healing and one.get("strategy") != "poll":
            found.append(f"waited {waited:.2f} s after the last fault: {one}")
        elif free > min(idle, healing):
            found.append(f"waited {free:.2f} s for a free lock: {one}")
        elif one.get("outcome") == "refused" and one["ended"] > healed:
            found.append(f"refused after the last fault: {one}")
    return found


def _spans(entered: list[Attempt], harms: Harms) -> list[tuple[float, float]]:
    """The times during which each held the lock, in the order of entry."""
    return [(one["granted"], ends(one, harms)) for one in entered]


def _free(inside: Iterable[tuple[float, float]], begun: float, over: float) -> float:
    """The seconds of this period in which the lock was free."""
    found = 0.0
    for entered, left in inside:
        if entered >= over:
            break
        found += max(0.0, entered - begun)
        begun = max(begun, left)
    return found + max(0.0, over - begun)


def failures(history: list[Attempt], healed: float) -> list[str]:
    """Errors that no fault explains: attempts that began after ``healed``, and bugs at any time."""
    return [
        f"failed: {one}"
        for one in history
        if one.get("outcome") == "wrong"
        or (one.get("outcome") in ("error", "unknown") and one["invoked"] > healed)
    ]


def _by_lock(history: list[Attempt]) -> Iterator[list[Attempt]]:
    """The attempts that entered, grouped by lock, in the order of entry."""
    granted = [one for one in history if "granted" in one]
    granted.sort(key=lambda one: (one["lock"], one["granted"]))
    for _, entered in itertools.groupby(granted, key=lambda one: one["lock"]):
        yield list(entered)


def _is_notified(lease: Attempt) -> bool:
    return "notified" in lease or bool(lease.get("lost")) or lease.get("outcome") in AWARE


def _is_lost(lease: Attempt) -> bool:
    return "notified" in lease or bool(lease.get("lost")) or lease.get("outcome") == "lost"
