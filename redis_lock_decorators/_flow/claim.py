"""One acquisition: what is to be held, by whom, and until when it may be believed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.identifiers import new_identifier
from redis_lock_decorators._flow.lease_ends import Given, LeaseEnds, Shortening
from redis_lock_decorators._flow.membership import CohortMember, JoinedCohort, QueueRecord
from redis_lock_decorators._flow.server_clock import Clock
from redis_lock_decorators._rules import durations, keys, lease_times
from redis_lock_decorators._rules.options import LONGEST_GRANT
from redis_lock_decorators.errors import UNANSWERED, UNRENEWED

#: The longest grant in milliseconds.
MOST_GRANTED = durations.milliseconds(LONGEST_GRANT)


class Unrenewed(NamedTuple):
    """Renewals of a lease that have not succeeded since an earlier one did.

    Attributes:
        since: when the first of them was sent, in monotonic seconds.
        error: what the last of them ended with; "" while no answer has come.
        is_refused: that was the server's refusal, for as long as nobody changes something.
    """

    since: float
    error: str = ""
    is_refused: bool = False

    def why(self, end: float) -> str:
        """Why a lease is lost that ended at ``end``."""
        if self.is_refused:
            return f"{UNRENEWED} ({self.error})"
        last = f" (last error: {self.error})" if self.error else ""
        return f"{UNANSWERED} for {max(end - self.since, 0.0):.3g} s{last}"


class Claim:
    """The state of one acquisition; deadlines are monotonic seconds.

    Attributes:
        lock_names: what is locked, in the order everybody takes it.
        keys: the Redis keys of the names.
        expire_ms: the lease in milliseconds.
        identifier: the value that proves who holds the keys; "" while it holds nothing and has
            asked Redis for nothing.
        unique: the identifier was made for this claim, so a key that holds it is ours.
        releaser: what it is noted by when it is released. Nobody else has it, though others may
            use the identifier too; "" until it is needed, if that was given.
        owner: a weak reference to the thread or task that waits for it, or is in its block; None
            while nobody is, as a lease that is handed on may be let go by anybody.
        is_around: tells whether the block of another claim is around the code that waits for this
            one; None if that is not known.
        in_transition: its owner is about to enter its block, or leaves it, so that no context tells
            of it yet, or any more: a signal handler or a finalizer may run there.
        process: the process that acquires; a forked child holds nothing.
        since: a time before which the lock was not held: when the request left that took it.
        entered: when its holder knew that it held the lock.
        deadline: when the lease ends for its holder; minus infinity before it is held.
        duration: how many seconds the last request gave it.
        grant_ms: the milliseconds for which it is handed over in a queue, until it is renewed.
        renews: its lease will be renewed soon after it is held, so a grant will do until then; and
            while it is held, whether it is to be renewed again.
        fencing: the acquisition is to be numbered.
        fence: its number, if it is held and numbered.
        replicas: how many replicas must know of it before it counts as held.
        queue_entry: where it waits in a queue, so that a release begins there; None if it does not.
        has_queued: it was waited for in a queue, so others may wait too.
        queue_record: what the listener of that queue knows of it as the holder; None if nothing.
        cohort: with whom it shares a place in the queue, if it does.
        cohort_waiter: how it waits there, until it holds what it was given.
        next_member: to whom its lease is passed on there, until that is done.
        hand_offs: how often its lease was passed on within the process.
        held_until: until when the lock stands after its holder has let it go.
        releasing: it is being let go, so nothing may lengthen it.
        asking: it was asked to be let go, and what became of that was not noted: an exception from
            outside may have come at any line.
        maybe_released: keys that a request without a reply, sent in time, may have released.
        released: keys of several that were let go, while others are still to be.
        ended: it was released, or told lost.
        lost_reason: why it was told lost; None if it was not.
        lost_holder: the identifier of who holds it instead, as Redis said then; None if not known.
        unrenewed: what became of renewals since one succeeded; None if none was sent.
        clock: what is known of the server's clock; None if nobody wants to know.
        late_ends: ends from which a request without an answer may yet move the lock.
        ends: what is known of its end since it is held, and was prolonged or moved.
    """

    __slots__ = (
        "__weakref__",
        "asking",
        "clock",
        "cohort",
        "cohort_waiter",
        "deadline",
        "duration",
        "ended",
        "ends",
        "entered",
        "expire",
        "expire_ms",
        "fence",
        "fencing",
        "grant_ms",
        "hand_offs",
        "has_queued",
        "held_until",
        "identifier",
        "in_transition",
        "is_around",
        "keys",
        "late_ends",
        "lock_names",
        "lost_holder",
        "lost_reason",
        "maybe_released",
        "next_member",
        "owner",
        "process",
        "queue_entry",
        "queue_record",
        "released",
        "releaser",
        "releasing",
        "renews",
        "replicas",
        "since",
        "unique",
        "unrenewed",
    )

    def __init__(
        self,
        lock_names: tuple[str, ...],
        prefix: str,
        expire: float,
        expire_ms: int,
        *,
        identifier: str | None = None,
        owner: object = None,
        identifies_late: bool = False,
    ) -> None:
        self.lock_names = lock_names
        self.keys = keys.keys_of(prefix, lock_names)
        self.expire = expire
        self.expire_ms = expire_ms
        self.unique = identifier is None
        # Random bytes of the system let other threads go first. Who is passed a lock needs none.
        if identifier is None:
            identifier = "" if identifies_late else new_identifier()
        self.identifier = identifier
        self.releaser = self.identifier if self.unique else ""
        self.owner = owner
        self.in_transition = False
        self.is_around: Callable[[Claim], bool] | None = None
        self.process = fork.number
        self.since = self.entered = self.deadline = self.held_until = -math.inf
        self.duration = 0.0
        self.grant_ms = min(expire_ms, MOST_GRANTED)
        self.renews = False
        self.fencing = False
        self.fence: int | None = None
        self.replicas = 0
        self.queue_entry: str | None = None
        self.cohort: JoinedCohort | None = None
        self.cohort_waiter: CohortMember | None = None
        self.next_member: CohortMember | None = None
        self.has_queued = False
        self.queue_record: QueueRecord | None = None
        self.hand_offs = 0
        self.releasing = self.asking = False
        self.maybe_released: tuple[bytes, ...] = ()
        self.released: tuple[bytes, ...] = ()
        self.ended = False
        self.lost_reason: str | None = None
        self.lost_holder: str | None = None
        self.unrenewed: Unrenewed | None = None
        self.ends = LeaseEnds()
        self.clock: Clock | None = None
        self.late_ends: tuple[int, ...] = ()

    @property
    def lock_name(self) -> str:
        """The name, or the names in one text."""
        return ", ".join(self.lock_names)

    def mark_held(self, sent: float) -> None:
        """Become held by a request that left at ``sent``."""
        self.since = self.entered = sent
        self.duration = seconds = self.expire_ms / 1000
        self.deadline = lease_times.deadline(sent, seconds)

    def set_term(self, sent: float, seconds: float) -> None:
        """Last for ``seconds`` from ``sent``, when the request for it left."""
        self.duration = seconds
        self.deadline = lease_times.deadline(sent, seconds)

    def prolong(self, sent: float, seconds: float) -> None:
        """Last for ``seconds`` from ``sent``, unless it lasts longer already."""
        self.unrenewed = None
        if lease_times.deadline(sent, seconds) > self.deadline:
            self.add_end(sent, seconds)

    def add_end(self, sent: float, seconds: float) -> None:
        """Last for ``seconds`` from ``sent``, unless the end may have been moved nearer since."""
        self.unrenewed = None
        self.ends.given[lease_times.deadline(sent, seconds)] = Given(sent, seconds)
        self._agree()

    def shorten(self, by: float, sent: float, seconds: float) -> Shortening:
        """Last for ``seconds`` from ``sent`` at most: its end is being moved nearer.

        Args:
            by: when no copy of the request can be run any more.
        """
        nearer = Shortening(lease_times.deadline(sent, seconds), seconds, sent, by)
        self.ends.shortenings[nearer] = None
        end = self.deadline
        if not self.ends.given and -math.inf < end < math.inf:
            self.ends.given[end] = Given(-math.inf, self.duration)
        self._agree()
        return nearer

    def confirm_shortened(self, nearer: Shortening, now: float) -> None:
        """Know that its end was moved nearer."""
        self.unrenewed = None
        self.ends.given[nearer.end] = Given(nearer.sent, nearer.lasts)
        self.maybe_shortened(nearer, now)

    def maybe_shortened(self, nearer: Shortening, now: float) -> None:
        """Know that its end is not moved nearer from now on; it may have been before."""
        nearer.run, nearer.is_known = min(now, nearer.run), True
        self._agree()

    def cancel_shortening(self, nearer: Shortening) -> None:
        """Know that its end was not moved nearer, and will not be."""
        self.ends.shortenings.pop(nearer, None)
        self._agree()

    def _agree(self) -> None:
        """Last as long as follows from all that is known of its end.

        Other threads may learn more meanwhile. What each of them learns is noted before this is
        done, and whoever writes last finds all of it.
        """
        ends = self.ends
        while ends.given:  # none is known of a token from elsewhere
            end, lasts = ends.believed()
            if self.deadline == end and self.duration == lasts:
                ends.tidy()
                break
            self.duration, self.deadline = lasts, end

    def replace_identifier(self) -> None:
        """Take a new identifier, for a claim that holds nothing."""
        self.identifier = self.releaser = new_identifier()
        self.queue_record = None

    def is_of(self, owner: object) -> bool:
        """Whether this owner acquires it, or is in its block."""
        return self.owner is not None and self.owner == owner

    def is_of_this_process(self) -> bool:
        """Whether this process made the claim, rather than a parent it was forked from."""
        return self.process == fork.number

    def is_live(self, now: float) -> bool:
        """Whether the holder may believe, at ``now``, that it is inside."""
        return now < self.deadline and not self.is_over()

    def is_special(self) -> bool:
        """Whether more is to be done to hold it than to be in its keys."""
        return self.fencing or self.replicas > 0

    def is_over(self) -> bool:
        """Whether it was let go, is being let go, or was told lost."""
        return self.ended or self.releasing or self.lost_reason is not None

    def is_lost(self, now: float) -> bool:
        """Whether the lease ended, by ``now``, before its holder let it go."""
        return self.lost_reason is not None or (not self.ended and now >= self.deadline)


def claim_on(key: bytes, expire: float, identifier: str | None = None) -> Claim:
    """A claim on a key that no prefix or digest changes."""
    ttl = durations.milliseconds(expire)
    name = key.decode(errors="surrogateescape")
    claim = Claim((name,), "", expire, ttl, identifier=identifier, owner=object())
    claim.keys = (key,)
    return claim
