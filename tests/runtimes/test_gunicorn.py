"""Locks in the workers of a real web server that has used them before it forked."""

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

import redis_lock_decorators

pytest.importorskip("gunicorn", reason="gunicorn is in the extra test, for systems that fork")
pytestmark = pytest.mark.skipif(LEGACY, reason="redis-py 3.5 leaves sockets to the collector")

TESTS = pathlib.Path(__file__).parents[1]
PATIENCE = 40.0
#: Kinds of workers, with what they need; each server has two of them.
KINDS = {
    "sync": ["--worker-class", "sync"],
    "gthread": ["--worker-class", "gthread", "--threads", "8"],
    "gevent": ["--worker-class", "gevent"],
}


#: Run by the server: notes who heeds signals, which are lost on workers that are younger.
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

    def __init__(self, place: pathlib.Path, port: int, kind: str) -> None:
        self.queue_entry = place
        self.address = str(place / "web")
        self.log = place / "log"
        (place / "settings.py").write_text(READY)
        paths = [str(redis_lock_decorators.__path__[0]) + "/..", str(TESTS)]
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "gunicorn", "--preload", "--workers", "2"),
                *("--graceful-timeout", "30", "--bind", f"unix:{self.address}"),
                *(
                    "--worker-tmp-dir",
                    str(place),
                    "--config",
                    str(place / "settings.py"),
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
                "HOME": str(place),  # for a socket of its own
            },
            cwd=place,
        )

    def ask(self, work: str, seconds: float = 0.0) -> Any:
        """What a work returns that a worker does."""
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
        """Whether so many workers have come up."""
        assert self.process.poll() is None, self.log.read_text()
        return len(list(self.queue_entry.glob("ready-*"))) >= workers


def until(true: Callable[[], object]) -> None:
    """Wait for what must come about."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "gevent":
        pytest.importorskip("gevent", reason="gevent is in the extra test")
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
