"""Locks in the workers of a real web server that used locks before it forked."""

from __future__ import annotations

import ast
import http.client
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.fronts import LEGACY
from support.installed import skip_without

import redis_lock_decorators

pytest.importorskip("gunicorn", reason="gunicorn is in the extra test, for systems that fork")
pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 leaves sockets to the collector")

TESTS = pathlib.Path(__file__).parents[1]
PATIENCE = 40.0
#: Kinds of workers with their options; each server has two workers.
KINDS = {
    "sync": ["--worker-class", "sync"],
    "gthread": ["--worker-class", "gthread", "--threads", "8"],
    "gevent": ["--worker-class", "gevent"],
}

#: Loaded by the server: records the workers that are ready for signals; earlier ones are lost.
READY = """
def post_worker_init(worker):
    open(f"ready-{worker.pid}", "w").close()
"""


class Connection(http.client.HTTPConnection):
    """A connection to a socket in the file system."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.host)


class Web:
    """A running server."""

    def __init__(self, folder: pathlib.Path, port: int, kind: str) -> None:
        self.folder = folder
        self.address = str(folder / "web")
        self.log = folder / "log"
        (folder / "settings.py").write_text(READY)
        paths = [str(redis_lock_decorators.__path__[0]) + "/..", str(TESTS)]
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "gunicorn", "--preload", "--workers", "2"),
                *("--graceful-timeout", "30", "--bind", f"unix:{self.address}"),
                *(
                    "--worker-tmp-dir",
                    str(folder),
                    "--config",
                    str(folder / "settings.py"),
                    "--log-file",
                    str(self.log),
                    *KINDS[kind],
                ),
                "support.web_program:app",
            ],
            env={
                **os.environ,
                "REDIS_PORT": str(port),
                "PYTHONPATH": os.pathsep.join(paths),
                "HOME": str(folder),  # for the server's own control socket
            },
            cwd=folder,
        )

    def ask(self, work: str, seconds: float = 0.0) -> Any:
        """Request a path of the program; returns its result."""
        connection = Connection(self.address)
        try:
            connection.request("GET", f"/{work}?seconds={seconds}")
            answer = connection.getresponse()
            body = answer.read().decode()
        finally:
            connection.close()
        assert answer.status == 200, self.log.read_text()
        return ast.literal_eval(body)

    def has_begun(self, workers: int) -> bool:
        """Whether this many workers are ready."""
        assert self.process.poll() is None, self.log.read_text()
        return len(list(self.folder.glob("ready-*"))) >= workers


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.05)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "gevent":
        skip_without("gevent")
    return str(request.param)


@pytest.fixture
def web(kind: str, frail: Any, tmp_path: pathlib.Path) -> Iterator[Web]:
    web = Web(tmp_path, frail.port, kind)
    try:
        until(lambda: web.has_begun(2))
        yield web
    finally:
        web.process.terminate()
        try:
            web.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            web.process.kill()
            web.process.wait()


def test_workers_exclude_each_other_and_master_keeps_its_lock(web, frail):
    looking = frail.client()
    with ThreadPoolExecutor(16) as crowd:
        held = crowd.submit(web.ask, "hold", 2.0)
        entered = [crowd.submit(web.ask, "enter", 0.02) for _ in range(24)]
        seen = [crowd.submit(web.ask, "inherited") for _ in range(4)]

        assert [one.result() for one in entered] == [1] * 24
        assert held.result() == (False, True)
        assert [one.result() for one in seen] == [(True, "LockNotOwnedError")] * 4
    assert looking.get("sys:lock:of the server") is not None
    assert not looking.exists("sys:lock:gate", "sys:lock:held")


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(signal.SIGHUP, id="reload"),
        pytest.param(signal.SIGTERM, id="stop", marks=pytest.mark.slow),
    ],
)
def test_worker_renews_and_releases_during_graceful_shutdown(web, frail, order):
    looking = frail.client()
    with ThreadPoolExecutor(1) as crowd:
        held = crowd.submit(web.ask, "hold", 3.0)
        until(lambda: looking.exists("holder"))
        web.process.send_signal(order)

        assert held.result() == (False, True)
        until(lambda: not looking.exists("sys:lock:held"))
    assert looking.get("finished") == b"1"
    if order == signal.SIGHUP:
        until(lambda: web.has_begun(4))
        assert web.ask("hold", 1.5) == (False, True)
        assert looking.get("sys:lock:of the server") is not None


@pytest.mark.parametrize("kind", ["sync"], indirect=True)
def test_worker_releases_its_lock_on_immediate_shutdown(web, frail):
    looking = frail.client()
    with ThreadPoolExecutor(1) as crowd:
        held = crowd.submit(web.ask, "long", 30.0)
        until(lambda: looking.exists("holder"))

        web.process.send_signal(signal.SIGQUIT)

        until(lambda: not looking.exists("sys:lock:long"))
        assert held.exception() is not None
