"""Rows of the failure table in docs/concepts/promises.rst that no other test tries."""

from __future__ import annotations

import glob
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from redis_lock_decorators import LockLostError, RedisLock
from redis_lock_decorators.inspection import lock_status
from redis_lock_decorators.testing import LocalServer, find_server

EXPIRE = 2.0
PATIENCE = 30.0


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Loss:
    """What was reported to a holder, and the fence of the next holder relative to its own."""

    def __init__(self) -> None:
        self.noticed = threading.Event()
        self.entered = threading.Event()
        self.fences: list[int] = []


@contextmanager
def holder_and_waiter(server: LocalServer) -> Iterator[Loss]:
    """Hold a lock during the block, while a thread waits for it."""
    loss = Loss()
    options = {"expire": EXPIRE, "acquire_time": PATIENCE, "fencing": True}

    def wait() -> None:
        with server.client() as client, RedisLock("report", client=client, **options) as lease:
            loss.fences.append(lease.fence)
            loss.entered.set()

    thread = threading.Thread(target=wait, daemon=True)
    with (
        server.client() as client,
        RedisLock(
            "report", client=client, on_lost=lambda *_: loss.noticed.set(), **options
        ) as lease,
    ):
        loss.fences.append(lease.fence)
        thread.start()
        until(lambda: lock_status(client, "report").waiting > 0)
        yield loss
    thread.join(PATIENCE)


def assert_lost(server: LocalServer, fault: Callable[[], object]) -> None:
    with pytest.raises(LockLostError), holder_and_waiter(server) as loss:
        fault()
        assert loss.noticed.wait(PATIENCE)
        assert loss.entered.wait(PATIENCE)
    first, second = loss.fences
    assert second > first


def assert_held(server: LocalServer, fault: Callable[[], object]) -> None:
    with holder_and_waiter(server) as loss:
        fault()
        time.sleep(EXPIRE)
        assert not loss.noticed.is_set()
        assert not loss.entered.is_set()
    first, second = loss.fences
    assert second > first


def test_flushed_data():
    with LocalServer() as server, server.client() as client:
        assert_lost(server, client.flushall)


def test_eviction():
    def evict() -> None:
        client.config_set("maxmemory-policy", "allkeys-random")
        client.config_set("maxmemory", "1")
        with pytest.raises(Exception, match="maxmemory"):
            client.set("other", "data")
        client.config_set("maxmemory", "0")

    with LocalServer() as server, server.client() as client:
        assert_lost(server, evict)


def test_restart_with_persistence():
    with LocalServer("--appendonly", "yes", "--appendfsync", "always") as server:
        assert_held(server, server.restart)


@pytest.fixture
def faked_clock(tmp_path: pathlib.Path):
    """A server whose clock is off by the seconds written to the file that is yielded, too."""
    libraries = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    if not libraries:
        pytest.skip("libfaketime is not installed (apt-get install faketime)")
    offset, program = tmp_path / "offset", tmp_path / "server"
    offset.write_text("+0")
    program.write_text(
        f"#!/bin/sh\nexport LD_PRELOAD={libraries[0]} FAKETIME_TIMESTAMP_FILE={offset}"
        f' FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1\nexec {find_server()} "$@"\n'
    )
    program.chmod(0o755)
    with LocalServer(binary=program) as server:
        yield server, offset


def test_clock_jumps_forward(faked_clock):
    server, offset = faked_clock
    assert_lost(server, lambda: offset.write_text("+10"))


def test_clock_jumps_back(faked_clock):
    server, offset = faked_clock
    assert_held(server, lambda: offset.write_text("-10"))


def test_lock_of_a_crashed_holder_stays_longer_if_the_clock_jumps_back(faked_clock):
    server, offset = faked_clock
    with server.client() as client:
        client.set("sys:lock:report", "crashed", px=5000)
        offset.write_text("-10")
        until(lambda: client.pttl("sys:lock:report") > 10_000)
