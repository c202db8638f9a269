"""Processes of lockers, started, harmed and ended by a test."""

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
    """Lockers in processes named "kind.place.life", which write into ``folder``."""

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
        """Start a process; its kind stands before the first dot of its name."""
        path = self.folder / f"{name}.plan"
        (plan or self.plan).save(path)
        program = [sys.executable, "-m", "support.lockers", name.split(".")[0], name]
        paths = [str(TESTS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        with open(self.folder / f"{name}.stderr", "wb") as said:
            self.processes[name] = subprocess.Popen(
                [*program, str(path), str(self.folder)],
                stderr=said,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )
        self.harms[name] = Harm()

    def kill(self, name: str) -> None:
        """Kill a process, which never comes back."""
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
        """Let those begin who were to begin later, all at one moment."""
        (self.folder / "more").touch()

    def stop(self) -> None:
        """Tell all to take every lock once more and to end."""
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
                process.send_signal(signal.SIGUSR1)  # it says where it stands
                time.sleep(0.5)
                process.kill()
                process.wait()
        return late

    def complaints(self) -> list[str]:
        """What processes said that only a bug makes them say."""
        found = []
        for path in sorted(self.folder.glob("*.stderr")):
            said = path.read_text()
            if "Traceback" in said or "Thread 0x" in said:
                found.append(f"{path.stem} said: {said[-2000:]}")
        return found


def keys_left(clients: list[Any], seconds: float) -> list[str]:
    """Keys that stand when every lease is over; numbers for fences are kept."""
    end = time.monotonic() + seconds
    while True:
        left = [key for client in clients for key in client.keys("*") if not is_note(client, key)]
        left = [key for key in left if not key.endswith(b"~:fence")]
        if not left or time.monotonic() > end:
            return [f"left behind: {key.decode(errors='replace')}" for key in left]
        time.sleep(0.05)
