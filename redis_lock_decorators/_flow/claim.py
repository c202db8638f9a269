"""The state of one acquisition: what it locks, its term, and what has become of it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

from redis_lock_decorators._flow import fork
from redis_lock_decorators._flow.claim_state import ACTIVE, ENDED, RELEASING
from redis_lock_decorators._flow.completion import Completion
from redis_lock_decorators._flow.hand_off_decision import HandOffDecision
from redis_lock_decorators._flow.identifiers import new_identifier
from redis_lock_decorators._flow.lease_ends import LeaseEnds
from redis_lock_decorators._flow.membership import CohortMember, JoinedCohort, QueueRecord
from redis_lock_decorators._flow.observer import Observer
from redis_lock_decorators._flow.owner_info import OwnerInfo
from redis_lock_decorators._flow.server_clock import Clock
from redis_lock_decorators._flow.term import Term
from redis_lock_decorators._rules import durations, lease_times
from redis_lock_decorators._rules.keys import keys_of
from redis_lock_decorators._rules.options import LONGEST_GRANT
from redis_lock_decorators.errors import LockNotOwnedError

#: The key in ``Claim.release_flow``.
FLOW = "flow"
#: The longest grant in milliseconds.
MOST_GRANTED = durations.milliseconds(LONGEST_GRANT)


class Claim(Term):
    """The state of one acquisition; times are monotonic seconds.

    Its parts are what is fixed (``Final``), its term (the base class), and its ``state``. They are
    one object, as more objects would make each acquisition slower.

    Any thread may read it. The flow that acquires, extends or releases it writes it; the renewer
    writes ``renews``, ``unrenewed``, ``lost_reason``, ``lost_holder`` and, by ``prolong``, the
    term.

    Attributes:
        lock_names: what is locked, in the order in which all clients acquire it.
        keys: the Redis keys of the names.
        expire: the length of the lease in seconds, as the user gave it.
        expire_ms: the same in milliseconds.
        unique: the identifier was made for this claim, so a key that contains it is ours.
        process: the process that acquires; a forked child holds nothing.
        fencing: the acquisition gets a number.
        replicas: how many replicas must confirm the lock before it counts as held.
        grant_ms: how long a waiter holds it in Redis after a grant, until its first renewal.
        owner_info: the information about its holder that its requests store; None for none.
        is_inside: whether the code that acquires this one runs inside the block of another claim;
            None if that cannot be known.

        identifier: the value in the keys. "" while no request was made with one, and after the
            keys were handed off: then the claim can release nothing.
        shares_identifier: another claim may hold the lock by this identifier afterwards, so a
            second copy of a request to release it must change nothing.
        is_unrecorded: it got such an identifier while its slot was moving, and that could not be
            recorded.
        may_be_unsettled: another claim may hold the lock by this identifier, unless Redis has
            recorded that this one got it.
        recorded_until: until then the server knows what became of a release without a reply.
        releaser: the name by which its release is recorded in Redis. It is unique to this claim
            even if the identifier is not; "" until it is needed in that case.
        owner: a weak reference to the thread or task that acquires it or is in its block; None
            if any thread may release it.
        lease_ref: returns the lease that can release it, None if that was deleted; None if any code
            may release it by its identifier.
        observer: reports its events to hooks; None without hooks.
        in_transition: its owner is about to enter its block or to leave it, so no context has it:
            a signal handler or a finalizer may run there.

        held_until: the end of ``min_hold``: a release leaves a placeholder in the keys until then.
        fence: the number of the acquisition.
        renews: it will be renewed, so that a grant is long enough at first.
        late_ends: ends from which a request without a reply may still move the lock.
        clock: what is known of the server's clock; None if that is not needed.

        has_asked: a script with its identifier may have reached a server.
        queue_entry: its entry in a queue, which a release cancels; None if it has none.
        queue_wait: waits in the queue for it, a ``ClaimEntry``; None if nothing does.
        has_queued: it waited in a queue, so other clients may wait there too.
        queue_record: what the subscriber of that queue records of it as the holder.
        cohort: the cohort that it waits in or holds the lock for.
        cohort_waiter: its waiter there, until it owns what that was given.
        hand_off_decision: decides whether its identifier is handed off; None if it never is.
        hand_offs: how often its lease was handed off within the process.

        state: see ``claim_state.State``.
        was_over: its deadline had passed when its first release, or its undoing, began.
        release_flow: what releases it at this time, by ``FLOW``; empty if nothing does.
        maybe_released: keys that a request without a reply may have released before the deadline.
        release_sent: the keys of the last request to release it, and when that was sent; None once
            it is known what the request did, unless it released the keys.
        late_reply: of that request, if it was interrupted and its reply may still arrive: what
            returns the reply by a time, its first item, and what reads the others.
        unconfirmed: how many replicas confirmed the last attempt that was undone as they were too
            few; "" if none was.
        completion: of an attempt to release it by several requests that was interrupted.
        sends_text: its scripts are sent as text, as no later request may follow.
        released_keys: of several keys those that are known to be released, while others are not.
        lost_reason: why it was reported as lost; None if it was not.
        lost_holder: the identifier that Redis had instead at that time; None if not known.
    """

    # fmt: off
    __slots__ = (
        "__weakref__",
        "clock",
        "cohort",
        "cohort_waiter",
        "completion",
        "expire",
        "expire_ms",
        "fence",
        "fencing",
        "grant_ms",
        "hand_off_decision",
        "hand_offs",
        "has_asked",
        "has_queued",
        "held_until",
        "identifier",
        "in_transition",
        "is_inside",
        "is_unrecorded",
        "keys",
        "late_ends",
        "late_reply",
        "lease_ref",
        "lock_names",
        "lost_holder",
        "lost_reason",
        "may_be_unsettled",
        "maybe_released",
        "observer",
        "owner",
        "owner_info",
        "process",
        "queue_entry",
        "queue_record",
        "queue_wait",
        "recorded_until",
        "release_flow",
        "release_sent",
        "released_keys",
        "releaser",
        "renews",
        "replicas",
        "sends_text",
        "shares_identifier",
        "state",
        "unconfirmed",
        "unique",
        "was_over",
    )
    # fmt: on

    def __init__(
        self,
        lock_names: tuple[str, ...],
        prefix: str,
        expire: float,
        expire_ms: int,
        *,
        keys: tuple[bytes, ...] | None = None,
        identifier: str | None = None,
        owner: object = None,
        identifies_late: bool = False,
    ) -> None:
        self.lock_names: Final = lock_names
        self.keys: Final = keys or keys_of(prefix, lock_names)
        self.expire: Final = expire
        self.expire_ms: Final = expire_ms
        self.unique: Final = identifier is None
        self.process: Final = fork.process_id
        self.fencing = self.was_over = False
        self.replicas = 0
        self.grant_ms = expire_ms if expire_ms < MOST_GRANTED else MOST_GRANTED
        self.is_inside: Callable[[Claim], bool] | None = None
        self.owner_info: OwnerInfo | None = None

        # To read random bytes lets other threads run. A claim that is handed a lock needs none.
        if identifier is None:
            identifier = "" if identifies_late else new_identifier()
        #: written by its flow, read by any thread
        self.identifier = identifier
        self.owner = owner
        self.lease_ref: Callable[[], object] | None = None
        self.observer: Observer | None = None
        self.in_transition = False
        self.since = self.entered = self.held_until = -math.inf

        #: any thread
        self.deadline, self.duration = -math.inf, 0.0
        self.renews = False
        self.unrenewed = None
        self.known_ends: dict[str, LeaseEnds] = {}

        self.shares_identifier = self.is_unrecorded = self.may_be_unsettled = False
        self.recorded_until = math.inf
        self.releaser = self.identifier if self.unique else ""
        self.fence: int | None = None
        self.late_ends: tuple[int, ...] = ()
        self.clock: Clock | None = None

        #: written by its flow, read by any thread
        self.cohort: JoinedCohort | None = None
        self.cohort_waiter: CohortMember | None = None
        self.hand_off_decision: HandOffDecision | None = None

        self.has_asked = False
        self.unconfirmed = ""
        self.queue_entry: str | None = None
        self.queue_wait: Any = None
        self.has_queued = False
        self.queue_record: QueueRecord | None = None
        self.hand_offs = 0

        #: any thread
        self.state = ACTIVE
        self.lost_reason: str | None = None
        self.lost_holder: str | None = None

        self.maybe_released: tuple[bytes, ...] = ()
        self.release_flow: dict[str, object] = {}  #: any thread
        self.release_sent: tuple[tuple[bytes, ...], float] | None = None
        self.late_reply: (
            tuple[Callable[[float], Awaitable[Any]], str, Callable[..., Any]] | None
        ) = None
        self.completion: Completion | None = None
        self.sends_text = False
        self.released_keys: tuple[bytes, ...] = ()

    @property
    def lock_name(self) -> str:
        """The names, joined by ", "."""
        return ", ".join(self.lock_names)

    @property
    def got_shared_identifier(self) -> bool:
        """Whether it acquired the lock and got an identifier that others use, which is recorded."""
        is_acquired = self.shares_identifier and self.unique and self.identifier != self.releaser
        return is_acquired and not self.is_unrecorded

    def mark_held(self, sent: float) -> None:
        """Start the term of a lock that a request sent at ``sent`` acquired."""
        self.since = sent
        self.duration = seconds = self.expire_ms / 1000
        self.deadline = lease_times.deadline(sent, seconds)

    def replace_identifier(self) -> None:
        """Make a new identifier, for a claim that holds nothing."""
        self.identifier = self.releaser = new_identifier()
        self.queue_record, self.hand_offs = None, 0
        if self.hand_off_decision is not None:
            self.hand_off_decision = HandOffDecision()
        self.released_keys = self.maybe_released = ()
        self.release_sent, self.recorded_until = None, math.inf
        self.sends_text = False

    def note_maybe_released(self, keys: tuple[bytes, ...], sent: float) -> None:
        """Note that a request ``sent`` at that time may have released these keys.

        After the deadline it explains nothing: the keys may have expired before.
        """
        if sent < self.deadline:
            self.maybe_released += keys

    def reopen(self) -> None:
        """Allow another release after one that ended the claim and was interrupted then."""
        if self.state is ENDED:
            self.state = RELEASING

    def was_held(self) -> bool:
        """Whether its holder knew that it held the lock, so that it can be lost."""
        return self.entered > -math.inf

    def is_of(self, owner: object) -> bool:
        """Whether this owner acquires it, or is in its block."""
        return self.owner is not None and self.owner == owner

    def is_of_this_process(self) -> bool:
        """Whether this process made the claim, rather than a parent it was forked from."""
        return self.process == fork.process_id

    def is_live(self, now: float) -> bool:
        """Whether the holder may rely on the lock at ``now``."""
        return now < self.deadline and self.state is ACTIVE and self.lost_reason is None

    def has_lease(self) -> bool:
        """Whether the lease that can release it exists, or none is needed."""
        return self.lease_ref is None or self.lease_ref() is not None

    def has_handed_off(self) -> bool:
        """Whether its lock was handed to another member of its cohort."""
        return (
            self.hand_off_decision is not None and self.hand_off_decision.handed_off() is not None
        )

    def is_fenced_or_confirmed(self) -> bool:
        """Whether acquiring it takes more than setting its keys."""
        return self.fencing or self.replicas > 0

    def min_hold_left(self, now: float) -> int:
        """How many milliseconds of ``min_hold`` are left at ``now``."""
        left = self.held_until - now
        return durations.milliseconds(left) if left > 0 else 0

    def is_over(self) -> bool:
        """Whether its release has begun, or it was reported as lost."""
        return self.state is not ACTIVE or self.lost_reason is not None

    def is_lost(self, now: float) -> bool:
        """Whether the lease ended, by ``now``, before its holder released it."""
        return self.lost_reason is not None or (self.state is not ENDED and now >= self.deadline)


def refuse_fork(claim: Claim) -> None:
    """Refuse a claim inherited by ``fork``: the parent has it, the child does not.

    Raises:
        LockNotOwnedError: another process made it.
    """
    if claim.process != fork.process_id:
        done = "held" if claim.was_held() else "acquired"
        raise LockNotOwnedError(
            claim.lock_name, why=f"it is {done} by the parent process {claim.process}"
        )


def claim_on(
    key: bytes, expire: float, identifier: str | None = None, lock_name: str | None = None
) -> Claim:
    """A claim on a key as it is, without prefix or digest."""
    names = (lock_name or key.decode(errors="surrogateescape"),)
    expire_ms = durations.milliseconds(expire)
    return Claim(
        *(names, "", expire, expire_ms), keys=(key,), identifier=identifier, owner=object()
    )
