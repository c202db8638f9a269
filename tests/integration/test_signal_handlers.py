"""A signal handler that takes the lock which its own thread is taking or letting go."""

from __future__ import annotations

import contextlib
import threading

import pytest
from support.leftovers import PATIENCE

from redis_lock_decorators import LockError, RedisLock
from redis_lock_decorators._io.transport.private_pool import PrivatePool
from redis_lock_decorators._lua import script

pytestmark = pytest.mark.usefixtures("tidy_queue")

TAKES = ("acquire", "enqueue")
#: Before and after which scripts the handler runs, and whether the lock is its own thread's then.
MOMENTS = [
    ("before", TAKES, False),
    ("after", TAKES, True),
    ("before", ("release",), True),
    ("after", ("release",), False),
]


@pytest.fixture
def at(monkeypatch):
    """Run a handler once, on the thread that sends one of some scripts, as a signal does."""

    def set_up(moment, verbs, handler):
        shas, plain, left = [script(verb).sha for verb in verbs], PrivatePool.exchange, [handler]
        thread = threading.get_ident()

        def exchange(pool, connections, command, until):
            is_due = command[1] in shas and left and threading.get_ident() == thread
            if is_due and moment == "before":
                left.pop()()
            reply = plain(pool, connections, command, until)
            if is_due and moment == "after":
                left.pop()()
            return reply

        monkeypatch.setattr(PrivatePool, "exchange", exchange)
        return left

    return set_up


@pytest.mark.parametrize(("moment", "verbs", "is_own"), MOMENTS)
@pytest.mark.parametrize("way", ["queue", "cohort", "poll"])
def test_handler_is_told_at_once_that_its_own_thread_has_the_lock(
    at, server, name, way, moment, verbs, is_own
):
    client, found = server.client(), []
    lock = RedisLock(name, client=client, wait=way, acquire_time=PATIENCE, expire=2)

    def handler():
        try:
            with lock:
                found.append("got it")
        except LockError as error:
            found.append(str(error))

    with lock:
        pass
    left = at(moment, verbs, handler)

    with lock as lease:
        assert lease.owned()

    assert not left
    assert ("would wait for itself" in found[0]) == is_own, found
    assert not client.exists(f"sys:lock:{name}")


@pytest.mark.parametrize("way", ["queue", "cohort"])
def test_handler_amid_the_release_of_a_lock_that_was_handed_over_is_told(at, server, name, way):
    found = []
    lock = RedisLock(name, client=server.client(), wait=way, acquire_time=PATIENCE, expire=2)

    def handler():
        with contextlib.suppress(LockError), lock:
            found.append("got it")

    other = RedisLock(name, client=server.client()).acquire()
    threading.Timer(0.3, other.release).start()
    with lock as lease:
        assert lease._claim.has_queued
        left = at("before", ("release",), handler)

    assert not left
    assert found == []
