"""The results of the scenes of ``redis-lock demo``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

COLUMNS = ("logins", "logouts", "expected", "counted", "lost updates", "seconds", "per second")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a scene: the numbers of one row of the table."""

    logins: int
    logouts: int
    expected: int
    counted: int
    lost: int
    seconds: float

    def is_exact(self) -> bool:
        """Whether the count is right and no update was lost."""
        return self.counted == self.expected and self.lost == 0


def judge(history: Iterable[tuple[int, int]], counted: int, seconds: float) -> Outcome:
    """Compare the count with the history, and count the lost updates.

    Args:
        history: for each write its step, and how many writes had been made when it read.
        counted: what the counter has at the end.
        seconds: how long the scene took.
    """
    writes = list(history)
    kept, position = 0, len(writes)
    while position:  # from the last write to the one that it had read, and so on
        kept, position = kept + 1, writes[position - 1][1]
    logins = sum(step == 1 for step, _ in writes)
    logouts = len(writes) - logins
    return Outcome(logins, logouts, logins - logouts, counted, len(writes) - kept, seconds)


def table(outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{'':<16}" + "".join(f"{column:>13}" for column in COLUMNS)
    for scene, outcome in outcomes.items():
        *numbers, seconds = map(str, dataclasses.astuple(outcome))
        rate = (outcome.logins + outcome.logouts) / outcome.seconds
        numbers += [f"{float(seconds):.1f}", f"{rate:.0f}"]
        yield f"{scene:<16}" + "".join(f"{number:>13}" for number in numbers)
