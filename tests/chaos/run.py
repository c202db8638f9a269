"""Processes that compete for locks while faults are injected, and a check of their histories.

``python tests/chaos/run.py --seconds 60`` prints a summary; the exit status is 1 on any violation.
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
from support.history import attempts, delays, fences, overlaps, starved, unnotified
from support.locker_processes import LockerProcesses, keys_left
from support.plans import LockerPlan

from redis_lock_decorators.testing import LocalServer

LEASE = 1.0
#: Seconds after the last fault in which every attempt must have been granted or refused.
HEALING = LEASE + 5
#: Seconds by which a refusal may be late on a busy machine.
LATENESS = 2.0
#: Runs of the control at most: one in which the known lock fails is enough.
CONTROLS = 3
#: The ways to wait for each lock; each attempt chooses one at random.
LOCKS = {
    "chaos:queue": ("queue",),
    "chaos:cohort": ("cohort",),
    "chaos:mixed": ("queue", "cohort", "poll"),
    "chaos:fenced": ("queue",),
}


class Chaos:
    """The processes, and the faults injected into them."""

    def __init__(self, kinds: list[str], server: Any, folder: pathlib.Path, seed: int) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.client = server.client()
        self.done: Counter[str] = Counter()
        self.stopped: dict[str, float] = {}
        self.is_control = kinds[0] == "redis-py"
        self.lockers = LockerProcesses(folder, LockerPlan(to_server(server.port), LOCKS, LEASE))
        for number, kind in enumerate(kinds):
            self.lockers.start(f"{kind}.{number}.0")

    def inject(self, seconds: float) -> None:
        """Inject faults for this long, then end them all."""
        faults = [self._kill, self._stop, self._stop, self._cut, self._cut_pubsub, self._flush]
        if not self.is_control:
            faults.append(self._stop_server)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.random.uniform(0.02, 0.4))
            self._continue(time.monotonic())
            fault = self.random.choice(faults)
            self.done[fault.__name__.strip("_")] += 1
            fault()
        self._continue(float("inf"))
        self.lockers.stop()

    def _kill(self) -> None:
        name = self.random.choice(list(self.lockers.processes))
        self.lockers.kill(name)
        if name in self.stopped:
            self.stopped.pop(name)
            stops = self.lockers.harms[name].stops
            stops[-1] = (stops[-1][0], time.monotonic())
        kind, number, life = name.split(".")
        self.lockers.start(f"{kind}.{number}.{int(life) + 1}")

    def _stop(self) -> None:
        name = self.random.choice(list(self.lockers.processes))
        if name not in self.stopped:
            now = time.monotonic()
            self.lockers.processes[name].send_signal(signal.SIGSTOP)
            # The control must fail: each of its stops is longer than a lease.
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

    def _cut_pubsub(self) -> None:
        self.client.client_kill_filter(_type="pubsub", skipme=True)

    def _flush(self) -> None:
        self.client.script_flush()

    def _stop_server(self) -> None:
        self.server.pause()
        time.sleep(self.random.uniform(0, 0.4 * LEASE))
        self.server.resume()


def run(seconds: float, seed: int, kinds: list[str]) -> tuple[str, list[str], list[str]]:
    """A summary, the violations, and the overlaps and losses that the control must show."""
    with tempfile.TemporaryDirectory() as path, LocalServer() as server:
        folder = pathlib.Path(path)
        chaos = Chaos(kinds, server, folder, seed)
        with chaos.lockers as lockers:
            chaos.inject(seconds)
            healed = time.monotonic()
            late = lockers.end(HEALING + LATENESS)
        history = attempts(folder)
        overlapping = overlaps(history, lockers.harms)
        wrong = [
            *fences(history, lockers.harms),
            *starved(history, lockers.harms, healed, HEALING + LATENESS),
            *[f"{name} did not end, {healed=}" for name in late],
            *[f"failed: {one}" for one in history if one.get("outcome") in ("wrong", "error")],
            *lockers.complaints(),
        ]
        if not chaos.is_control:
            wrong += unnotified(history)
            wrong += delays(history, lockers.harms, LATENESS)
            wrong += keys_left([server.client()], LEASE + 2)
    outcomes = Counter(one.get("outcome", "killed") for one in history)
    waits = [one["granted"] - one["invoked"] for one in history if "granted" in one]
    lost = [f"lost: {one}" for one in history if one.get("outcome") == "lost"]
    summary = " ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    faults = " ".join(f"{count} {fault}" for fault, count in sorted(chaos.done.items()))
    line = (
        f"chaos {'+'.join(kinds)} seed {seed}, {seconds:.0f} s: "
        f"{len(history)} attempts ({summary}), "
        f"faults ({faults}), longest wait {max(waits, default=0):.2f} s, "
        f"{len(overlapping)} overlaps, {len(wrong)} other problems"
    )
    return line, wrong if chaos.is_control else overlapping + wrong, overlapping + lost


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
    control = max(10.0, options.seconds / 4)
    for repetition in range(CONTROLS):  # on a slow machine there are few moments to fail in
        line, _, seen = run(control, seed + repetition, ["redis-py"] * 3)
        print(line)
        if seen:
            break
    else:
        print("void: the same faults did not break a lock that is known to fail under them")
    return 1 if wrong or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
