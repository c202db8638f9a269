"""Every state that a few waiters of one lock can come to, with a few faults, step by step.

A step is one request to the server with its reply, one message read, one tick of the clocks, or
one fault; processes are as slow as they like between two of their steps. Times are ages, so
that there is no end to a history but an end to its states. The server runs `scripts.Scripts`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from model.scripts import Memory, Scripts, hint

KEYS = ("lock", "queue", "facts")
LOCK, QUEUE, FACTS = KEYS
#: Notes of releases serve repeated requests only: what is noted is not part of a state.
RELEASED = "released"
#: An instant so long ago that it proves nothing.
LONG_AGO = 99
STRANGER = "stranger"

#: How a waiter is: it has not tried, must line up, waits for news, holds, held too long, or ended.
NEW, WANTS, WAITS, HOLDS, OVER, ENDED = "new", "wants", "waits", "holds", "over", "ended"


class Waiter(NamedTuple):
    """One acquisition. ``left`` ticks remain until its deadline; ages are in ticks.

    Attributes:
        place: which of its places it has; each has an identifier of its own.
        is_placed: it asked for that place.
        is_fresh: it did so on the connection that its process hears on now.
        is_proved: it was told that it has the lock.
    """

    process: int
    phase: str = NEW
    place: int = 0
    is_placed: bool = False
    is_fresh: bool = False
    is_proved: bool = False
    asked: int = LONG_AGO
    evidence: int = LONG_AGO
    left: int = 0
    ticket: int = 0
    signal: tuple[str, ...] = ()
    renewed: bool = False


class Process(NamedTuple):
    """A process and its connection to hear on; ``lapses`` since it lined up last.

    What it has not read yet are an answer to PING with its age, or words: ("turn", identifier), or
    ("forged", identifier) if nobody proves it, or ("again", identifier).
    """

    open: bool = True
    inbox: tuple[tuple[str, Any], ...] = ()
    evidence: int = LONG_AGO
    lapses: int = 0
    dead: bool = False


class State(NamedTuple):
    """All there is at an instant; ``copies`` are requests that are still under way.

    ``public`` are the identifiers whose grant was told, so that anybody may tell it again.
    """

    key: tuple[str, int] | None
    queue: tuple[tuple[str, int], ...]
    facts: tuple[str, ...]
    processes: tuple[Process, ...]
    waiters: tuple[Waiter, ...]
    copies: tuple[tuple[int, int, int], ...]
    faults: tuple[tuple[str, int], ...]
    public: tuple[str, ...] = ()


class Violation(AssertionError):
    """A state that must not be, and how it was come to."""


@dataclass
class Protocol:
    """The rules that clients keep, and the scripts; a mutant breaks one of them."""

    scripts: type[Scripts] = Scripts
    lease: int = 3
    grant: int = 2
    enough: int = 1
    needs_evidence: bool = True
    has_own_places: bool = True
    needs_proof: bool = True
    needs_connection: bool = True
    first_counts: bool = True
    pokes: bool = True
    tells_missing: bool = True
    hands_on: bool = True
    keeps_what_it_entered: bool = True
    cancels: bool = True


@dataclass
class Explorer:
    """Walks through all states from a first one.

    Args:
        homes: the process of each waiter.
        faults: how many of each there may be: "crash", "cut", "timeout", "lost cancel", "copy", and
            by who may publish and hear, but nothing else: "forgery", "replay".
        stranger: the ticks that a program holds the lock first which tells nobody; 0 for none.
        has_time: clocks tick, so that leases may end. If they do not, nothing at all may be left.
        renews: holders may renew, once.
        most: look at so many states only, the nearest, and not whether somebody is forgotten.
        pings: processes ask for evidence; else only the first request to line up is some.
    """

    homes: tuple[int, ...]
    faults: dict[str, int] = field(default_factory=dict)
    protocol: Protocol = field(default_factory=Protocol)
    stranger: int = 0
    has_time: bool = True
    renews: bool = False
    pings: bool = True
    most: int | None = None

    def first(self) -> State:
        return State(
            key=(STRANGER, self.stranger) if self.stranger else None,
            queue=(),
            facts=(),
            processes=(Process(),) * (max(self.homes) + 1),
            waiters=tuple(Waiter(home) for home in self.homes),
            copies=(),
            faults=tuple(sorted(self.faults.items())),
        )

    def explore(self) -> int:
        """How many states there are; each is checked.

        Raises:
            Violation: one of them must not be.
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
        """From every state there must be a way to the end without another fault.

        So no fair schedule can avoid that end, since it holds in each state on the way.
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
            raise Violation(_history("somebody is forgotten", states, parents, number))

    def _is_done(self, state: State) -> bool:
        if any(waiter.phase is not ENDED for waiter in state.waiters):
            return False
        if state.key or state.copies or any(process.inbox for process in state.processes):
            return False
        # What is left of who came too late or died ends by itself after minutes: not modelled.
        return self.has_time or not (state.queue or state.facts)

    def _wrong(self, state: State) -> str:
        holders = [
            name(at, waiter) for at, waiter in enumerate(state.waiters) if waiter.phase is HOLDS
        ]
        if len(holders) > 1:
            return "two leases overlap"
        if holders and (state.key is None or state.key[0] != holders[0]):
            return "a lease was given away while its holder believes in it"
        if any(process.lapses > 1 for process in state.processes):
            return "a process that does nothing was handed the lock again"
        return ""

    def steps(self, state: State) -> Iterator[tuple[str, bool, State]]:
        """Each step that may be next: its name, whether it is a fault, and the state after it."""
        yield from self._server_steps(state)
        for at, process in enumerate(state.processes):
            if not process.dead:
                yield from self._process_steps(state, at, process)
        for at, waiter in enumerate(state.waiters):
            if waiter.phase is not ENDED:
                yield from self._waiter_steps(state, at, waiter)

    def _server_steps(self, state: State) -> Iterator[tuple[str, bool, State]]:
        after = _ticked(state, self.protocol.grant - 1) if self.has_time else state
        if after != state:
            yield "tick", False, after
        if state.key is not None and state.key[0] == STRANGER:
            yield "the stranger deletes its key", False, state._replace(key=None)
        for copy in state.copies:
            step = Step(self, state)
            step.copies.remove(copy)
            step.line_up(*copy)
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
            yield from self._lies(state, at, process)
            if process.inbox and not self._is_full(state, process):
                step = Step(self, state)
                step.receive(at)
                yield f"process {at} hears {process.inbox[0]}", False, step.state()
            if self._can_ping(process, awaiting):
                step = Step(self, state)
                step.processes[at] = process._replace(inbox=(*process.inbox, ("pong", 0)))
                yield f"process {at} pings", False, step.state()
            if self._can_poke(state, process, awaiting):
                step = Step(self, state)
                step.processes[at] = process._replace(lapses=0)
                step.recheck(awaiting)
                yield f"process {at} pokes", False, step.state()
            step = Step(self, state)
            if step.spend("cut"):
                step.processes[at] = process._replace(open=False, inbox=())
                for number, waiter in enumerate(state.waiters):
                    if waiter.process == at:
                        step.waiters[number] = waiter._replace(is_fresh=False)
                yield f"the line of process {at} is cut", True, step.state()
        else:
            step = Step(self, state)
            step.processes[at] = process._replace(open=True, evidence=LONG_AGO)
            for number, waiter in enumerate(state.waiters):
                if waiter.process == at:
                    step.notify(number, "again")
            yield f"process {at} connects anew", False, step.state()
        step = Step(self, state)
        if step.spend("crash"):
            step.processes[at] = Process(open=False, dead=True)
            for number, waiter in enumerate(state.waiters):
                if waiter.process == at:
                    step.waiters[number] = Waiter(at, ENDED)
            yield f"process {at} crashes", True, step.state()

    def _lies(self, state: State, at: int, process: Process) -> Iterator[tuple[str, bool, State]]:
        """What may be said to a process by one who may only publish and hear."""
        if not _reads(process):
            return
        for number, waiter in enumerate(state.waiters):
            if waiter.process != at or not waiter.is_placed or waiter.phase not in (WANTS, WAITS):
                continue
            identifier = name(number, waiter)
            lies = [("forged", "forgery"), ("again", "forgery")]
            if identifier in state.public:
                lies.append(("turn", "replay"))
            for kind, fault in lies:
                step = Step(self, state)
                if step.spend(fault):
                    inbox = (*process.inbox, (kind, identifier))
                    step.processes[at] = process._replace(inbox=inbox)
                    yield f"somebody says {kind} {identifier}", True, step.state()

    def _is_full(self, state: State, process: Process) -> bool:
        """Whether the next word is for somebody who must read others first."""
        kind, fact = process.inbox[0]
        return kind != "pong" and len(state.waiters[owner(fact)].signal) >= MOST_WORDS

    def _can_ping(self, process: Process, awaiting: list[int]) -> bool:
        """Whether a PING may tell anything, and none is under way."""
        is_useful = awaiting and process.evidence > 0 and self.has_time and self.pings
        return (
            bool(is_useful) and _reads(process) and all(kind != "pong" for kind, _ in process.inbox)
        )

    def _can_poke(self, state: State, process: Process, awaiting: list[int]) -> bool:
        """Whether a look at the lock may find anything."""
        if not awaiting or not self.protocol.pokes or not _reads(process):
            return False
        places = {place for place, _ in state.queue}
        awaited = (self.place(at, state.waiters[at]) for at in awaiting)
        return state.key is None or any(place not in places for place in awaited)

    def _waiter_steps(
        self, state: State, at: int, waiter: Waiter
    ) -> Iterator[tuple[str, bool, State]]:
        home = state.processes[waiter.process]
        is_open = home.open
        if waiter.phase is NEW:
            step = Step(self, state)
            step.ask(at, WANTS)
            yield f"{at} tries", False, step.state()
        elif waiter.phase is WANTS and is_open and (waiter.signal or _reads(home)):
            step = Step(self, state)
            step.line_up_and_hear(at)
            yield f"{at} lines up", False, step.state()
        elif waiter.signal and (waiter.phase is WAITS or (waiter.phase is WANTS and not is_open)):
            step = Step(self, state)
            step.take_news(at)
            yield f"{at} reads {waiter.signal[0]}", False, step.state()
        elif waiter.phase in (HOLDS, OVER):
            step = Step(self, state)
            step.act(at)
            step.run("release", (*KEYS, RELEASED), name(at, waiter))
            step.waiters[at] = Waiter(waiter.process, ENDED)
            yield f"{at} lets go", False, step.state()
            if waiter.phase is HOLDS and self.renews and not waiter.renewed:
                step = Step(self, state)
                step.renew(at)
                yield f"{at} renews", False, step.state()
        if waiter.phase in (WANTS, WAITS):
            if not is_open:
                step = Step(self, state)
                step.ask(at, waiter.phase)
                yield f"{at} looks by itself", False, step.state()
            yield from self._ways_out(state, at, waiter)

    def _ways_out(self, state: State, at: int, waiter: Waiter) -> Iterator[tuple[str, bool, State]]:
        for reason in ("timeout", "lost cancel", "copy"):
            step = Step(self, state)
            if not step.spend(reason):
                continue
            step.act(at)
            if self.protocol.cancels and reason != "lost cancel":
                step.run("cancel", KEYS, name(at, waiter), self.place(at, waiter))
            if reason == "copy":
                step.copies.append((at, waiter.place, waiter.ticket))
            step.waiters[at] = Waiter(waiter.process, ENDED)
            yield f"{at} leaves ({reason})", True, step.state()

    def place(self, at: int, waiter: Waiter) -> str:
        return f"{waiter.process}|{name(at, waiter)}|{self.protocol.grant}"


def name(at: int, waiter: Waiter) -> str:
    """The identifier of a waiter at its place of now."""
    return f"{at}.{waiter.place}"


def owner(identifier: str) -> int:
    """The waiter that an identifier is of."""
    return int(identifier.partition(".")[0])


#: More identifiers than there may be at an instant, by what they are called in words.
NAMES = {hint(f"{at}.{place}"): f"{at}.{place}" for at in range(4) for place in range(10)}


class Step:
    """A copy of a state that is being changed."""

    def __init__(self, explorer: Explorer, state: State) -> None:
        self.explorer, self.protocol, self.before = explorer, explorer.protocol, state
        self.processes, self.waiters = list(state.processes), list(state.waiters)
        self.copies, self.faults = list(state.copies), state.faults
        self.public = set(state.public)
        self.memory: Memory | None = None

    def state(self) -> State:
        key, queue, facts = self.before[:3]
        if self.memory is not None:
            key = self.memory.strings.get(LOCK)
            queue = _compact(self.memory.queues.get(QUEUE, {}))
            facts = tuple(sorted(map(":".join, self.memory.hashes.get(FACTS, {}).items())))
        processes, waiters = tuple(self.processes), tuple(self.waiters)
        copies = tuple(sorted(self.copies))
        public = tuple(sorted(self.public)) if dict(self.faults).get("replay") else ()
        return _plain(State(key, queue, facts, processes, waiters, copies, self.faults, public))

    def act(self, at: int) -> None:
        """A waiter's process does something, so it is not paused."""
        home = self.waiters[at].process
        self.processes[home] = self.processes[home]._replace(lapses=0)

    def spend(self, fault: str) -> bool:
        """Whether there may be one more of these faults; it is counted."""
        left = dict(self.faults)
        if not left.get(fault):
            return False
        left[fault] -= 1
        self.faults = tuple(sorted(left.items()))
        return True

    def run(self, verb: str, *arguments: Any) -> Any:
        """Let the server run a script, and its messages go on their way."""
        memory = self._memory()
        reply = getattr(self.protocol.scripts(memory), verb)("", *arguments)
        for channel, message in memory.published:
            word, called, *_ = message.split("|")
            process, identifier = self.processes[int(channel)], NAMES[called]
            inbox = (*process.inbox, (word, identifier))
            self.processes[int(channel)] = process._replace(inbox=inbox)
            if word == "turn":
                self.public.add(identifier)
        memory.published.clear()
        return reply

    def ask(self, at: int, otherwise: str) -> None:
        """The script "acquire"."""
        self.act(at)
        memory, waiter = self._memory(), self.waiters[at]
        identifier = name(at, waiter)
        if memory.get(LOCK) in (None, identifier):
            memory.set(LOCK, identifier, max(self.protocol.lease, memory.pttl(LOCK)))
            self.hold(at, self.protocol.lease)
        else:
            self.waiters[at] = waiter._replace(phase=otherwise)

    def learn(self, at: int) -> None:
        """The script "enter"."""
        self.act(at)
        waiter = self.waiters[at]
        place = self.explorer.place(at, waiter)
        reply = self.run("enter", KEYS, name(at, waiter), self.protocol.lease, place)
        if reply == "":
            self.hold(at, self.protocol.lease)
        else:
            self.waiters[at] = waiter._replace(phase=WAITS if reply[3] else WANTS)

    def renew(self, at: int) -> None:
        """The script "extend"."""
        memory, lease, identifier = self._memory(), self.protocol.lease, name(at, self.waiters[at])
        if memory.get(LOCK) == identifier:
            memory.set(LOCK, identifier, max(lease, memory.pttl(LOCK)))
            self.waiters[at] = self.waiters[at]._replace(left=lease, renewed=True)

    def line_up(self, at: int, place: int, ticket: int, former: str = "") -> Any:
        home = self.waiters[at].process
        details = (self.protocol.lease, str(home), self.protocol.grant, ticket, former)
        return self.run("enqueue", KEYS, f"{at}.{place}", *details)

    def line_up_and_hear(self, at: int) -> None:
        self.act(at)
        waiter, former = self.waiters[at], ""
        if waiter.is_placed and self.protocol.has_own_places:
            former = self.explorer.place(at, waiter)
            waiter = waiter._replace(place=self._new_place(at), signal=())
        waiter = self.waiters[at] = waiter._replace(
            is_placed=True, is_fresh=True, is_proved=False, evidence=LONG_AGO
        )
        reply = self.line_up(at, waiter.place, waiter.ticket, former)
        if reply == "":
            self.hold(at, self.protocol.lease)
            return
        self.waiters[at] = waiter._replace(phase=WAITS, asked=0, ticket=reply[3])

    def _new_place(self, at: int) -> int:
        """The number of a place whose identifier is nowhere."""
        memory = self._memory()
        here = {waiter.place for number, waiter in enumerate(self.waiters) if number == at}
        here.update(copy[1] for copy in self.copies if copy[0] == at)
        known = [memory.get(LOCK), memory.hget(FACTS, "granted"), *memory.zall(QUEUE)]
        known += [fact for one in self.processes for kind, fact in one.inbox if kind != "pong"]
        for identifier in known:
            found = (identifier or "").split("|")
            own = found[1] if len(found) > 1 else found[0]
            if own.startswith(f"{at}."):
                here.add(int(own.partition(".")[2]))
        self.public = {public for public in self.public if owner(public) != at}
        return min(set(range(10)) - here)

    def hold(self, at: int, ticks: int) -> None:
        waiter = self.waiters[at]
        self.waiters[at] = Waiter(waiter.process, HOLDS, waiter.place, left=ticks)

    def notify(self, at: int, signal: str) -> None:
        waiter = self.waiters[at]
        if waiter.phase not in (WANTS, WAITS) or signal in waiter.signal:
            return
        self.waiters[at] = waiter._replace(signal=(*waiter.signal, signal))

    def receive(self, at: int) -> None:
        process = self.processes[at]
        (word, fact), *others = process.inbox
        process = self.processes[at] = process._replace(inbox=tuple(others), lapses=0)
        if word == "pong":
            newer = min(process.evidence, fact)
            self.processes[at] = process._replace(evidence=newer)
            return
        number = owner(fact)
        waiter = self.waiters[number]
        if waiter.phase in (WAITS, WANTS) and name(number, waiter) == fact:
            self.heed(number, word, process.evidence)
        elif word == "turn" and self.protocol.hands_on:
            self.hand_on(number, fact)

    def heed(self, at: int, word: str, evidence: int) -> None:
        """A word for the place where a waiter is."""
        waiter = self.waiters[at]
        is_word = word == "turn" or (word == "forged" and not self.protocol.needs_proof)
        is_timely = waiter.is_fresh or not self.protocol.needs_connection
        if waiter.is_proved and self.protocol.first_counts:
            return
        if is_word and is_timely:
            self.waiters[at] = waiter._replace(evidence=evidence, is_proved=True)
            self.notify(at, "turn")
        elif not {"ask", "again"} & set(waiter.signal):
            self.notify(at, "again" if word == "again" else "ask")

    def hand_on(self, at: int, identifier: str) -> None:
        waiter = self.waiters[at]
        is_held = waiter.phase is HOLDS and name(at, waiter) == identifier
        if not is_held or not self.protocol.keeps_what_it_entered:
            self.run("cancel", KEYS, identifier, "")

    def take_news(self, at: int) -> None:
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
        places = [self.explorer.place(at, self.waiters[at]) for at in awaiting]
        _, _, _, _, *missing = self.run("recheck", KEYS, "", *places)
        for number in missing:
            if self.protocol.tells_missing:
                self.notify(awaiting[number], "again")

    def _memory(self) -> Memory:
        if self.memory is None:
            memory = self.memory = Memory()
            state = self.before
            if state.key is not None:
                memory.strings[LOCK] = state.key
            if state.queue:
                memory.queues[QUEUE] = dict(state.queue)
            if state.facts:
                split = (fact.rpartition(":")[::2] for fact in state.facts)
                memory.hashes[FACTS] = dict(split)
            memory.hearers = {str(at) for at, one in enumerate(self.processes) if one.open}
        return self.memory


def _plain(state: State) -> State:
    """The same state without what can make no difference any more."""
    listening = {one.process for one in state.waiters if one.phase in (NEW, WANTS, WAITS)}
    places = {place.split("|")[1] for place, _ in state.queue}
    places.update(f"{at}.{place}" for at, place, _ in state.copies)
    holder = state.key[0] if state.key else ""
    processes, waiters = list(state.processes), list(state.waiters)
    for at, waiter in enumerate(state.waiters):
        words = state.processes[waiter.process].inbox
        own = name(at, waiter)
        is_known = own == holder or own in places or ("turn", own) in words
        if waiter.phase is OVER and not is_known:
            waiters[at] = Waiter(waiter.process, ENDED)
    for number, process in enumerate(state.processes):
        inbox = []
        for kind, fact in process.inbox:
            is_idle = (
                number not in listening
                if kind == "pong"
                else (
                    waiters[owner(fact)].phase is ENDED
                    and (kind != "turn" or (fact != holder and fact not in places))
                )
            )
            if not is_idle:
                inbox.append((kind, fact))
        if len(inbox) < len(process.inbox):
            processes[number] = process = process._replace(inbox=tuple(inbox))
        if number not in listening and (process.evidence, process.lapses) != (LONG_AGO, 0):
            processes[number] = process._replace(evidence=LONG_AGO, lapses=0)
    return state._replace(processes=tuple(processes), waiters=tuple(waiters))


def _reads(process: Process) -> bool:
    """Whether a process keeps up with what it is told: else it is cut off after a while."""
    return len(process.inbox) < MOST_WORDS


def _ticked(state: State, most: int) -> State:
    key, processes = state.key, list(state.processes)
    if key is not None:
        key = (key[0], key[1] - 1) if key[1] > 1 else None
        if key is None:
            _note_lapse(state, processes)
    after = state._replace(
        key=key,
        processes=tuple(
            process._replace(
                evidence=_older(process.evidence, most),
                inbox=tuple(
                    (kind, _older(fact, most) if kind == "pong" else fact)
                    for kind, fact in process.inbox
                    if kind != "pong" or fact < most
                ),
            )
            for process in processes
        ),
        waiters=tuple(_older_waiter(waiter, most) for waiter in state.waiters),
    )
    return _plain(after)


def _note_lapse(state: State, processes: list[Process]) -> None:
    """Count a grant that nobody entered by."""
    holder = state.key[0] if state.key else ""
    for at, waiter in enumerate(state.waiters):
        home = processes[waiter.process]
        if name(at, waiter) == holder and waiter.phase in (WANTS, WAITS) and home.open:
            processes[waiter.process] = home._replace(lapses=home.lapses + 1)


def _older(age: int, most: int) -> int:
    """An age a tick later; of a grant that is older than ``most`` nothing is left."""
    return age + 1 if age < most else LONG_AGO


#: Unread words after which a process, or a waiter, reads before it does anything else.
MOST_WORDS = 2


def _older_waiter(waiter: Waiter, most: int) -> Waiter:
    if waiter.phase is HOLDS:
        return waiter._replace(left=waiter.left - 1, phase=HOLDS if waiter.left > 1 else OVER)
    return waiter._replace(asked=_older(waiter.asked, most), evidence=_older(waiter.evidence, most))


def _compact(queue: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(queue.items(), key=lambda place: (place[1], place[0])))


def _history(wrong: str, states: list[State], parents: Any, number: int) -> str:
    lines: list[str] = [f"  {states[number]}"]
    while number > 0:
        number, name = parents[number]
        lines.append(f"  {name}")
    return "\n".join([wrong, *reversed(lines)])
