"""Use locks in every public way for a long time, and check that nothing grows.

At intervals all uses end and what remains is counted: memory, objects of the package, threads,
connections and keys. The figures should stay flat.

    python benchmarks/soak.py --seconds 600
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import os
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import growth
from support.fronts import AsyncioFront, BlockingFront
from support.growth import ENDINGS, TASK_ENDINGS, counted
from support.growth_operations import LONG, OPERATIONS, Use

from redis_lock_decorators.testing import LocalServer

#: Rounds of uses between two counts; threads and tasks that use locks concurrently.
ROUNDS, THREADS, TASKS = 3, 4, 16
COLUMNS = ("connections at the server", "keys", "threads", "descriptors")


class Soak:
    """One server, the uses of its locks, and their failures."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.direct = server.client()
        self.numbers = itertools.count()
        self.uses = 0
        self.failures: Counter[str] = Counter()
        self.clients = {"blocking": BlockingFront().client(server)}

    async def use(self, front: Any, client: Any, operation: Any, ending: Any) -> None:
        use = Use(front, client, self.server, self.direct, f"soak:{next(self.numbers)}")
        try:
            await ending(operation, use)
        except (Exception, asyncio.CancelledError) as error:  # a loss cancels its task
            self.failures[f"{ending.__name__}: {error!r:.100}"] += 1
        self.uses += 1

    def threads(self) -> None:
        """Run a few threads, each with all operations and endings."""
        front = BlockingFront()

        def work() -> None:
            for ending, operation in itertools.product(ENDINGS, OPERATIONS.values()):
                with suppress(StopIteration):
                    front.run(self.use(front, self.clients["blocking"], operation, ending))

        workers = [threading.Thread(target=work) for _ in range(THREADS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    async def tasks(self, client: Any) -> None:
        """Run many tasks, each with all operations and endings."""
        front = AsyncioFront()

        async def work() -> None:
            for ending, operation in itertools.product(
                (*ENDINGS, *TASK_ENDINGS), OPERATIONS.values()
            ):
                await self.use(front, client, operation, ending)

        await asyncio.gather(*[work() for _ in range(TASKS)])

    async def run(self, seconds: float) -> None:
        client = AsyncioFront().client(self.server)
        start = time.monotonic()
        print("seconds    uses   MiB   objects  ours  connections  keys  threads  descriptors")
        while time.monotonic() < start + seconds:
            for _ in range(ROUNDS):
                await asyncio.to_thread(self.threads)
                await self.tasks(client)
            await asyncio.sleep(LONG)
            self.report(time.monotonic() - start)
        await client.aclose()

    def report(self, seconds: float) -> None:
        found = counted(self.direct)
        ours = sum(n for kind, n in found.items() if kind.startswith(growth.OURS))
        figures = "".join(
            f"{found[column]:{width}}"
            for column, width in zip(COLUMNS, (13, 6, 9, 13), strict=True)
        )
        objects = len(gc.get_objects())
        print(
            f"{seconds:7.0f} {self.uses:7} {memory():5.1f} {objects:9} {ours:5}{figures}",
            flush=True,
        )


def memory() -> float:
    """The resident memory of this process, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    with LocalServer() as server, growth.no_records():
        soak = Soak(server)
        asyncio.run(soak.run(parser.parse_args().seconds))
    for failure, times in soak.failures.most_common():
        print(f"{times} times {failure}")


if __name__ == "__main__":
    main()
