"""When each lease of an event loop is checked next, and when that loop has to wake up."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Protocol

from redis_lock_decorators._flow.background import Loop
from redis_lock_decorators._flow.renewal.tracked_lease import (
    EARLY,
    BatchKey,
    Isolated,
    TrackedLease,
    popped,
)
from redis_lock_decorators._rules import delays, lease_times
from redis_lock_decorators._rules.timer_wheel import TimerWheel

#: So many removed leases may stay on the wheel until the next check.
MOST_REMOVED = 256
#: The shortest pause, in seconds, before work that an exception cut short is started again.
RETRY_PAUSE = 0.02


class RenewerLoop(Loop, Protocol):
    """What a renewer needs of its event loop.

    Attributes:
        phase: the offset to which check times are rounded.
    """

    phase: float

    def wake_at(self, when: float) -> None:
        """Call the renewer's ``tick`` by this time; infinity cancels the wake-up."""

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the event loop; from any thread."""


class LeaseSchedule:
    """The leases of one event loop, or of all threads of a process, by their next check.

    Only ``add`` and ``remove`` run on other threads. They use no lock, and an exception may be
    raised between any two lines. So a lease is in its new place before it is removed from the old
    one, and work is marked as done after it was done.

    Only the event loop sets its timer and stores the wake-up time. Another thread first adds its
    lease, then reads the stored time, and requests an earlier wake-up if that is too late. The
    event loop checks for added leases once more after it has stored a later time. So either the
    thread reads the new time, or the event loop finds the lease.

    Attributes:
        _new, _gone: leases that any thread added or removed since the last check.
        _due, _batches: work of the current tick; the next tick continues it if this one is cut
            short.
        _wakes_at: when the loop wakes up.
    """

    def __init__(self, lease_loop: RenewerLoop) -> None:
        self._lease_loop = lease_loop
        self._new: set[TrackedLease] = set()  #: any thread
        self._gone: set[TrackedLease] = set()  #: any thread
        self._wakes_at = math.inf  #: written by the loop, read by any thread
        #: loop only
        self._due: list[TrackedLease] = []
        self._batches: dict[BatchKey, list[TrackedLease]] = {}
        self._wheel: TimerWheel[TrackedLease] = TimerWheel(lease_loop.phase)

    def __len__(self) -> int:
        # Removed leases count if there are no others: the loop still has to wake up for them.
        held = len(self._new) + len(self._wheel) + len(self._due) + len(self._batches)
        return held or len(self._gone)

    def add(self, tracked: TrackedLease) -> None:
        """Renew a lease from now on, or schedule it anew because its end moved; from any thread."""
        claim = tracked.claim
        when = claim.since + tracked.options.first_check
        if tracked.is_grant or claim.duration < tracked.options.lease_seconds:
            when = tracked.first_check()  # a grant is to be renewed for the whole lease
        tracked.is_tracked = True
        self._new.add(tracked)
        # A wake-up time before ``since`` is overdue: an exception came before its timer was set.
        if not claim.since <= self._wakes_at <= when:
            self._lease_loop.call(partial(self._wake_at, when))
        if tracked.options.auto_renew and tracked.is_far(self._lease_loop.now()):
            self._lease_loop.call(lambda: self._lease_loop.start(self._prepare(tracked)))

    def remove(self, tracked: TrackedLease) -> None:
        """Stop renewing a lease that is about to be released; from any thread."""
        tracked.is_tracked = False
        tracked.substitute = None  # the caller reports a loss itself
        self._new.discard(tracked)
        if tracked.due > -math.inf:  # it is on the wheel, which only the event loop changes
            self._gone.add(tracked)
            if len(self._gone) >= MOST_REMOVED or self._wakes_at == math.inf:
                self._lease_loop.call(partial(self._wake_at, self._lease_loop.now()))

    def forget_wake_up(self) -> None:
        """Note that the loop's timer was cancelled: the next lease has to request a wake-up."""
        self._wakes_at = math.inf

    async def _prepare(self, tracked: TrackedLease) -> None:
        """Prepare for the first renewal of a lease before it is due."""
        raise NotImplementedError

    def _wake_at(self, when: float) -> None:
        self._lease_loop.wake_at(when)
        if not self._lease_loop.now() <= self._wakes_at <= when:
            self._wakes_at = when

    def _set_wake_up(self) -> None:
        """Wake up for the next check; nothing else postpones the wake-up."""
        self._wakes_at = self._next()
        while self._absorb():  # a thread that added a lease before relied on the earlier time
            self._wakes_at = self._next()
        self._lease_loop.wake_at(self._wakes_at)

    def _next(self) -> float:
        """When the next work is due."""
        when = self._wheel.next()
        if self._due or self._batches:  # a tick was cut short
            return min(when, self._lease_loop.now() + RETRY_PAUSE)
        return when

    def _absorb(self) -> bool:
        """Schedule added leases and forget removed ones; whether any lease was added."""
        while (tracked := popped(self._gone)) is not None:
            if not tracked.is_tracked:
                self._unschedule(tracked)
        added = list(self._new)
        self._due += added
        self._new.difference_update(added)
        for tracked in reversed(added):
            with Isolated(tracked, self._schedule_soon):
                self._schedule(tracked, *tracked.next_check())
            self._due.pop()
        return bool(added)

    def _schedule(self, tracked: TrackedLease, when: float, grain: float) -> None:
        """Check a lease at ``when`` or up to ``grain`` seconds before, unless it was removed."""
        before = tracked.due
        tracked.due = self._wheel.put(
            tracked, *lease_times.next_check(self._lease_loop.now(), when, grain)
        )
        if before != tracked.due:
            self._wheel.drop(tracked, before)
        if not tracked.is_tracked:  # ``remove`` sees the new ``due``, or its effect is seen here
            self._wheel.drop(tracked, tracked.due)
        elif tracked.due < self._wakes_at:
            self._lease_loop.wake_at(tracked.due)
            self._wakes_at = tracked.due

    def _schedule_soon(self, tracked: TrackedLease) -> None:
        """Check a lease again soon, after work for it was cut short."""
        if not tracked.is_over():
            tracked.pauses = tracked.pauses or delays.recovering(self._lease_loop.random)
            when = self._lease_loop.now() + max(RETRY_PAUSE, next(tracked.pauses))
            if not tracked.notify_attempts:
                when = min(when, tracked.claim.deadline)
            self._schedule(tracked, when, EARLY)

    def _unschedule(self, tracked: TrackedLease) -> None:
        """Remove a lease from the wheel."""
        self._wheel.drop(tracked, tracked.due)
        tracked.due = -math.inf
        self._gone.discard(tracked)
