"""Processes of lockers that a test starts, kills and ends."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

from support.history import Harm
from support.leftovers import is_note
from support.plans import LockerPlan

TESTS = pathlib.Path(__file__).resolve().parents[1]


class LockerProcesses:
    """Lockers in processes named "kind.number.life", which write into ``folder``."""

    def __init__(self, folder: pathlib.Path, plan: LockerPlan) -> None:
        self.folder, self.plan = folder, plan
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.harms: dict[str, Harm] = {}

    def __enter__(self) -> LockerProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def start(self, name: str, plan: LockerPlan | None = None) -> None:
        """Start a process; its kind is the part of its name before the first dot."""
        path = self.folder / f"{name}.plan"
        (plan or self.plan).save(path)
        program = [sys.executable, "-m", "support.lockers", name.split(".")[0], name]
        paths = [str(TESTS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        with open(self.folder / f"{name}.stderr", "wb") as stderr:
            self.processes[name] = subprocess.Popen(
                [*program, str(path), str(self.folder)],
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )
        self.harms[name] = Harm()

    def kill(self, name: str) -> None:
        """Kill a process that is not restarted."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()
        self.harms[name].killed = time.monotonic()

    def wait_until_busy(self, seconds: float = 30.0) -> None:
        """Wait until each process has entered a lock."""
        end = time.monotonic() + seconds
        for name, process in self.processes.items():
            path = self.folder / f"{name}.history"
            while not (path.exists() and b'"granted"' in path.read_bytes()):
                assert process.poll() is None, (self.folder / f"{name}.stderr").read_text()
                assert time.monotonic() < end, f"{name} entered no lock in {seconds} s"
                time.sleep(0.02)

    def begin_later(self) -> None:
        """Start the threads that begin later, all at the same time."""
        (self.folder / "more").touch()

    def stop(self) -> None:
        """Ask all processes to acquire every lock once more and to end."""
        (self.folder / "stop").touch()

    def end(self, seconds: float) -> list[str]:
        """The processes that did not end in time; they are killed."""
        end = time.monotonic() + seconds
        late = []
        for name, process in self.processes.items():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(name)
                process.send_signal(signal.SIGUSR1)  # the process dumps its stack traces
                time.sleep(0.5)
                process.kill()
                process.wait()
        return late

    def complaints(self) -> list[str]:
        """Tracebacks on the processes' stderr, which only a bug causes."""
        found = []
        for path in sorted(self.folder.glob("*.stderr")):
            text = path.read_text()
            if "Traceback" in text or "Thread 0x" in text:
                found.append(f"{path.stem} wrote: {text[-2000:]}")
        return found


def keys_left(clients: list[Any], seconds: float) -> list[str]:
    """Keys that remain after every lease has ended, other than the counters of fences."""
    end = time.monotonic() + seconds
    while True:
        left = [key for client in clients for key in client.keys("*") if not is_note(client, key)]
        left = [key for key in left if not key.endswith(b"~:fence")]
        if not left or time.monotonic() > end:
            return [f"left behind: {key.decode(errors='replace')}" for key in left]
        time.sleep(0.05)
