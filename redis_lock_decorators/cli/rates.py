"""How often locks change hands, from two samples of their state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redis_lock_decorators.inspection import LockStatus

#: How many of the last hand-overs a sample has.
SAMPLED = 50
#: A lock with its hand-overs per second; None if there is no former sample.
Rated = tuple[LockStatus, float | None]


@dataclass(frozen=True)
class Sample:
    """A lock at some moment.

    Attributes:
        status: its state.
        seconds: when, by a clock that only goes forward.
        handed_over: the times of its last hand-overs by the server's clock, ``SAMPLED`` at most.
    """

    status: LockStatus
    seconds: float
    handed_over: Sequence[float]


class Rates:
    """Compare the samples of locks with those before."""

    def __init__(self) -> None:
        self._last: dict[str, Sample] = {}

    def add(self, samples: Iterable[Sample]) -> list[Rated]:
        """Return each state with its hand-overs per second.

        Samples that are not among the last ones are forgotten.
        """
        before, self._last = self._last, {}
        found = []
        for sample in samples:
            former = before.get(sample.status.key)
            rate = None if former is None else per_second(former, sample)
            found.append((sample.status, rate))
            self._last[sample.status.key] = sample
        return found


def per_second(before: Sample, now: Sample) -> float:
    """Return the hand-overs per second between two samples, at least.

    Each of three figures may miss some: the recorded hand-overs, the ticket of the first waiter,
    which begins anew with an empty queue, and whether the holder is another one.
    """
    seconds = now.seconds - before.seconds
    has_changed = now.status.identifier not in (None, before.status.identifier)
    return max(_recorded(before, now), _served(before, now) / seconds, has_changed / seconds)


def _recorded(before: Sample, now: Sample) -> float:
    last = before.handed_over[-1] if before.handed_over else 0.0
    new = [time for time in now.handed_over if time > last]
    if len(new) == SAMPLED and new[-1] > new[0]:  # there may be more than the sample has
        return (SAMPLED - 1) / (new[-1] - new[0])
    return len(new) / (now.seconds - before.seconds)


def _served(before: Sample, now: Sample) -> int:
    if before.status.head is None or now.status.head is None:
        return 0
    return max(0, now.status.head - before.status.head)
