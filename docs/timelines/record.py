"""Record the timelines of docs/concepts on real servers: ``python docs/timelines/record.py``.

Three processes (worker.py) use one lock; then something fails. What happens is written to
``SCENE.txt`` next to this file. ``python docs/draw_timelines.py`` draws it.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import pathlib
import platform
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import redis

from redis_lock_decorators.testing import LocalSentinel, LocalServer

HERE = pathlib.Path(__file__).resolve().parent
WORKERS = ("A", "B", "C")
#: What worker.py has: the seconds of a lease, and the lock's key.
EXPIRE, KEY = 2, "sys:lock:report"
#: Seconds to wait for what must happen.
PATIENCE = 60.0
#: Seconds: a turn, one that outlives a lease, from A's entry to the failure, how long A is stopped;
#: how long before A's entry the timeline begins.
TURN, LONG_TURN, INTO, STOPPED, BEFORE = 0.7, 2.5, 0.35, 3.6, 0.9


class Recording:
    """What happens to some workers.

    Args:
        environment: where the workers find their server.
        seconds: how long each turn inside takes.
    """

    def __init__(self, environment: dict[str, str], seconds: float = TURN) -> None:
        self.events: list[tuple[float, str, str]] = []
        self.workers: dict[str, subprocess.Popen[str]] = {}
        self._seconds = seconds
        self._environment = {**os.environ, **environment}
        self._arrived: queue.Queue[tuple[float, str, str]] = queue.Queue()

    def start(self, name: str) -> None:
        """Start a worker; what it prints is recorded."""
        worker = subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, HERE / "worker.py", str(self._seconds)],
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.workers[name] = worker
        threading.Thread(target=self._read, args=(name, worker), daemon=True).start()

    def _read(self, name: str, worker: subprocess.Popen[str]) -> None:
        for line in worker.stdout or ():
            at, _, event = line.rstrip().partition(" ")
            self._arrived.put((float(at), name, event))

    def note(self, name: str, event: str) -> None:
        """Record an event that this process causes or sees."""
        self._arrived.put((time.monotonic(), name, event))

    def wait_for(self, name: str, event: str) -> None:
        """Record events until this one; an empty name means that of any worker."""
        end = time.monotonic() + PATIENCE
        while True:
            found = self._arrived.get(timeout=max(0.0, end - time.monotonic()))
            self.events.append(found)
            if found[1] in (name or found[1]) and found[2] == event:
                return

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a worker a signal."""
        self.workers[name].send_signal(number)

    @contextlib.contextmanager
    def running(self, after: int) -> Iterator[None]:
        """Run the block while A is inside and the others wait; then wait for so many entries."""
        try:
            for name in WORKERS:
                self.start(name)
                self.wait_for(name, "enters" if name == WORKERS[0] else "waits")
            self.wait_for("C", "enters")
            self.wait_for("A", "enters")
            self._entered = self.events[-1][0]
            time.sleep(INTO)
            yield
            for _ in range(after):
                self.wait_for("", "enters")
            time.sleep(INTO)
            self.note("end", "")
            self.wait_for("end", "")
        finally:
            for worker in self.workers.values():
                worker.kill()
                worker.wait()

    def text(self, made: str) -> str:
        """The events as text, and before them what each worker did last."""
        began = self._entered - BEFORE
        before = {name: event for event in self.events if (name := event[1]) and event[0] <= began}
        events = sorted([*before.values(), *(event for event in self.events if event[0] > began)])
        rows = dict.fromkeys([*WORKERS, *(name for _, name, _ in events if name != "end")])
        lines = [f"{at - began:.3f} {name} {event}".rstrip() for at, name, event in events]
        return "\n".join([f"made: {made}", f"rows: {', '.join(rows)}", *lines, ""])


def left(client: redis.Redis) -> str:
    """How long the lock remains in Redis without a renewal, in seconds."""
    return f"{client.pttl(KEY) / 1000:.3f}"


def killed() -> str:
    """A worker is killed while it is inside."""
    with LocalServer() as server, server.client() as client:
        recording = Recording({"REDIS_URL": server.url})
        with recording.running(4):
            recording.send("A", signal.SIGKILL)
            recording.note("A", f"killed {left(client)}")
        return recording.text(made_on(client))


def stopped() -> str:
    """A worker is stopped while it is inside, for longer than its lease, and continues."""
    with LocalServer() as server, server.client() as client:
        recording = Recording({"REDIS_URL": server.url})
        with recording.running(4):
            recording.send("A", signal.SIGSTOP)
            recording.note("A", f"stopped {left(client)}")
            time.sleep(STOPPED)
            recording.note("A", "continues")
            recording.send("A", signal.SIGCONT)
            recording.wait_for("A", "leaves")
        return recording.text(made_on(client))


def failover() -> str:
    """The master is killed while a worker is inside; the Sentinels promote the replica."""
    with LocalSentinel(down_after=1.0) as servers:
        sentinels = ",".join(str(port) for _, port in servers.sentinels)
        recording = Recording({"SENTINELS": sentinels}, LONG_TURN)
        made = made_on(servers.master.client())
        (replica,) = servers.replicas
        with recording.running(2), replica.client() as client:
            servers.master.kill()
            recording.note("Master", "killed")
            while client.role()[0] != b"master":
                time.sleep(0.01)
            recording.note("Replica", "promoted")
            recording.wait_for("Replica", "promoted")
        return recording.text(made)


def made_on(client: redis.Redis) -> str:
    """When and on what a timeline is recorded."""
    info = client.info("server")
    version = info.get("valkey_version") or info["redis_version"]
    name = f"{info.get('server_name', 'redis').capitalize()} {version}"
    return (
        f"{datetime.date.today():%Y-%m-%d}, {name}, redis-py {redis.__version__}, "
        f"Python {platform.python_version()}; expire={EXPIRE}"
    )


SCENES: dict[str, Callable[[], str]] = {
    "killed": killed,
    "stopped": stopped,
    "failover": failover,
}


def main() -> None:
    """Record scenes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenes", nargs="*", default=[], help="all if none is given")
    parser.add_argument("--folder", type=pathlib.Path, default=HERE)
    options = parser.parse_args()
    for scene in options.scenes or SCENES:
        (options.folder / f"{scene}.txt").write_text(SCENES[scene]())


if __name__ == "__main__":
    main()
