"""The queue entries of one subscriber: those of waiters, of holders, and abandoned ones."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from hmac import compare_digest
from typing import NamedTuple

from redis_lock_decorators._flow.queue.entry_records import AbandonedEntry, EnteredClaim
from redis_lock_decorators._flow.queue.waiter import QueuedWaiter, Signal
from redis_lock_decorators._rules import messages
from redis_lock_decorators._rules.due_times import DueTimes

#: Abandoned entries to remember: a late copy of a request may put one of them into the queue.
MOST_ABANDONED = 1000
#: The index of waiters by key is rebuilt when it has had this many additions more than waiters.
SPARE = 1000
#: Claims that each tick checks whether they are over, in addition to twice as many as were added.
CHECKED = 64
#: Changes to keep until the loop applies them. So many pile up only while it is not subscribed.
MOST_CHANGES = 10_000


class Received(NamedTuple):
    """How a message was received.

    Attributes:
        connection_number: the connection.
        run_id: the server process at its other end; None if it is not known.
        not_before: a lower bound on when the message was published, in monotonic seconds.
        now: the time.
    """

    connection_number: int
    run_id: bytes | None
    not_before: float
    now: float


class QueueEntries:
    """The entries of one subscriber. Messages about other entries are ignored.

    Waiters join, leave and enter from any thread, each by one operation that cannot be interrupted;
    the rest runs on the event loop.
    """

    def __init__(self) -> None:
        self._waiters: dict[bytes, QueuedWaiter] = {}  #: any thread
        #: any thread: waiters that are not in the index yet; those that have left are in neither
        self._joined: dict[bytes, QueuedWaiter] = {}
        #: any thread
        self._changes: deque[AbandonedEntry | EnteredClaim] = deque(maxlen=MOST_CHANGES)
        #: loop only
        self._by_key: dict[bytes, dict[bytes, QueuedWaiter]] = {}
        self._indexed = 0
        self._entered: OrderedDict[bytes, EnteredClaim] = OrderedDict()
        self._unchecked = CHECKED  # how many of them to check next
        self._confirmations = DueTimes()
        self._abandoned: OrderedDict[bytes, AbandonedEntry] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def waiters(self) -> list[QueuedWaiter]:
        return list(self._waiters.values())

    def join(self, waiter: QueuedWaiter) -> None:
        """Add a waiter."""
        self._waiters[waiter.hint] = waiter
        self._joined[waiter.hint] = waiter

    def waiting(self, key: bytes) -> list[QueuedWaiter]:
        """The waiters for a key, without a search through those for other keys."""
        self._index()
        found = self._by_key.get(key, {})
        for hint, waiter in list(found.items()):
            if self._waiters.get(hint) is not waiter:
                del found[hint]
        if not found:
            self._by_key.pop(key, None)
        return list(found.values())

    def rebuild_index(self) -> None:
        """Index the present waiters only."""
        self._joined.clear()  # first: later arrivals are found there, earlier ones below
        self._by_key.clear()
        self._indexed = 0
        for waiter in self.waiters():
            self._by_key.setdefault(waiter.key, {})[waiter.hint] = waiter

    def _index(self) -> None:
        for hint in list(self._joined):
            waiter = self._joined.pop(hint, None)
            if waiter is not None:
                self._by_key.setdefault(waiter.key, {})[hint] = waiter
                self._indexed += 1
        if self._indexed > SPARE + len(self._waiters):
            self.rebuild_index()

    def leave(self, waiter: QueuedWaiter) -> None:
        """Remove a waiter, whose entry is abandoned."""
        if self._waiters.get(waiter.hint) is waiter and waiter.queue_entry is not None:
            self._changes.append(AbandonedEntry(waiter.key, waiter.identifier))
        self._waiters.pop(waiter.hint, None)
        self._joined.pop(waiter.hint, None)

    def enter(self, entered: EnteredClaim) -> None:
        """Replace a waiter by its claim, which holds the lock now."""
        self._changes.append(entered)
        self._waiters.pop(messages.hint(entered.identifier), None)

    def receive(self, message: messages.Message, received: Received) -> AbandonedEntry | None:
        """Notify the waiter that a message is for.

        Returns an abandoned entry that was granted the lock: the caller must release it.
        """
        waiter = self._waiters.get(message.hint)
        if waiter is not None:
            _notify(waiter, message, received)
            return None
        self._apply_changes(received.now)
        self._drop_if_over(message.hint, received.now)
        abandoned = self._abandoned.get(message.hint)
        if abandoned is None or message.kind != b"turn":
            return None
        if received.run_id is None or _is_proved(message, received, abandoned):
            return self._abandoned.pop(message.hint)
        return None

    def to_confirm(self, now: float) -> list[EnteredClaim]:
        """The claims that hold their lock and are to be confirmed to Redis now, each once."""
        self._apply_changes(now)
        self._drop_some_over(now)
        due = []
        while (hint := self._confirmations.first(now)) is not None:
            self._drop_if_over(hint, now)
            entered = self._entered.get(hint)
            if entered is not None and entered.confirm_at <= now:
                entered.confirm_at = math.inf
                due.append(entered)
            self._confirmations.discard(hint)
        return due

    def next_confirmation(self, now: float) -> float:
        """When ``to_confirm`` is due; infinity if no claim that is held needs it."""
        self._apply_changes(now)
        while (when := self._confirmations.next()) < math.inf:
            hint = self._confirmations.first(when)
            if hint is None:
                break
            self._drop_if_over(hint, now)
            if hint in self._entered:
                break
            self._confirmations.discard(hint)
        return when

    def _drop_some_over(self, now: float) -> None:
        """Drop claims that are over, if they are among those that were checked longest ago."""
        for _ in range(min(self._unchecked, len(self._entered))):
            hint = next(iter(self._entered))
            self._entered.move_to_end(hint)
            self._drop_if_over(hint, now)
        self._unchecked = CHECKED

    def _drop_if_over(self, hint: bytes, now: float) -> None:
        """Drop a claim that is over; if it was released, its entry is abandoned.

        An expired one leaves no abandoned entry: the identifier may hold the lock all the same, if
        the end of the lease was moved.
        """
        entered = self._entered.get(hint)
        if entered is None:
            return
        if entered.is_released(now):
            del self._entered[hint]
            self._remember(hint, AbandonedEntry(entered.key, entered.identifier))
        elif entered.has_expired(now):
            del self._entered[hint]

    def _apply_changes(self, now: float) -> None:
        while self._changes:
            change = self._changes.popleft()
            hint = messages.hint(change.identifier)
            if isinstance(change, EnteredClaim):
                if change.is_released(now):  # as most are by then: its confirmation is not due
                    self._remember(hint, AbandonedEntry(change.key, change.identifier))
                    continue
                self._abandoned.pop(hint, None)
                self._entered[hint] = change
                self._unchecked += 2
                if change.confirm_at < math.inf:
                    self._confirmations.set(hint, change.confirm_at)
            elif hint not in self._entered:
                self._remember(hint, change)

    def _remember(self, hint: bytes, abandoned: AbandonedEntry) -> None:
        self._abandoned[hint] = abandoned
        if len(self._abandoned) > MOST_ABANDONED:
            self._abandoned.popitem(last=False)


def _notify(waiter: QueuedWaiter, message: messages.Message, received: Received) -> None:
    if waiter.is_proved or waiter.queue_entry is None:
        return
    if waiter.connection_number == received.connection_number and _is_proved(
        message, received, waiter
    ):
        waiter.is_proved, waiter.not_before = True, received.not_before
        waiter.wakeup.notify(Signal.GRANTED)
    elif not waiter.must_verify:
        waiter.must_verify = True
        waiter.wakeup.notify(Signal.RETRY if message.kind == b"again" else Signal.VERIFY)


def _is_proved(
    message: messages.Message, received: Received, entry: QueuedWaiter | AbandonedEntry
) -> bool:
    """Whether the message proves that the subscribed server has granted the lock to the entry."""
    if received.run_id is None or message.kind != b"turn":
        return False
    return compare_digest(
        message.proof, messages.proof(received.run_id, entry.identifier, entry.key)
    )
