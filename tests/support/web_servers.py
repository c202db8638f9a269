"""Web servers with several worker processes, which serve the programs of ``examples/web``."""

from __future__ import annotations

import http.client
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import redis_lock_decorators
from support.waiting import until

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "web"
PACKAGES = pathlib.Path(redis_lock_decorators.__file__).parents[1]
PATIENCE = 30.0
#: Ends a server that a test has left, in seconds.
LIFETIME = 100

#: Run instead of the server's own module: ends its process group when the time is over.
LIMITED = f"""
import os, runpy, signal, sys, threading, time
def end():
    time.sleep({LIFETIME})
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=end, daemon=True).start()
sys.path.insert(0, {str(EXAMPLES)!r})
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


class Response(NamedTuple):
    """The response to a request."""

    status: int
    retry_after: str | None
    text: str


class _Connection(http.client.HTTPConnection):
    """A connection to a socket in the file system."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.host)


class WebServer:
    """A running server."""

    def __init__(self, address: str, log: pathlib.Path) -> None:
        self.address = address
        self.log = log

    def post(self, path: str) -> Response:
        """Send a request.

        Raises:
            OSError, http.client.HTTPException: the worker has ended before it responded.
        """
        connection = _Connection(self.address)
        try:
            connection.request("POST", path, headers={"Host": "localhost"})
            found = connection.getresponse()
            return Response(found.status, found.getheader("Retry-After"), found.read().decode())
        finally:
            connection.close()

    def is_ready(self) -> bool:
        """Whether a worker responds."""
        try:
            return self.post("/").status > 0
        except OSError:
            return False


@contextmanager
def served(
    folder: pathlib.Path, module: str, program: str, *options: str, **environment: str
) -> Iterator[WebServer]:
    """Serve a program with two processes of ``gunicorn`` or ``uvicorn`` while the block runs."""
    server = WebServer(str(folder / "web"), folder / "server.log")
    place = (
        ("--uds", server.address)
        if module == "uvicorn"
        else ("--bind", f"unix:{server.address}", "--worker-tmp-dir", str(folder))
    )
    paths = os.pathsep.join([str(PACKAGES), str(EXAMPLES)])
    with server.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", LIMITED, module, *place, "--workers", "2", *options, program],
            env={**os.environ, "PYTHONPATH": paths, "HOME": str(folder), **environment},
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until(lambda: process.poll() is not None or server.is_ready())
        assert process.poll() is None, server.log.read_text()
        yield server
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
