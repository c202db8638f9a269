"""The events of one claim, in order; its beginning, outcome and end are reported once each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

from redis_lock_decorators import events
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators.events import LockEvent

#: A lease is renewed late if it was not when less than this part of its time was left. Normally it
#: is renewed after a third.
LATE_SHARE = 0.5
#: The steps of each acquisition, in order: ``Acquiring``; what came of it; what ended the lease.
BEGIN, OUTCOME, END = STEPS = range(3)

_numbers = count(1)


class ClaimObserver:
    """Reports the events of one claim; any thread may call it.

    An exception from outside may come between any two lines, and be followed by a second report of
    the same step. So each step is decided by ``dict.setdefault``, and then the hooks' thread is
    asked to take what was decided so far and not taken before.

    The claim refers to it, and the renewer to the claim: it must not refer to the lease.

    Args:
        label: see ``LockEvent``.
        wall_clock: returns the seconds of ``time.time()``.
        report: calls the hooks, on their thread, with the events that the given function returns.
    """

    __slots__ = (
        "_began",
        "_common",
        "_decided",
        "_is_late",
        "_polls",
        "_report",
        "_taken",
        "_wall_clock",
    )

    def __init__(
        self,
        claim: Claim,
        label: str,
        wall_clock: Callable[[], float],
        report: Callable[[Callable[[], Sequence[LockEvent]]], object],
    ) -> None:
        self._common: dict[str, Any] = {
            "lock_name": claim.lock_name,
            "key": ", ".join([key.decode(errors="surrogateescape") for key in claim.keys]),
            "label": label,
            "acquisition": next(_numbers),
        }
        self._wall_clock = wall_clock
        self._report = report
        self._began = 0.0
        self._polls = self._is_late = False
        self._decided: dict[int, LockEvent] = {}  #: any thread
        self._taken: set[int] = set()  # used by the hooks' thread only

    def acquiring(self, claim: Claim, now: float) -> None:
        self._began = now
        self._decide(claim, BEGIN, events.Acquiring, now)

    def polls(self) -> None:
        self._polls = True

    def acquired(self, claim: Claim, now: float) -> None:
        facts = {"waited": now - self._began, "by": self._way(claim), "fence": claim.fence}
        self._decide(claim, OUTCOME, events.Acquired, now, **facts)

    def timed_out(self, claim: Claim, now: float) -> None:
        self._decide(claim, OUTCOME, events.TimedOut, now, waited=now - self._began)

    def failed(self, claim: Claim, now: float, error: str) -> None:
        facts = {"waited": now - self._began, "error": error}
        self._decide(claim, OUTCOME, events.AcquireFailed, now, **facts)

    def renewed(self, claim: Claim, now: float, took: float) -> None:
        self.unrenewed(claim, now)
        self._is_late = False
        self._add(claim, events.Renewed, now, left=claim.deadline - now, took=took)

    def unrenewed(self, claim: Claim, now: float) -> None:
        left = claim.deadline - now
        if left < LATE_SHARE * min(claim.expire_ms / 1000, claim.duration) and not self._is_late:
            self._is_late = True
            error = "" if claim.unrenewed is None else claim.unrenewed.error
            self._add(claim, events.RenewalLate, now, left=left, error=error)

    def lost(self, claim: Claim, now: float, why: str) -> None:
        self._decide(claim, END, events.Lost, now, held=now - claim.entered, why=why)

    def ended(self, claim: Claim, now: float, error: str = "") -> None:
        if OUTCOME not in self._decided:
            self.failed(claim, now, "interrupted")
        held = now - claim.entered
        if claim.lost_reason is not None:
            self.lost(claim, now, claim.lost_reason)
        elif claim.identifier:
            self._decide(claim, END, events.Released, now, held=held, error=error)
        else:
            self._decide(claim, END, events.HandedOver, now, held=held)

    def _way(self, claim: Claim) -> events.Way:
        if claim.hand_offs:
            return "cohort"
        if self._polls:
            return "poll"
        return "queue" if claim.has_queued else "free"

    def _decide(
        self, claim: Claim, step: int, kind: type[LockEvent], now: float, **facts: Any
    ) -> None:
        """Decide a step, if it follows the decided ones, and report what is decided up to it."""
        if claim.is_of_this_process():
            if step not in self._decided and self._follows(step):
                self._decided.setdefault(step, self._event(kind, now, facts))
            self._report(partial(self._take, step))

    def _follows(self, step: int) -> bool:
        if step == END:
            return isinstance(self._decided.get(OUTCOME), events.Acquired)
        return step == BEGIN or BEGIN in self._decided

    def _take(self, last: int) -> list[LockEvent]:
        """Return the events of the steps up to ``last`` that were not taken before."""
        steps = [step for step in STEPS[: last + 1] if step in self._decided]
        new = [step for step in steps if step not in self._taken]
        self._taken.update(new)
        return [self._decided[step] for step in new]

    def _add(self, claim: Claim, kind: type[LockEvent], now: float, **facts: Any) -> None:
        """Report an event that is no step."""
        if claim.is_of_this_process():
            event = self._event(kind, now, facts)
            self._report(lambda: (event,))

    def _event(self, kind: type[LockEvent], now: float, facts: dict[str, Any]) -> LockEvent:
        return kind(**self._common, at=now, time=self._wall_clock(), **facts)
