"""What the server and the clients do in one step of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from model.memory import Memory
from model.states import (
    HOLDS,
    KEYS,
    LOCK,
    LONG_AGO,
    QUEUE,
    WAITERS_HASH,
    WAITS,
    WANTS,
    State,
    Waiter,
    identifier_of,
    normalized,
    owner,
)

from redis_lock_decorators.testing.fake.scripts import Scripts, hint

#: More identifiers than can exist at a time, by their hints in messages.
NAMES = {hint(f"{at}.{entry}"): f"{at}.{entry}" for at in range(4) for entry in range(10)}


@dataclass
class Protocol:
    """The rules that clients follow, and the scripts; a mutant breaks one of them."""

    scripts: type[Scripts] = Scripts
    lease: int = 3
    grant: int = 2
    enough: int = 1
    needs_evidence: bool = True
    has_own_entries: bool = True
    needs_proof: bool = True
    needs_connection: bool = True
    first_counts: bool = True
    rechecks: bool = True
    notifies_missing: bool = True
    hands_off: bool = True
    keeps_what_it_entered: bool = True
    cancels: bool = True

    def entry(self, at: int, waiter: Waiter) -> str:
        """The queue entry of a waiter."""
        return f"{waiter.process}|{identifier_of(at, waiter)}|{self.grant}"


class Step:
    """A copy of a state that is being changed."""

    def __init__(self, protocol: Protocol, state: State) -> None:
        self.protocol, self.before = protocol, state
        self.processes, self.waiters = list(state.processes), list(state.waiters)
        self.copies, self.faults = list(state.copies), state.faults
        self.public = set(state.public)
        self.memory: Memory | None = None

    def state(self) -> State:
        key, queue, waiters_hash = self.before[:3]
        if self.memory is not None:
            key = self.memory.strings.get(LOCK)
            queue = _compact(self.memory.queues.get(QUEUE, {}))
            waiters_hash = tuple(
                sorted(map(":".join, self.memory.hashes.get(WAITERS_HASH, {}).items()))
            )
        processes, waiters = tuple(self.processes), tuple(self.waiters)
        copies = tuple(sorted(self.copies))
        public = tuple(sorted(self.public)) if dict(self.faults).get("replay") else ()
        return normalized(
            State(key, queue, waiters_hash, processes, waiters, copies, self.faults, public)
        )

    def act(self, at: int) -> None:
        """Note that a waiter's process does something, so it is not paused."""
        home = self.waiters[at].process
        self.processes[home] = self.processes[home]._replace(expired_grants=0)

    def use_fault(self, fault: str) -> bool:
        """Count one more of these faults; whether it is allowed."""
        left = dict(self.faults)
        if not left.get(fault):
            return False
        left[fault] -= 1
        self.faults = tuple(sorted(left.items()))
        return True

    def run(self, verb: str, *arguments: Any) -> Any:
        """Run a script on the server, and deliver its messages to inboxes."""
        memory = self._memory()
        reply = getattr(self.protocol.scripts(memory), verb)("", *arguments)
        for channel, message in memory.published:
            kind, called, *_ = message.split("|")
            process, identifier = self.processes[int(channel)], NAMES[called]
            inbox = (*process.inbox, (kind, identifier))
            self.processes[int(channel)] = process._replace(inbox=inbox)
            if kind == "turn":
                self.public.add(identifier)
        memory.published.clear()
        return reply

    def ask(self, at: int, otherwise: str) -> None:
        """The script "acquire"."""
        self.act(at)
        memory, waiter = self._memory(), self.waiters[at]
        identifier = identifier_of(at, waiter)
        if memory.get(LOCK) in (None, identifier):
            memory.set(LOCK, identifier, max(self.protocol.lease, memory.pttl(LOCK)))
            self.hold(at, self.protocol.lease)
        else:
            self.waiters[at] = waiter._replace(phase=otherwise)

    def learn(self, at: int) -> None:
        """The script "enter"."""
        self.act(at)
        waiter = self.waiters[at]
        entry = self.protocol.entry(at, waiter)
        reply = self.run("enter", KEYS, identifier_of(at, waiter), self.protocol.lease, entry)
        if reply == "":
            self.hold(at, self.protocol.lease)
        else:
            self.waiters[at] = waiter._replace(phase=WAITS if reply[3] else WANTS)

    def renew(self, at: int) -> None:
        """The script "extend"."""
        memory, lease, identifier = (
            self._memory(),
            self.protocol.lease,
            identifier_of(at, self.waiters[at]),
        )
        if memory.get(LOCK) == identifier:
            memory.set(LOCK, identifier, max(lease, memory.pttl(LOCK)))
            self.waiters[at] = self.waiters[at]._replace(left=lease, renewed=True)

    def enqueue(self, at: int, entry: int, ticket: int, former: str = "") -> Any:
        home = self.waiters[at].process
        details = (self.protocol.lease, str(home), self.protocol.grant, ticket, former)
        return self.run("enqueue", KEYS, f"{at}.{entry}", *details)

    def join_queue(self, at: int) -> None:
        self.act(at)
        waiter, former = self.waiters[at], ""
        if waiter.is_requested and self.protocol.has_own_entries:
            former = self.protocol.entry(at, waiter)
            waiter = waiter._replace(entry=self._new_entry(at), signal=())
        waiter = self.waiters[at] = waiter._replace(
            is_requested=True, is_fresh=True, is_proved=False, evidence=LONG_AGO
        )
        reply = self.enqueue(at, waiter.entry, waiter.ticket, former)
        if reply == "":
            self.hold(at, self.protocol.lease)
            return
        self.waiters[at] = waiter._replace(phase=WAITS, asked=0, ticket=reply[3])

    def _new_entry(self, at: int) -> int:
        """The number of an entry whose identifier is unused."""
        memory = self._memory()
        here = {waiter.entry for number, waiter in enumerate(self.waiters) if number == at}
        here.update(copy[1] for copy in self.copies if copy[0] == at)
        known = [memory.get(LOCK), memory.hget(WAITERS_HASH, "granted"), *memory.zall(QUEUE)]
        known += [name for one in self.processes for kind, name in one.inbox if kind != "pong"]
        for identifier in known:
            found = (identifier or "").split("|")
            own = found[1] if len(found) > 1 else found[0]
            if own.startswith(f"{at}."):
                here.add(int(own.partition(".")[2]))
        self.public = {public for public in self.public if owner(public) != at}
        return min(set(range(10)) - here)

    def hold(self, at: int, ticks: int) -> None:
        waiter = self.waiters[at]
        self.waiters[at] = Waiter(waiter.process, HOLDS, waiter.entry, left=ticks)

    def notify(self, at: int, signal: str) -> None:
        waiter = self.waiters[at]
        if waiter.phase not in (WANTS, WAITS) or signal in waiter.signal:
            return
        self.waiters[at] = waiter._replace(signal=(*waiter.signal, signal))

    def receive(self, at: int) -> None:
        process = self.processes[at]
        (kind, value), *others = process.inbox
        process = self.processes[at] = process._replace(inbox=tuple(others), expired_grants=0)
        if kind == "pong":
            newer = min(process.evidence, value)
            self.processes[at] = process._replace(evidence=newer)
            return
        number = owner(value)
        waiter = self.waiters[number]
        if waiter.phase in (WAITS, WANTS) and identifier_of(number, waiter) == value:
            self.handle_message(number, kind, process.evidence)
        elif kind == "turn" and self.protocol.hands_off:
            self.hand_off(number, value)

    def handle_message(self, at: int, kind: str, evidence: int) -> None:
        """A message for the current entry of a waiter."""
        waiter = self.waiters[at]
        is_grant = kind == "turn" or (kind == "forged" and not self.protocol.needs_proof)
        is_timely = waiter.is_fresh or not self.protocol.needs_connection
        if waiter.is_proved and self.protocol.first_counts:
            return
        if is_grant and is_timely:
            self.waiters[at] = waiter._replace(evidence=evidence, is_proved=True)
            self.notify(at, "turn")
        elif not {"ask", "again"} & set(waiter.signal):
            self.notify(at, "again" if kind == "again" else "ask")

    def hand_off(self, at: int, identifier: str) -> None:
        waiter = self.waiters[at]
        is_held = waiter.phase is HOLDS and identifier_of(at, waiter) == identifier
        if not is_held or not self.protocol.keeps_what_it_entered:
            self.run("cancel", KEYS, identifier, "")

    def read_signal(self, at: int) -> None:
        waiter = self.waiters[at]
        signal, *others = waiter.signal
        self.act(at)
        waiter = self.waiters[at] = waiter._replace(signal=tuple(others))
        if signal == "again":
            self.waiters[at] = waiter._replace(phase=WANTS)
            return
        if signal == "ask":
            self.learn(at)
            return
        age = min(waiter.asked, waiter.evidence) if self.protocol.needs_evidence else 0
        left = self.protocol.grant - age
        if left >= self.protocol.enough:
            self.hold(at, left)
        else:
            self.learn(at)

    def recheck(self, awaiting: list[int]) -> None:
        entries = [self.protocol.entry(at, self.waiters[at]) for at in awaiting]
        _, _, _, _, *missing = self.run("recheck", KEYS, "", *entries)
        for number in missing:
            if self.protocol.notifies_missing:
                self.notify(awaiting[number], "again")

    def _memory(self) -> Memory:
        if self.memory is None:
            memory = self.memory = Memory()
            state = self.before
            if state.key is not None:
                memory.strings[LOCK] = state.key
            if state.queue:
                memory.queues[QUEUE] = dict(state.queue)
            if state.waiters_hash:
                split = (value.rpartition(":")[::2] for value in state.waiters_hash)
                memory.hashes[WAITERS_HASH] = dict(split)
            memory.subscribed = {str(at) for at, one in enumerate(self.processes) if one.open}
        return self.memory


def _compact(queue: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(queue.items(), key=lambda entry: (entry[1], entry[0])))
