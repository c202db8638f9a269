"""The states of the model: keys, processes and waiters, and how time changes them."""

from __future__ import annotations

from typing import Any, NamedTuple

KEYS = ("lock", "queue", "waiters")
LOCK, QUEUE, WAITERS_HASH = KEYS
#: Records of releases serve repeated requests only, so they are not part of a state.
RELEASED = "released"
#: An age that proves nothing.
LONG_AGO = 99
EXTERNAL = "external"

#: The phases of a waiter: it has not tried yet, has to join the queue, waits for a signal, holds
#: the lock, held it past its deadline, or has ended.
NEW, WANTS, WAITS, HOLDS, OVER, ENDED = "new", "wants", "waits", "holds", "over", "ended"


class Waiter(NamedTuple):
    """One acquisition. ``left`` ticks remain until its deadline; ages are in ticks.

    Attributes:
        entry: the number of its queue entry; each entry has its own identifier.
        is_requested: it sent the request for that entry.
        is_fresh: it did so on the current connection of its process.
        is_proved: it received the grant.
    """

    process: int
    phase: str = NEW
    entry: int = 0
    is_requested: bool = False
    is_fresh: bool = False
    is_proved: bool = False
    asked: int = LONG_AGO
    evidence: int = LONG_AGO
    left: int = 0
    ticket: int = 0
    signal: tuple[str, ...] = ()
    renewed: bool = False


class Process(NamedTuple):
    """A process and its subscribed connection; ``expired_grants`` since its last action.

    The inbox has unread messages: ("pong", age), ("turn", identifier), ("forged", identifier) for
    a grant without a valid proof, or ("again", identifier).
    """

    open: bool = True
    inbox: tuple[tuple[str, Any], ...] = ()
    evidence: int = LONG_AGO
    expired_grants: int = 0
    dead: bool = False


class State(NamedTuple):
    """The whole state; ``copies`` are requests that are still under way.

    ``public`` are the identifiers whose grant was published: any client may publish it again.
    """

    key: tuple[str, int] | None
    queue: tuple[tuple[str, int], ...]
    waiters_hash: tuple[str, ...]
    processes: tuple[Process, ...]
    waiters: tuple[Waiter, ...]
    copies: tuple[tuple[int, int, int], ...]
    faults: tuple[tuple[str, int], ...]
    public: tuple[str, ...] = ()


def identifier_of(at: int, waiter: Waiter) -> str:
    """The identifier of a waiter's current queue entry."""
    return f"{at}.{waiter.entry}"


def owner(identifier: str) -> int:
    """The number of the waiter of an identifier."""
    return int(identifier.partition(".")[0])


def normalized(state: State) -> State:
    """The same state without what no longer makes a difference."""
    listening = {one.process for one in state.waiters if one.phase in (NEW, WANTS, WAITS)}
    entries = {entry.split("|")[1] for entry, _ in state.queue}
    entries.update(f"{at}.{entry}" for at, entry, _ in state.copies)
    holder = state.key[0] if state.key else ""
    processes, waiters = list(state.processes), list(state.waiters)
    for at, waiter in enumerate(state.waiters):
        messages = state.processes[waiter.process].inbox
        own = identifier_of(at, waiter)
        is_known = own == holder or own in entries or ("turn", own) in messages
        if waiter.phase is OVER and not is_known:
            waiters[at] = Waiter(waiter.process, ENDED)
    for number, process in enumerate(state.processes):
        inbox = []
        for kind, value in process.inbox:
            is_idle = (
                number not in listening
                if kind == "pong"
                else (
                    waiters[owner(value)].phase is ENDED
                    and (kind != "turn" or (value != holder and value not in entries))
                )
            )
            if not is_idle:
                inbox.append((kind, value))
        if len(inbox) < len(process.inbox):
            processes[number] = process = process._replace(inbox=tuple(inbox))
        if number not in listening and (process.evidence, process.expired_grants) != (LONG_AGO, 0):
            processes[number] = process._replace(evidence=LONG_AGO, expired_grants=0)
    return state._replace(processes=tuple(processes), waiters=tuple(waiters))


def reads_in_time(process: Process) -> bool:
    """Whether a process reads its messages in time: else its connection would be closed."""
    return len(process.inbox) < MOST_UNREAD


def ticked(state: State, most: int) -> State:
    key, processes = state.key, list(state.processes)
    if key is not None:
        key = (key[0], key[1] - 1) if key[1] > 1 else None
        if key is None:
            _count_expired_grant(state, processes)
    after = state._replace(
        key=key,
        processes=tuple(
            process._replace(
                evidence=_older(process.evidence, most),
                inbox=tuple(
                    (kind, _older(value, most) if kind == "pong" else value)
                    for kind, value in process.inbox
                    if kind != "pong" or value < most
                ),
            )
            for process in processes
        ),
        waiters=tuple(_older_waiter(waiter, most) for waiter in state.waiters),
    )
    return normalized(after)


def _count_expired_grant(state: State, processes: list[Process]) -> None:
    """Count a grant that expired before its waiter entered."""
    holder = state.key[0] if state.key else ""
    for at, waiter in enumerate(state.waiters):
        home = processes[waiter.process]
        if identifier_of(at, waiter) == holder and waiter.phase in (WANTS, WAITS) and home.open:
            processes[waiter.process] = home._replace(expired_grants=home.expired_grants + 1)


def _older(age: int, most: int) -> int:
    """An age one tick later; a grant older than ``most`` has expired."""
    return age + 1 if age < most else LONG_AGO


#: With so many unread messages, a process or waiter reads before it does anything else.
MOST_UNREAD = 2


def _older_waiter(waiter: Waiter, most: int) -> Waiter:
    if waiter.phase is HOLDS:
        return waiter._replace(left=waiter.left - 1, phase=HOLDS if waiter.left > 1 else OVER)
    return waiter._replace(asked=_older(waiter.asked, most), evidence=_older(waiter.evidence, most))
