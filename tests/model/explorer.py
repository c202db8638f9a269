"""Every state that a few waiters of one lock can reach, with a few faults, step by step.

A step is one request with its reply, one message read, one tick of the clocks, or one fault; a
process may pause for any time between two steps. Times are ages, so that histories are unlimited
but states are not. The server runs `scripts.Scripts`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from model.states import (
    ENDED,
    EXTERNAL,
    HOLDS,
    KEYS,
    LONG_AGO,
    MOST_UNREAD,
    NEW,
    OVER,
    RELEASED,
    WAITS,
    WANTS,
    Process,
    State,
    Waiter,
    identifier_of,
    owner,
    reads_in_time,
    ticked,
)
from model.step import Protocol, Step


class Violation(AssertionError):
    """A forbidden state, and the steps to it."""


@dataclass
class Explorer:
    """Visits all states that can be reached from the first one.

    Args:
        homes: the process of each waiter.
        faults: how many of each may happen: "crash", "cut", "timeout", "lost cancel", "copy", and
            by a client that may only publish and subscribe: "forgery", "replay".
        external: for how many ticks an external program holds the lock first; it publishes nothing.
        has_time: clocks tick, so that leases may end. If they do not, no key may remain.
        renews: holders may renew, once.
        most: visit only so many states, the nearest, and do not check for forgotten waiters.
        pings: processes send PING for evidence; else only the first request to join the queue is.
    """

    homes: tuple[int, ...]
    faults: dict[str, int] = field(default_factory=dict)
    protocol: Protocol = field(default_factory=Protocol)
    external: int = 0
    has_time: bool = True
    renews: bool = False
    pings: bool = True
    most: int | None = None

    def first(self) -> State:
        return State(
            key=(EXTERNAL, self.external) if self.external else None,
            queue=(),
            waiters_hash=(),
            processes=(Process(),) * (max(self.homes) + 1),
            waiters=tuple(Waiter(home) for home in self.homes),
            copies=(),
            faults=tuple(sorted(self.faults.items())),
        )

    def explore(self) -> int:
        """Check each state; returns their number.

        Raises:
            Violation: one of them is forbidden.
        """
        first = self.first()
        numbers = {first: 0}
        parents: list[tuple[int, str]] = [(-1, "")]
        before: list[list[int]] = [[]]  # by steps that are no faults
        good: list[int] = []
        states, todo = [first], deque([0])
        while todo:
            number = todo.popleft()
            state = states[number]
            if self._is_done(state):
                good.append(number)
            for name, is_fault, after in self.steps(state):
                known = numbers.get(after)
                if known is None:
                    known = numbers[after] = len(states)
                    states.append(after)
                    parents.append((number, name))
                    before.append([])
                    todo.append(known)
                    wrong = self._wrong(after)
                    if wrong:
                        raise Violation(_history(wrong, states, parents, known))
                    if known == self.most:
                        return known
                if not is_fault:
                    before[known].append(number)
        self._check_drained(states, parents, before, good)
        return len(states)

    def _check_drained(
        self, states: list[State], parents: Any, before: list[list[int]], good: list[int]
    ) -> None:
        """Check that the end can be reached from every state without another fault.

        As that is true in each state on the way too, every fair schedule reaches it.
        """
        is_good = [False] * len(states)
        for number in good:
            is_good[number] = True
        todo = list(good)
        while todo:
            for number in before[todo.pop()]:
                if not is_good[number]:
                    is_good[number] = True
                    todo.append(number)
        if not all(is_good):
            number = is_good.index(False)
            raise Violation(_history("a waiter is forgotten", states, parents, number))

    def _is_done(self, state: State) -> bool:
        if any(waiter.phase is not ENDED for waiter in state.waiters):
            return False
        if state.key or state.copies or any(process.inbox for process in state.processes):
            return False
        # Entries of late or dead waiters expire after a minute, which is not modelled.
        return self.has_time or not (state.queue or state.waiters_hash)

    def _wrong(self, state: State) -> str:
        holders = [
            identifier_of(at, waiter)
            for at, waiter in enumerate(state.waiters)
            if waiter.phase is HOLDS
        ]
        if len(holders) > 1:
            return "two leases overlap"
        if holders and (state.key is None or state.key[0] != holders[0]):
            return "a lock was granted while its holder is inside"
        if any(process.expired_grants > 1 for process in state.processes):
            return "a process that does nothing was granted the lock again"
        return ""

    def steps(self, state: State) -> Iterator[tuple[str, bool, State]]:
        """Each possible next step: its name, whether it is a fault, and the state after it."""
        yield from self._server_steps(state)
        for at, process in enumerate(state.processes):
            if not process.dead:
                yield from self._process_steps(state, at, process)
        for at, waiter in enumerate(state.waiters):
            if waiter.phase is not ENDED:
                yield from self._waiter_steps(state, at, waiter)

    def _server_steps(self, state: State) -> Iterator[tuple[str, bool, State]]:
        after = ticked(state, self.protocol.grant - 1) if self.has_time else state
        if after != state:
            yield "tick", False, after
        if state.key is not None and state.key[0] == EXTERNAL:
            yield "the external program deletes its key", False, state._replace(key=None)
        for copy in state.copies:
            step = Step(self.protocol, state)
            step.copies.remove(copy)
            step.enqueue(*copy)
            yield f"a copy of {copy[0]}'s enqueue arrives", False, step.state()

    def _process_steps(
        self, state: State, at: int, process: Process
    ) -> Iterator[tuple[str, bool, State]]:
        if process.open:
            awaiting = [
                number
                for number, waiter in enumerate(state.waiters)
                if waiter.process == at and waiter.phase is WAITS
            ]
            yield from self._forgeries(state, at, process)
            if process.inbox and not self._is_full(state, process):
                step = Step(self.protocol, state)
                step.receive(at)
                yield f"process {at} receives {process.inbox[0]}", False, step.state()
            if self._can_ping(process, awaiting):
                step = Step(self.protocol, state)
                step.processes[at] = process._replace(inbox=(*process.inbox, ("pong", 0)))
                yield f"process {at} pings", False, step.state()
            if self._can_recheck(state, process, awaiting):
                step = Step(self.protocol, state)
                step.processes[at] = process._replace(expired_grants=0)
                step.recheck(awaiting)
                yield f"process {at} rechecks", False, step.state()
            step = Step(self.protocol, state)
            if step.use_fault("cut"):
                step.processes[at] = process._replace(open=False, inbox=())
                for number, waiter in enumerate(state.waiters):
                    if waiter.process == at:
                        step.waiters[number] = waiter._replace(is_fresh=False)
                yield f"the connection of process {at} is cut", True, step.state()
        else:
            step = Step(self.protocol, state)
            step.processes[at] = process._replace(open=True, evidence=LONG_AGO)
            for number, waiter in enumerate(state.waiters):
                if waiter.process == at:
                    step.notify(number, "again")
            yield f"process {at} reconnects", False, step.state()
        step = Step(self.protocol, state)
        if step.use_fault("crash"):
            step.processes[at] = Process(open=False, dead=True)
            for number, waiter in enumerate(state.waiters):
                if waiter.process == at:
                    step.waiters[number] = Waiter(at, ENDED)
            yield f"process {at} crashes", True, step.state()

    def _forgeries(
        self, state: State, at: int, process: Process
    ) -> Iterator[tuple[str, bool, State]]:
        """Messages to a process from a client that may only publish and subscribe."""
        if not reads_in_time(process):
            return
        for number, waiter in enumerate(state.waiters):
            if (
                waiter.process != at
                or not waiter.is_requested
                or waiter.phase not in (WANTS, WAITS)
            ):
                continue
            identifier = identifier_of(number, waiter)
            forgeries = [("forged", "forgery"), ("again", "forgery")]
            if identifier in state.public:
                forgeries.append(("turn", "replay"))
            for kind, fault in forgeries:
                step = Step(self.protocol, state)
                if step.use_fault(fault):
                    inbox = (*process.inbox, (kind, identifier))
                    step.processes[at] = process._replace(inbox=inbox)
                    yield f"another client publishes {kind} {identifier}", True, step.state()

    def _is_full(self, state: State, process: Process) -> bool:
        """Whether the next message is for a waiter that has to read others first."""
        kind, value = process.inbox[0]
        return kind != "pong" and len(state.waiters[owner(value)].signal) >= MOST_UNREAD

    def _can_ping(self, process: Process, awaiting: list[int]) -> bool:
        """Whether a PING may give new evidence, and none is under way."""
        is_useful = awaiting and process.evidence > 0 and self.has_time and self.pings
        return (
            bool(is_useful)
            and reads_in_time(process)
            and all(kind != "pong" for kind, _ in process.inbox)
        )

    def _can_recheck(self, state: State, process: Process, awaiting: list[int]) -> bool:
        """Whether a recheck may find anything."""
        if not awaiting or not self.protocol.rechecks or not reads_in_time(process):
            return False
        entries = {entry for entry, _ in state.queue}
        awaited = (self.protocol.entry(at, state.waiters[at]) for at in awaiting)
        return state.key is None or any(entry not in entries for entry in awaited)

    def _waiter_steps(
        self, state: State, at: int, waiter: Waiter
    ) -> Iterator[tuple[str, bool, State]]:
        home = state.processes[waiter.process]
        is_open = home.open
        if waiter.phase is NEW:
            step = Step(self.protocol, state)
            step.ask(at, WANTS)
            yield f"{at} tries", False, step.state()
        elif waiter.phase is WANTS and is_open and (waiter.signal or reads_in_time(home)):
            step = Step(self.protocol, state)
            step.join_queue(at)
            yield f"{at} joins the queue", False, step.state()
        elif waiter.signal and (waiter.phase is WAITS or (waiter.phase is WANTS and not is_open)):
            step = Step(self.protocol, state)
            step.read_signal(at)
            yield f"{at} reads {waiter.signal[0]}", False, step.state()
        elif waiter.phase in (HOLDS, OVER):
            step = Step(self.protocol, state)
            step.act(at)
            step.run("release", (*KEYS, RELEASED), identifier_of(at, waiter))
            step.waiters[at] = Waiter(waiter.process, ENDED)
            yield f"{at} releases", False, step.state()
            if waiter.phase is HOLDS and self.renews and not waiter.renewed:
                step = Step(self.protocol, state)
                step.renew(at)
                yield f"{at} renews", False, step.state()
        if waiter.phase in (WANTS, WAITS):
            if not is_open:
                step = Step(self.protocol, state)
                step.ask(at, waiter.phase)
                yield f"{at} polls", False, step.state()
            yield from self._exits(state, at, waiter)

    def _exits(self, state: State, at: int, waiter: Waiter) -> Iterator[tuple[str, bool, State]]:
        for reason in ("timeout", "lost cancel", "copy"):
            step = Step(self.protocol, state)
            if not step.use_fault(reason):
                continue
            step.act(at)
            if self.protocol.cancels and reason != "lost cancel":
                step.run("cancel", KEYS, identifier_of(at, waiter), self.protocol.entry(at, waiter))
            if reason == "copy":
                step.copies.append((at, waiter.entry, waiter.ticket))
            step.waiters[at] = Waiter(waiter.process, ENDED)
            yield f"{at} leaves ({reason})", True, step.state()


def _history(wrong: str, states: list[State], parents: Any, number: int) -> str:
    lines: list[str] = [f"  {states[number]}"]
    while number > 0:
        number, name = parents[number]
        lines.append(f"  {name}")
    return "\n".join([wrong, *reversed(lines)])
