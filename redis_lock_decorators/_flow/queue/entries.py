"""The places at one listener: who waits there, who entered from there, who left."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from hmac import compare_digest
from typing import NamedTuple

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal
from redis_lock_decorators._rules import messages

#: Of the places that were left so many are remembered: a late copy of a request to line up may
#: stand in the queue for one of them.
MOST_LEFT = 1000
#: The index of places by their keys is made anew after so many more came than wait.
SPARE = 1000
#: What was handed in and not taken in: more than this comes together only while no line is open.
MOST_HANDED = 10_000


class Received(NamedTuple):
    """How a word was heard.

    Attributes:
        session: the connection that it came on.
        run_id: the process of the server at the other end of that, if it is known.
        evidence: the time that nothing heard now was said before.
        now: the time.
    """

    session: int
    run_id: bytes | None
    evidence: float
    now: float


class Left:
    """A place that nobody holds a lock by any more, nor ever will again."""

    __slots__ = ("identifier", "key")

    def __init__(self, key: bytes, identifier: str) -> None:
        self.key = key
        self.identifier = identifier


class Entered:
    """What is held by the identifier of a place, and by which claim: it may be passed on.

    Attributes:
        note_at: when Redis is to know that it was entered; infinity once it does.
        least: it is known until then at least, for an heir learns only when it wakes what it holds.
    """

    __slots__ = ("claim", "identifier", "key", "least", "note_at", "queue_entry")

    def __init__(
        self,
        claim: Claim,
        identifier: str,
        entry: str,
        note_at: float,
        least: float = -math.inf,
    ) -> None:
        self.key = claim.keys[0]
        self.claim = claim
        self.identifier = identifier
        self.queue_entry = entry
        self.note_at = note_at
        self.least = least

    def move_to(self, claim: Claim, now: float) -> None:
        """Be held by another claim; from any thread."""
        self.least = now + claim.grant_ms / 1000
        self.claim = claim

    def is_left(self, now: float) -> bool:
        """Whether the claim was let go: nobody asks Redis for anything by the identifier any more.

        While it is being let go, or stands for its least time, or is past its deadline, it may be
        what Redis says is held: whoever says an old word again must not take it away then. Another
        thread may pass it on meanwhile, or hold what it was passed: the identifier is taken from a
        claim before that has ended, and comes to one that has not.
        """
        claim = self.claim
        return (
            self._is_held_by(claim)
            and claim.state is ENDED
            and claim.held_until <= now
            and self._is_held_by(claim)
        )

    def is_past(self, now: float) -> bool:
        """Whether its lease is over by the claim's own reckoning, though nobody let it go."""
        return now >= max(self.least, self.claim.deadline)

    def _is_held_by(self, claim: Claim) -> bool:
        return claim.cohort is None or claim.identifier == self.identifier


class QueueEntries:
    """What a listener knows of its places. A word leads to nothing that is not known here.

    Waiters join, leave and enter from any thread, each by one operation that cannot be interrupted;
    all else belongs to the event loop.
    """

    def __init__(self) -> None:
        self._turns: dict[bytes, QueuedWaiter] = {}
        # Which key they wait for is known to the event loop alone, later; who left is in neither.
        self._joined: dict[bytes, QueuedWaiter] = {}
        self._by_key: dict[bytes, dict[bytes, QueuedWaiter]] = {}
        self._indexed = 0
        self._entered: dict[bytes, Entered] = {}
        self._left: OrderedDict[bytes, Left] = OrderedDict()
        self._handed: deque[Left | Entered] = deque(maxlen=MOST_HANDED)

    def __bool__(self) -> bool:
        return bool(self._turns)

    def waiters(self) -> list[QueuedWaiter]:
        """Who waits now."""
        return list(self._turns.values())

    def join(self, waiter: QueuedWaiter) -> None:
        """Know one that waits."""
        self._turns[waiter.hint] = waiter
        self._joined[waiter.hint] = waiter

    def waiting(self, key: bytes) -> list[QueuedWaiter]:
        """Who waits for a key now. Very many may wait for others: they are not gone through."""
        self._index()
        found = self._by_key.get(key, {})
        for hint, waiter in list(found.items()):
            if self._turns.get(hint) is not waiter:
                del found[hint]
        if not found:
            self._by_key.pop(key, None)
        return list(found.values())

    def forget_gone(self) -> None:
        """Keep nothing of those who have left."""
        self._joined.clear()  # first: who joins from now on is found there, all others below
        self._by_key.clear()
        self._indexed = 0
        for waiter in self.waiters():
            self._by_key.setdefault(waiter.key, {})[waiter.hint] = waiter

    def _index(self) -> None:
        """Take in who joined."""
        for hint in list(self._joined):
            waiter = self._joined.pop(hint, None)
            if waiter is not None:
                self._by_key.setdefault(waiter.key, {})[hint] = waiter
                self._indexed += 1
        if self._indexed > SPARE + len(self._turns):
            self.forget_gone()

    def leave(self, waiter: QueuedWaiter) -> None:
        """Know that nobody waits there any more, nor will hold the lock by that place."""
        if self._turns.get(waiter.hint) is waiter and waiter.queue_entry is not None:
            self._handed.append(Left(waiter.key, waiter.identifier))
        self._turns.pop(waiter.hint, None)
        self._joined.pop(waiter.hint, None)

    def enter(self, entered: Entered) -> None:
        """Know that a claim is held by a place, whose waiter may be told of it yet."""
        self._handed.append(entered)
        self._turns.pop(messages.hint(entered.identifier), None)

    def receive(self, word: messages.Message, ear: Received) -> Left | None:
        """Tell the waiter that a word is for; or return the place that was left, to let it go."""
        waiter = self._turns.get(word.hint)
        if waiter is not None:
            _tell(waiter, word, ear)
            return None
        self._absorb()
        self._forget_over(word.hint, ear.now)
        left = self._left.get(word.hint)
        if left is None or word.kind != b"turn":
            return None
        if ear.run_id is None or _is_proved(word, ear, left):
            return self._left.pop(word.hint)
        return None

    def to_note(self, now: float) -> list[Entered]:
        """Who entered a while ago, holds the lock still, and is not known to Redis to do so."""
        self._absorb()
        for hint in list(self._entered):
            self._forget_over(hint, now)
        due = [one for one in self._entered.values() if one.note_at <= now]
        for one in due:
            one.note_at = math.inf
        return due

    def next_note(self) -> float:
        """When the next one is to be noted; infinity if there is none."""
        self._absorb()
        return min([one.note_at for one in self._entered.values()], default=math.inf)

    def _forget_over(self, hint: bytes, now: float) -> None:
        """Know of a claim that was let go that its place is left; of one that lapsed, nothing.

        A lock that lapsed may be held by that identifier all the same, if its end was moved.
        """
        entered = self._entered.get(hint)
        if entered is None:
            return
        if entered.is_left(now):
            del self._entered[hint]
            self._remember(hint, Left(entered.key, entered.identifier))
        elif entered.is_past(now):
            del self._entered[hint]

    def _absorb(self) -> None:
        """Take in what was handed in."""
        while self._handed:
            one = self._handed.popleft()
            hint = messages.hint(one.identifier)
            if isinstance(one, Entered):
                self._left.pop(hint, None)
                self._entered[hint] = one
            elif hint not in self._entered:
                self._remember(hint, one)

    def _remember(self, hint: bytes, left: Left) -> None:
        self._left[hint] = left
        if len(self._left) > MOST_LEFT:
            self._left.popitem(last=False)


def _tell(waiter: QueuedWaiter, word: messages.Message, ear: Received) -> None:
    if waiter.is_proved or waiter.queue_entry is None:
        return
    if waiter.session == ear.session and _is_proved(word, ear, waiter):
        waiter.is_proved, waiter.evidence = True, ear.evidence
        waiter.wakeup.notify(Signal.GRANTED)
    elif not waiter.is_notified:
        waiter.is_notified = True
        waiter.wakeup.notify(Signal.AGAIN if word.kind == b"again" else Signal.ASK)


def _is_proved(word: messages.Message, ear: Received, entry: QueuedWaiter | Left) -> bool:
    """Whether the server that is listened to has handed the lock to the place."""
    if ear.run_id is None or word.kind != b"turn":
        return False
    return compare_digest(word.proof, messages.proof(ear.run_id, entry.identifier, entry.key))
