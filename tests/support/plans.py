"""The plan of the lockers of one process, stored as JSON."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from dataclasses import dataclass
from typing import Any

#: Seconds that a locker waits for a lock that it must acquire.
LONG = 60.0
#: The longest block of a locker, in leases.
LONGEST_BLOCK = 1.5


@dataclass(frozen=True)
class LockerPlan:
    """What the lockers of a process do; durations are in seconds.

    ``locks`` lists the ways to wait for each (queue, cohort, poll, drop-in); each attempt chooses
    one of them.
    """

    connection: dict[str, Any]
    locks: dict[str, tuple[str, ...]]
    lease: float = 1.0
    patiences: tuple[float, ...] = (0.0, 0.01, 0.05, 0.5, LONG, LONG, LONG)
    threads: int = 6
    tasks: int = 20
    #: The number of threads that begin together, when the file "more" exists.
    later: int = 0
    #: The share of attempts that are cancelled, of tasks.
    cancelled: float = 0.2
    #: The share of blocks longer than a lease, and of blocks that last at most ``moment``.
    long: float = 0.015
    short: float = 0.3
    moment: float = 0.003
    #: The longest pause between two attempts.
    rest: float = 0.0

    def save(self, path: pathlib.Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def load(cls, path: pathlib.Path) -> LockerPlan:
        return cls(**json.loads(path.read_text()))
