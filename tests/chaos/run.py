"""Processes that fight for locks while they are harmed, and a check of what they say happened.

``python tests/chaos/run.py --seconds 60`` prints a line and ends with 1 if something was wrong.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.connecting import to_server
from support.history import attempts, delays, fences, overlaps, starved, untold
from support.locker_processes import LockerProcesses, keys_left
from support.plans import LockerPlan

from redis_lock_decorators.testing import LocalServer

LEASE = 1.0
#: Seconds after the last harm in which everybody must have been served or refused.
HEALING = LEASE + 5
#: Seconds by which a refusal may be late on a machine that is busy.
LATENESS = 2.0
#: How each lock is waited for; where there are several, each attempt chooses.
LOCKS = {
    "chaos:queue": ("queue",),
    "chaos:cohort": ("cohort",),
    "chaos:mixed": ("queue", "cohort", "poll"),
    "chaos:fenced": ("queue",),
}


class Ring:
    """The processes, and what is done to them."""

    def __init__(self, kinds: list[str], server: Any, folder: pathlib.Path, seed: int) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.client = server.client()
        self.done: Counter[str] = Counter()
        self.stopped: dict[str, float] = {}
        self.is_control = kinds[0] == "redis-py"
        self.lockers = LockerProcesses(folder, LockerPlan(to_server(server.port), LOCKS, LEASE))
        for place, kind in enumerate(kinds):
            self.lockers.start(f"{kind}.{place}.0")

    def harm(self, seconds: float) -> None:
        """Do harm for so long, then heal."""
        deeds = [self._kill, self._stop, self._stop, self._cut, self._cut_words, self._flush]
        if not self.is_control:
            deeds.append(self._stop_server)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.random.uniform(0.02, 0.4))
            self._continue(time.monotonic())
            deed = self.random.choice(deeds)
            self.done[deed.__name__.strip("_")] += 1
            deed()
        self._continue(float("inf"))
        self.lockers.stop()

    def _kill(self) -> None:
        name = self.random.choice(list(self.lockers.processes))
        self.lockers.kill(name)
        if name in self.stopped:
            self.stopped.pop(name)
            stops = self.lockers.harms[name].stops
            stops[-1] = (stops[-1][0], time.monotonic())
        kind, place, life = name.split(".")
        self.lockers.start(f"{kind}.{place}.{int(life) + 1}")

    def _stop(self) -> None:
        name = self.random.choice(list(self.lockers.processes))
        if name not in self.stopped:
            now = time.monotonic()
            self.lockers.processes[name].send_signal(signal.SIGSTOP)
            # The control is only shown to break: each of its stops is longer than a lease.
            shortest = 1.2 * LEASE if self.is_control else 0.0
            self.stopped[name] = now + self.random.uniform(shortest, shortest + 1.5 * LEASE)
            self.lockers.harms[name].stops.append((now, float("inf")))

    def _continue(self, now: float) -> None:
        for name, until in list(self.stopped.items()):
            if until <= now:
                del self.stopped[name]
                self.lockers.processes[name].send_signal(signal.SIGCONT)
                start, _ = self.lockers.harms[name].stops[-1]
                self.lockers.harms[name].stops[-1] = (start, time.monotonic())

    def _cut(self) -> None:
        self.client.client_kill_filter(_type="normal", skipme=True)

    def _cut_words(self) -> None:
        self.client.client_kill_filter(_type="pubsub", skipme=True)

    def _flush(self) -> None:
        self.client.script_flush()

    def _stop_server(self) -> None:
        self.server.pause()
        time.sleep(self.random.uniform(0, 0.4 * LEASE))
        self.server.resume()


def run(seconds: float, seed: int, kinds: list[str]) -> tuple[str, list[str], list[str]]:
    """A line about it, what was wrong, and what only the negative control may show."""
    with tempfile.TemporaryDirectory() as place, LocalServer() as server:
        folder = pathlib.Path(place)
        ring = Ring(kinds, server, folder, seed)
        with ring.lockers as lockers:
            ring.harm(seconds)
            healed = time.monotonic()
            late = lockers.end(HEALING + LATENESS)
        history = attempts(folder)
        twice = overlaps(history, lockers.harms)
        wrong = [
            *fences(history, lockers.harms),
            *starved(history, lockers.harms, healed, HEALING + LATENESS),
            *[f"{name} did not end, {healed=}" for name in late],
            *[f"failed: {one}" for one in history if one.get("outcome") in ("wrong", "error")],
            *lockers.complaints(),
        ]
        if not ring.is_control:
            wrong += untold(history)
            wrong += delays(history, lockers.harms, LATENESS)
            wrong += keys_left([server.client()], LEASE + 2)
    outcomes = Counter(one.get("outcome", "killed") for one in history)
    waits = [one["granted"] - one["invoked"] for one in history if "granted" in one]
    lost = [f"lost: {one}" for one in history if one.get("outcome") == "lost"]
    said = " ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    harms = " ".join(f"{count} {deed}" for deed, count in sorted(ring.done.items()))
    line = (
        f"chaos {'+'.join(kinds)} seed {seed}, {seconds:.0f} s: {len(history)} attempts ({said}), "
        f"harms ({harms}), longest wait {max(waits, default=0):.2f} s, "
        f"{len(twice)} overlaps, {len(wrong)} other problems"
    )
    return line, wrong if ring.is_control else twice + wrong, twice + lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    kinds = ["threads", "tasks", "threads", "tasks"]
    line, wrong, _ = run(options.seconds, seed, kinds)
    print(line)
    for problem in [*wrong[:20], *wrong[20:][-20:]]:
        print(problem)
    line, _, seen = run(max(10.0, options.seconds / 4), seed, ["redis-py"] * 3)
    print(line)
    if not seen:
        print("void: the same harms did nothing to a lock that is known to break under them")
    return 1 if wrong or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
