"""Workers that acquire one lock as often as they can, and their measurement."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import redis

from contention.peers import NewLock, Peer

#: Seconds at the start of a round that are not measured.
WARM_UP = 0.25
#: Seconds after which a process that does not answer counts as stuck.
STUCK = 30
#: New processes, which inherit nothing from the parent.
processes = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Workload:
    """The number of workers and how long they hold the lock; durations in seconds.

    Attributes:
        kind: "threads" or "tasks".
        workers: in each process.
        round_trip: delay added to every request.
    """

    kind: str
    processes: int
    workers: int
    hold: float = 0.0
    round_trip: float = 0.0

    @property
    def title(self) -> str:
        one = self.processes == self.workers == 1
        title = f"{self.processes} × {self.workers} {self.kind}" if not one else "uncontended"
        if self.hold:
            title += f", held for {self.hold * 1000:g} ms"
        if self.round_trip:
            title += f", {self.round_trip * 1000:g} ms further away"
        return title


class Turn(NamedTuple):
    """One acquisition by a worker, or a wait that was cut short by the end of the round."""

    entered: float
    waited: float
    worker: int


@dataclass
class Record:
    """What the workers of one process did."""

    turns: list[Turn] = field(default_factory=list)
    waiting: dict[int, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def result(self, end: float) -> tuple[list[Turn], list[Turn], list[str]]:
        """Turns, unfinished waits, and failures."""
        waits = [Turn(end, end - since, n) for n, since in list(self.waiting.items())]
        return list(self.turns), waits, list(self.failures)


def work(
    peer: Peer, workload: Workload, port: int, name: str, first: int, parent: Connection
) -> None:
    """Run one process of a workload, whose workers are numbered from ``first``."""
    numbers, record = range(first, first + workload.workers), Record()
    if workload.kind == "tasks":
        asyncio.run(tasks(peer, workload, port, name, numbers, parent, record))
    else:
        threads(peer, workload, port, name, numbers, parent, record)


def threads(
    peer: Peer,
    workload: Workload,
    port: int,
    name: str,
    numbers: range,
    parent: Connection,
    record: Record,
) -> None:
    new_lock = peer.threads(port, name)
    with peer.threads(port, f"{name}:{numbers.start}")():
        pass

    def one(number: int) -> None:
        try:
            while True:
                acquire_once(new_lock, number, workload.hold, record)
        except Exception as error:
            record.failures.append(f"{type(error).__name__}: {error}")

    parent.send("ready")
    parent.recv()
    for number in numbers:
        threading.Thread(target=one, args=(number,), daemon=True).start()
    end = wait_for_end(parent)
    parent.send(record.result(end))
    parent.recv()


def wait_for_end(parent: Connection) -> Any:
    """Wait for the time when the round ended; report the CPU time used whenever asked."""
    while (message := parent.recv()) == "cpu":
        parent.send(time.process_time())
    return message


def acquire_once(new_lock: NewLock, number: int, hold: float, record: Record) -> None:
    record.waiting[number] = began = time.monotonic()
    with new_lock():
        entered = time.monotonic()
        del record.waiting[number]
        record.turns.append(Turn(entered, entered - began, number))
        if hold:
            time.sleep(hold)


async def tasks(
    peer: Peer,
    workload: Workload,
    port: int,
    name: str,
    numbers: range,
    parent: Connection,
    record: Record,
) -> None:
    loop, new_lock = asyncio.get_running_loop(), peer.tasks(port, name)
    async with peer.tasks(port, f"{name}:{numbers.start}")():
        pass

    async def one(number: int) -> None:
        try:
            while True:
                await acquire_once_async(new_lock, number, workload.hold, record)
        except Exception as error:
            record.failures.append(f"{type(error).__name__}: {error}")

    parent.send("ready")
    parent.recv()
    running = [asyncio.create_task(one(number)) for number in numbers]
    end = await loop.run_in_executor(None, wait_for_end, parent)
    parent.send(record.result(end))
    parent.recv()
    assert running


async def acquire_once_async(new_lock: NewLock, number: int, hold: float, record: Record) -> None:
    record.waiting[number] = began = time.monotonic()
    async with new_lock():
        entered = time.monotonic()
        del record.waiting[number]
        record.turns.append(Turn(entered, entered - began, number))
        if hold:
            await asyncio.sleep(hold)


@contextmanager
def at_work(peer: Peer, workload: Workload, port: int, name: str) -> Iterator[list[Connection]]:
    """Pipes to the processes of a workload, which wait to begin; they are killed at the end."""
    ends, started = [], []
    try:
        for number in range(workload.processes):
            own, theirs = processes.Pipe()
            arguments = (peer, workload, port, name, number * workload.workers, theirs)
            process = processes.Process(target=work, args=arguments, daemon=True)
            process.start()
            theirs.close()
            started.append(process)
            ends.append(own)
        for end in ends:
            answer(end)
        yield ends
    finally:
        for process in started:
            process.kill()
            process.join()


def answer(end: Connection) -> Any:
    if not end.poll(STUCK):
        raise TimeoutError("a process of the benchmark does not answer")
    return end.recv()


class Reading(NamedTuple):
    """What the server has done so far.

    Attributes:
        commands: commands run, including those that scripts call.
        reads: reads from connections: one for each request, unless several arrive together.
        cpu: seconds.
        connections: open now.
    """

    commands: int
    reads: int
    cpu: float
    connections: int


def read(server: redis.Redis) -> Reading:
    commands = sum(found["calls"] for found in server.info("commandstats").values())
    cpu = server.info("cpu")
    return Reading(
        commands=commands,
        reads=server.info("stats")["total_reads_processed"],
        cpu=cpu["used_cpu_user"] + cpu["used_cpu_sys"],
        connections=len(server.client_list()) - 1,
    )


def used(ends: list[Connection]) -> float:
    """Seconds of CPU time that the processes have used."""
    for end in ends:
        end.send("cpu")
    return sum(answer(end) for end in ends)


def measured(
    peer: Peer, workload: Workload, port: int, name: str, seconds: float, server: redis.Redis
) -> tuple[dict[str, float], list[str]]:
    """The figures of one round, and its failures."""
    with at_work(peer, workload, port, name) as ends:
        for end in ends:
            end.send("begin")
        time.sleep(WARM_UP)
        begun, before, spent = time.monotonic(), read(server), used(ends)
        time.sleep(seconds)
        ended, after, spent = time.monotonic(), read(server), used(ends) - spent
        for end in ends:
            end.send(ended)
        results = [answer(end) for end in ends]
    turns = sorted(turn for found, _, _ in results for turn in found)
    turns = [turn for turn in turns if begun <= turn.entered < ended]
    waiting = [turn for _, cut, _ in results for turn in cut]
    failures = [failure for _, _, found in results for failure in found]
    workers = workload.processes * workload.workers
    found = judged(turns, waiting, workers, ended - begun)
    made = max(1, len(turns))
    found["reads"] = (after.reads - before.reads) / made
    found["commands"] = (after.commands - before.commands) / made
    found["cpu"] = (after.cpu - before.cpu) / made * 1000
    found["client cpu"] = spent / made * 1000
    found["client cpu each"] = spent / max(1.0, found["changes"] * (ended - begun)) * 1000
    found["connections"] = after.connections
    return found, failures


def judged(
    turns: list[Turn], waiting: list[Turn], workers: int, seconds: float
) -> dict[str, float]:
    """Rates, fairness and waits; an unfinished wait counts with its length so far."""
    each = [0] * workers
    for turn in turns:
        each[turn.worker] += 1
    changes = sum(a.worker != b.worker for a, b in itertools.pairwise(turns))
    waits = sorted(turn.waited for turn in (*turns, *waiting)) or [seconds]
    return {
        "turns": len(turns) / seconds,
        "changes": changes / seconds,
        "jain": jain(each),
        "fewest": min(each),
        "most": max(each),
        "p50": statistics.median(waits) * 1000,
        "p99": waits[int(len(waits) * 0.99)] * 1000,
        "max": waits[-1] * 1000,
    }


def jain(each: list[int]) -> float:
    """Jain's fairness index: 1 if all are equal, 1/n if one has everything."""
    squares = sum(number * number for number in each)
    return sum(each) ** 2 / (len(each) * squares) if squares else 0.0


def crowd(peer: Peer, port: int, name: str, waiters: int, server: redis.Redis) -> dict[str, float]:
    """Measure many tasks of one process that acquire one lock once each."""
    own, theirs = processes.Pipe()
    process = processes.Process(target=run_crowd, args=(peer, port, name, waiters, theirs))
    process.start()
    most = 0
    try:
        while not own.poll(0.05):
            most = max(most, len(server.client_list()) - 1)
        served, seconds, longest = own.recv()
    finally:
        process.kill()
        process.join()
    return {"served": served, "seconds": seconds, "longest": longest, "connections": most}


def run_crowd(peer: Peer, port: int, name: str, waiters: int, parent: Connection) -> None:
    """Run the process of a crowd."""

    async def run() -> None:
        record, new_lock = Record(), peer.tasks(port, name)
        started = time.monotonic()
        each = [acquire_once_async(new_lock, number, 0, record) for number in range(waiters)]
        await asyncio.gather(*each, return_exceptions=True)
        longest = max((turn.waited for turn in record.turns), default=0.0)
        parent.send((len(record.turns), time.monotonic() - started, longest))

    asyncio.run(run())
