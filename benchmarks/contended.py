"""What a contended lock costs, next to other packages' locks in the same run.

    pip install python-redis-lock pottery
    python benchmarks/contended.py [--quick] [--write docs/reference]

Workers in several processes acquire one lock in a loop, on one server. The locks are measured in
alternating short rounds whose order is shuffled; the tables give the median round of each.
Then ten thousand tasks of one process acquire one lock once each. A package that is not installed
is skipped. The columns are explained in docs/reference/benchmarks.rst, which ``--write`` updates
together with its pictures.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import random
import statistics
import time
from collections.abc import Iterator

from contention import pictures, report
from contention.conditions import conditions
from contention.distance import distant
from contention.peers import BLPOP, OURS, PEERS, REDIS_PY, Peer
from contention.workload import Workload, crowd, measured, processes

from redis_lock_decorators.testing import LocalServer

FAR = 0.002
WORKLOADS = (
    Workload("threads", 1, 1),
    *(
        Workload(kind, number, workers, hold)
        for kind, number, workers in (("threads", 4, 4), ("threads", 2, 4), ("tasks", 4, 50))
        for hold in (0, 0.001)
    ),
    Workload("threads", 2, 4, round_trip=FAR),
    Workload("tasks", 2, 10, round_trip=FAR),
)
WAITERS = 10_000


class Run:
    """All rounds on one server, and their results."""

    def __init__(self, server: LocalServer, far: int, seconds: float) -> None:
        self.client = server.client()
        self._ports = {0.0: server.port, FAR: far}
        self._seconds = seconds
        self._numbers = iter(range(1_000_000))
        self.rounds: dict[tuple[Workload, Peer], list[report.Found]] = {}
        self.failures: dict[tuple[Workload, Peer], str] = {}

    def round(self, peers: list[Peer]) -> None:
        """Measure every workload once with every lock."""
        for workload in WORKLOADS:
            able = [peer for peer in peers if getattr(peer, workload.kind) is not None]
            for peer in random.sample(able, len(able)):
                self._measure(workload, peer)

    def _measure(self, workload: Workload, peer: Peer) -> None:
        self.client.flushall()
        port, name = self._ports[workload.round_trip], f"benchmark:{next(self._numbers)}"
        found, failures = measured(peer, workload, port, name, self._seconds, self.client)
        self.rounds.setdefault((workload, peer), []).append(found)
        if failures:
            self.failures[workload, peer] = failures[0]

    def medians(self, workload: Workload) -> dict[str, report.Found]:
        """The medians of each lock, in the order of ``PEERS``."""
        return {
            peer.title: summary(self.rounds[workload, peer])
            for peer in PEERS
            if (workload, peer) in self.rounds
        }

    def crowd(self) -> report.Found:
        """Many tasks that acquire one lock."""
        self.client.flushall()
        return crowd(OURS, self._ports[0.0], "benchmark:crowd", WAITERS, self.client)


def summary(rounds: list[report.Found]) -> report.Found:
    """The median of each figure, and the slowest and the fastest round."""
    found = {figure: statistics.median(one[figure] for one in rounds) for figure in rounds[0]}
    turns = [one["turns"] for one in rounds]
    return {**found, "slowest": min(turns), "fastest": max(turns)}


@contextlib.contextmanager
def running(seconds: float) -> Iterator[Run]:
    with LocalServer() as server, distant(server.port, FAR, processes) as far:
        yield Run(server, far, seconds)


def base(found: dict[str, report.Found]) -> str:
    """The lock that ratios refer to; python-redis-lock has none for asyncio."""
    return BLPOP.title if BLPOP.title in found else REDIS_PY.title


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round of each")
    parser.add_argument(
        "--write", type=pathlib.Path, metavar="docs/reference", help="update its page"
    )
    options = parser.parse_args()
    rounds, seconds = (1, 0.5) if options.quick else (3, 1.5)
    peers = [peer for peer in PEERS if peer.is_installed()]
    started = time.monotonic()
    with running(seconds) as run:
        number = "round" if rounds == 1 else "rounds"
        setting = conditions(run.client, f"{rounds} {number} of {seconds:g} s each")
        print(setting)
        for peer in PEERS:
            if peer not in peers:
                print(f"{peer.title} is skipped: {peer.package} is not installed")
        for _ in range(rounds):
            run.round(peers)
        found = run.crowd()
    tables = []
    for workload in WORKLOADS:
        medians = run.medians(workload)
        table = report.rows(medians, base(medians))
        print(report.plain(workload.title, table), end="\n\n", flush=True)
        tables.append(report.markup(workload.title, table))
    many = (
        f"{WAITERS:,} tasks of one process, one turn each: {found['served']:,} served in "
        f"{found['seconds']:.1f} s over {found['connections']} connections, "
        f"the last after {found['longest']:.1f} s."
    )
    print(many)
    for (workload, peer), failure in run.failures.items():
        print(f"{peer.title}, {workload.title}: {failure}")
    print(f"{time.monotonic() - started:.0f} s")
    if options.write:
        page = options.write / "benchmarks.rst"
        report.put(page, "\n".join([f"{setting}.\n", *tables, many]))
        text = page.read_text(encoding="utf-8")
        for picture in ("contended.svg", "waiting.svg"):
            drawn = pictures.PICTURES[picture](text)
            (options.write / picture).write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
