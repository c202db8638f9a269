"""Locks that need a native thread are refused where only sockets are used by greenlets."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from support.lease_loops import LeaseLoop
from support.redispy_scenes import KEY, Scene, Threads
from support.simulation import Clock, SimulatedPort, SimulatedServer

from redis_lock_decorators import ConfigurationError
from redis_lock_decorators._io.background import hubs, thread_checks
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._shared.lease_base import claim_for
from redis_lock_decorators.lease import Lease

PATCHED = [("gevent._socket3", "gevent"), ("eventlet.greenio.base", "eventlet")]


@pytest.fixture(params=PATCHED, ids=["gevent", "eventlet"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Replace the sockets, as the library does with ``thread=False``."""
    module, library = request.param
    monkeypatch.setattr(socket, "socket", type("socket", (), {"__module__": module}))
    return str(library)


def lease_of(*lock_names: str, **options: Any) -> Lease:
    given = Options(**options)
    port: Any = SimulatedPort(SimulatedServer(Clock()))
    port.lease_loop = LeaseLoop()
    return Lease(claim_for(lock_names, given, None), port, given)


@pytest.mark.parametrize("wait", [0, 1])
@pytest.mark.parametrize("options", [{}, {"wait": "poll"}, {"wait": "cohort"}], ids=repr)
@pytest.mark.parametrize("renewed", [{}, {"auto_renew": False, "on_lost": print}])
def test_renewed_locks_are_refused(library: str, wait: float, options: Any, renewed: Any) -> None:
    lease = lease_of("a", **options, **renewed)
    port: Any = lease._port

    with pytest.raises(ConfigurationError, match=f"lock 'a' .* {library} has replaced") as refused:
        lease._acquire(wait)

    assert refused.value.lock_name == "a"
    assert port.log == []
    assert port.lease_loop.current_worker() is None


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("strategy", ["queue", "cohort"])
def test_locks_that_wait_for_messages_are_refused(strategy: Any) -> None:
    lease = lease_of("a", auto_renew=False, wait=strategy)
    port: Any = lease._port

    with pytest.raises(ConfigurationError):
        lease._acquire(1)

    assert port.log == []


@pytest.mark.usefixtures("library")
def test_locks_that_need_no_thread_are_acquired() -> None:
    for lease, wait in (
        (lease_of("a", auto_renew=False, wait="poll"), 1),
        (lease_of("a", auto_renew=False), 0),
        (lease_of("a", "b", auto_renew=False), 1),  # several are polled
    ):
        assert lease._acquire(wait) is None


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("options", [{"auto_renew": True, "blocking": False}, {}], ids=repr)
def test_redispy_locks_that_need_a_thread_are_refused(
    options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(Threads, monkeypatch)
    port: Any = scene.lock._port()
    port.lease_loop = LeaseLoop()

    with pytest.raises(ConfigurationError) as refused:
        scene.make(**options).acquire()

    assert refused.value.lock_name == KEY.decode()
    assert port.log == []
    assert scene.make(blocking=False).acquire()


def test_sockets_replaced_after_a_worker_has_ended_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lease_loop = LeaseLoop()
    lease_loop.call(lambda: None)
    lease_loop.end()
    monkeypatch.setattr(socket, "socket", type("socket", (), {"__module__": "gevent._socket3"}))

    with pytest.raises(ConfigurationError, match=r"gevent\.monkey\.patch_all"):
        lease_loop.check()


@pytest.mark.usefixtures("library")
def test_only_programs_with_green_threads_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "are_threads_green", lambda: True)
    thread_checks.refuse_threadless()

    monkeypatch.setattr(hubs, "are_threads_green", lambda: False)
    with pytest.raises(ConfigurationError):
        thread_checks.refuse_threadless()
