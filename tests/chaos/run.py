"""Processes that fight for locks while they are harmed, and a check of what they say happened.

``python tests/chaos/run.py --seconds 60`` prints a line and ends with 1 if something was wrong.
Each process appends to a file of its own; times are monotonic, the same for all of a machine.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import redis
import redis.asyncio

import redis_lock_decorators
import redis_lock_decorators.asyncio
from redis_lock_decorators import LockLostError
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
PATIENCES = (0.0, 0.01, 0.05, 0.5, 60.0, 60.0, 60.0)
CROWD = {"threads": 6, "tasks": 20}
#: What the server or the way there may fail with, so that nobody knows what was done.
BROKEN = (redis.ConnectionError, redis.TimeoutError)


class Diary:
    """What one process did: a line of JSON for each event, there even if the process is killed."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self._file = os.open(folder / f"{name}.history", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._number = 0
        self._mutex = threading.Lock()

    def begin(self, **facts: Any) -> int:
        """The number of a new attempt."""
        with self._mutex:
            self._number += 1
            number = self._number
        self.note(number, invoked=time.monotonic(), **facts)
        return number

    def note(self, number: int, **facts: Any) -> None:
        """More about an attempt."""
        os.write(self._file, (json.dumps({"attempt": number, **facts}) + "\n").encode())


class Worker:
    """One process: some threads, or some tasks."""

    def __init__(self, kind: str, port: int, folder: pathlib.Path, name: str) -> None:
        self.kind, self.port = kind, port
        self.diary = Diary(folder, name)
        self.random = random.Random(name)
        self.stop = folder / "stop"

    def run(self) -> None:
        if self.kind == "tasks":
            asyncio.run(self._tasks())
            return
        client = redis.Redis(port=self.port)
        make = _redis_py if self.kind == "redis-py" else _lock
        crowd = CROWD["threads"]
        threads = [threading.Thread(target=self._thread, args=(client, make)) for _ in range(crowd)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _thread(self, client: Any, make: Any) -> None:
        while not self.stop.exists():
            name = self.random.choice(list(LOCKS))
            self._attempt(make, client, name, self.random.choice(PATIENCES))
        for name in LOCKS:
            self._attempt(make, client, name, 60.0)

    def _attempt(self, make: Any, client: Any, name: str, patience: float) -> None:
        number = self.diary.begin(lock=name, patience=patience)
        try:
            lease = make(client, name, patience)
            if lease is None:
                self._end(number, "refused")
                return
            self._granted(number, lease)
            for pause in self._hold():
                time.sleep(pause)
                if lease.lost:
                    break
            self._releasing(number, lease)
            lease.release()
            self._end(number, "ok")
        except BaseException as error:
            self._failed(number, error)

    async def _tasks(self) -> None:
        client = redis.asyncio.Redis(port=self.port)
        await asyncio.gather(*[self._task(client) for _ in range(CROWD["tasks"])])
        await client.aclose()

    async def _task(self, client: Any) -> None:
        while not self.stop.exists():
            name, patience = self.random.choice(list(LOCKS)), self.random.choice(PATIENCES)
            attempt = asyncio.ensure_future(self._attempt_by_task(client, name, patience))
            if self.random.random() < 0.2:
                await asyncio.wait([attempt], timeout=self.random.expovariate(20))
                attempt.cancel()
            await asyncio.wait([attempt])
        for name in LOCKS:
            await self._attempt_by_task(client, name, 60.0)

    async def _attempt_by_task(self, client: Any, name: str, patience: float) -> None:
        number = self.diary.begin(lock=name, patience=patience)
        lease, is_inside = None, False
        try:
            lock = redis_lock_decorators.asyncio.RedisLock(name, client=client, **_options(name))
            lease = await lock.acquire(patience, blocking=patience > 0)
            if lease is None:
                self._end(number, "refused")
                return
            self._granted(number, lease)
            is_inside = True
            for pause in self._hold():
                await asyncio.sleep(pause)
                if lease.lost:
                    break
            self._releasing(number, lease)
            is_inside = False
            await lease.release()
            self._end(number, "ok")
        except BaseException as error:
            if is_inside:
                self._releasing(number, lease)
            if isinstance(error, asyncio.CancelledError) and lease is not None:
                try:
                    await lease.release()
                except Exception as failure:
                    error = failure
            self._failed(number, error)

    def _hold(self) -> list[float]:
        """Pauses inside: none, short, or at times for longer than a lease."""
        chance = self.random.random()
        is_control = self.kind == "redis-py"  # it does not renew: its work is shorter than a lease
        if chance < (0.1 if is_control else 0.015):
            longest = 0.4 if is_control else 1.5
            return [0.05] * int(20 * longest * LEASE)
        return [0.003 * self.random.random()] if chance < 0.3 else []

    def _granted(self, number: int, lease: Any) -> None:
        self.diary.note(
            number,
            granted=time.monotonic(),
            deadline=lease.deadline,
            identifier=lease.identifier,
            fence=lease.fence,
        )

    def _releasing(self, number: int, lease: Any) -> None:
        self.diary.note(number, releasing=time.monotonic(), deadline=lease.deadline)

    def _end(self, number: int, outcome: str) -> None:
        self.diary.note(number, ended=time.monotonic(), outcome=outcome)

    def _failed(self, number: int, error: BaseException) -> None:
        if isinstance(error, redis.exceptions.LockError):
            outcome = "lost"
            if not isinstance(error, (LockLostError, redis.exceptions.LockNotOwnedError)):
                outcome = "wrong"
        elif isinstance(error, BROKEN):
            outcome = "unknown"
        else:
            outcome = "cancelled" if isinstance(error, asyncio.CancelledError) else "wrong"
        why = f"{type(error).__name__}: {error}"
        self.diary.note(number, ended=time.monotonic(), outcome=outcome, why=why)


def _options(name: str) -> dict[str, Any]:
    wait = random.choice(LOCKS[name])
    return {"expire": LEASE, "fencing": name.endswith("fenced"), "wait": wait}


def _lock(client: Any, name: str, patience: float) -> Any:
    lock = redis_lock_decorators.RedisLock(name, client=client, **_options(name))
    return lock.acquire(patience, blocking=patience > 0)


def _redis_py(client: Any, name: str, patience: float) -> Any:
    """The negative control: a lock that does not know when its lease ends."""
    lock = client.lock(name, timeout=LEASE, sleep=0.01, thread_local=False)
    if not lock.acquire(blocking=patience > 0, blocking_timeout=patience or None):
        return None
    lock.lost, lock.deadline, lock.fence = False, None, None
    lock.identifier = lock.local.token.decode()
    return lock


@dataclass
class Harm:
    """What was done to one process: when it was stopped, and when it was killed."""

    stops: list[tuple[float, float]] = field(default_factory=list)
    killed: float | None = None


class Ring:
    """The processes, and what is done to them."""

    def __init__(self, kinds: list[str], server: Any, folder: pathlib.Path, seed: int) -> None:
        self.server, self.folder = server, folder
        self.random = random.Random(seed)
        self.client = server.client()
        self.harms: dict[str, Harm] = {}
        self.done: Counter[str] = Counter()
        self.stopped: dict[str, float] = {}
        self.is_control = kinds[0] == "redis-py"
        self.processes = {}
        for place, kind in enumerate(kinds):
            self._start(f"{kind}.{place}.0")

    def _start(self, name: str) -> None:
        kind = name.split(".")[0]
        command = [sys.executable, __file__, "--worker", kind, name]
        with open(self.folder / f"{name}.stderr", "wb") as said:
            self.processes[name] = subprocess.Popen(
                [*command, str(self.server.port), str(self.folder)], stderr=said
            )
        self.harms[name] = Harm()

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
        (self.folder / "stop").touch()

    def _kill(self) -> None:
        name = self.random.choice(list(self.processes))
        process = self.processes.pop(name)
        process.kill()
        process.wait()
        self.harms[name].killed = now = time.monotonic()
        if name in self.stopped:
            self.stopped.pop(name)
            start, _ = self.harms[name].stops[-1]
            self.harms[name].stops[-1] = (start, now)
        kind, place, life = name.split(".")
        self._start(f"{kind}.{place}.{int(life) + 1}")

    def _stop(self) -> None:
        name = self.random.choice(list(self.processes))
        if name not in self.stopped:
            now = time.monotonic()
            self.processes[name].send_signal(signal.SIGSTOP)
            # The control is only shown to break: each of its stops is longer than a lease.
            shortest = 1.2 * LEASE if self.is_control else 0.0
            self.stopped[name] = now + self.random.uniform(shortest, shortest + 1.5 * LEASE)
            self.harms[name].stops.append((now, float("inf")))

    def _continue(self, now: float) -> None:
        for name, until in list(self.stopped.items()):
            if until <= now:
                del self.stopped[name]
                self.processes[name].send_signal(signal.SIGCONT)
                start, _ = self.harms[name].stops[-1]
                self.harms[name].stops[-1] = (start, time.monotonic())

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

    def end(self) -> list[str]:
        """The processes that did not end in time; they are killed."""
        end = time.monotonic() + HEALING + LATENESS
        late = []
        for name, process in self.processes.items():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(name)
                process.send_signal(signal.SIGUSR1)  # it says where it stands
                time.sleep(0.5)
                process.kill()
                process.wait()
        return late


def attempts(folder: pathlib.Path) -> list[dict[str, Any]]:
    """All attempts of all processes, each with everything that was noted of it."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for path in sorted(folder.glob("*.history")):
        for line in path.read_text().splitlines():
            facts = json.loads(line)
            number = facts.pop("attempt")
            found.setdefault((path.stem, number), {"process": path.stem}).update(facts)
    return list(found.values())


def ends(attempt: dict[str, Any], harms: dict[str, Harm]) -> float:
    """Until when its holder took itself to be inside."""
    deadline = attempt["deadline"]
    released = attempt.get("releasing")
    if released is None:
        released = harms[attempt["process"]].killed or float("inf")
    return min(released, float("inf") if deadline is None else deadline)


def overlaps(history: list[dict[str, Any]], harms: dict[str, Harm]) -> list[str]:
    """Where two were inside of one lock at once."""
    found = []
    for lock in LOCKS:
        granted = [one for one in history if one["lock"] == lock and "granted" in one]
        last: dict[str, Any] | None = None
        for one in sorted(granted, key=lambda one: one["granted"]):
            end = ends(one, harms)
            if end <= one["granted"]:
                continue  # it came to itself after its lease
            if last is not None and one["granted"] < ends(last, harms):
                found.append(f"two were inside: {last} and {one}")
            if last is None or end > ends(last, harms):
                last = one
    return found


def fences(history: list[dict[str, Any]], harms: dict[str, Harm]) -> list[str]:
    """Where the number of an acquisition is not greater than that of the one before."""
    found = []
    numbered = [one for one in history if one.get("fence") is not None]
    inside = [one for one in numbered if one["granted"] < ends(one, harms)]
    inside.sort(key=lambda one: one["granted"])
    for before, after in itertools.pairwise(inside):
        if after["fence"] <= before["fence"]:
            found.append(f"the fence does not grow: {before} and {after}")
    return found


def delays(history: list[dict[str, Any]], harms: dict[str, Harm]) -> list[str]:
    """Who was refused too late, in a process that was not stopped."""
    found = []
    for one in history:
        if one.get("outcome") != "refused":
            continue
        stops = harms[one["process"]].stops
        if any(start < one["ended"] and end > one["invoked"] for start, end in stops):
            continue
        if one["ended"] > one["invoked"] + one["patience"] + LATENESS:
            found.append(f"refused too late: {one}")
    return found


def forgotten(history: list[dict[str, Any]], late: list[str], healed: float) -> list[str]:
    """Who had no answer in time after everything was healed."""
    found = []
    for one in history:
        if one["process"] in late and "ended" not in one:
            found.append(f"nobody answered by {HEALING:.0f} s after the last harm: {one}")
        elif one.get("outcome") == "refused" and one["patience"] >= HEALING:
            found.append(f"refused after long: {one}")
    return found + [f"{name} did not end, {healed=}" for name in late]


def strange(history: list[dict[str, Any]], folder: pathlib.Path) -> list[str]:
    """Errors that no harm explains."""
    found = [f"failed: {one}" for one in history if one.get("outcome") == "wrong"]
    for path in sorted(folder.glob("*.stderr")):
        said = path.read_text()
        if "Traceback" in said or "Thread 0x" in said:
            found.append(f"{path.stem} said: {said[-2000:]}")
    return found


def keys_left(client: Any) -> list[str]:
    """Keys that stand when every lease is over; numbers for fences are kept."""
    end = time.monotonic() + LEASE + 2
    left = ["?"]
    while left and time.monotonic() < end:
        time.sleep(0.05)
        left = [key.decode() for key in client.keys("*") if not key.endswith(b":fence")]
    return [f"left behind: {key}" for key in left]


def run(seconds: float, seed: int, kinds: list[str]) -> tuple[str, list[str], list[str]]:
    """A line about it, what was wrong, and what only the negative control may show."""
    with tempfile.TemporaryDirectory() as place, LocalServer() as server:
        folder = pathlib.Path(place)
        ring = Ring(kinds, server, folder, seed)
        ring.harm(seconds)
        healed = time.monotonic()
        late = ring.end()
        history = attempts(folder)
        twice = overlaps(history, ring.harms)
        wrong = [
            *fences(history, ring.harms),
            *forgotten(history, late, healed),
            *strange(history, folder),
            *([] if ring.is_control else delays(history, ring.harms)),
            *([] if ring.is_control else keys_left(server.client())),
        ]
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
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        kind, name, port, folder = options.worker
        faulthandler.register(signal.SIGUSR1)
        Worker(kind, int(port), pathlib.Path(folder), name).run()
        return 0
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
