"""Signal handlers that acquire the lock which their own thread is acquiring or releasing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import threading
import time

import pytest
import redis
from support.fronts import LEGACY
from support.leftovers import PATIENCE
from support.queues import queue_of
from support.signals import periodic_signals, signal_after
from support.waiting import until

from redis_lock_decorators import LockError, LockNotOwnedError, RedisLock
from redis_lock_decorators._flow.queue import claim_entry, entry_requests
from redis_lock_decorators._flow.queue.claim_entry import ClaimEntry
from redis_lock_decorators._flow.queue.waiter import Signal
from redis_lock_decorators._io.transport.private_pool import PrivatePool
from redis_lock_decorators._lua import script
from redis_lock_decorators.testing import LocalServer

if not LEGACY:
    import redis.asyncio as aioredis

    from redis_lock_decorators import asyncio as async_locks

pytestmark = pytest.mark.usefixtures("tidy_queue")

ACQUIRES = ("acquire", "enqueue")
#: Before or after which scripts the handler runs, and whether its thread has the lock then.
MOMENTS = [
    ("before", ACQUIRES, False),
    ("after", ACQUIRES, True),
    ("before", ("release",), True),
    ("after", ("release",), False),
]


@pytest.fixture
def at(monkeypatch):
    """Run a handler once on the thread that sends one of the scripts, as a signal does."""

    def set_up(moment, verbs, handler):
        shas, plain, left = [script(verb).sha for verb in verbs], PrivatePool.exchange, [handler]
        thread = threading.get_ident()

        def exchange(pool, connections, command, until, sending):
            is_due = command[1] in shas and left and threading.get_ident() == thread
            if is_due and moment == "before":
                left.pop()()
            reply = plain(pool, connections, command, until, sending)
            if is_due and moment == "after":
                left.pop()()
            return reply

        monkeypatch.setattr(PrivatePool, "exchange", exchange)
        return left

    return set_up


@pytest.mark.parametrize(("moment", "verbs", "is_own"), MOMENTS)
@pytest.mark.parametrize("wait", ["queue", "cohort", "poll"])
def test_handler_fails_immediately_if_its_own_thread_has_the_lock(
    at, server, name, wait, moment, verbs, is_own
):
    client, found = server.client(), []
    lock = RedisLock(name, client=client, wait=wait, acquire_time=PATIENCE, expire=2)

    def handler():
        try:
            with lock:
                found.append("acquired")
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


@pytest.mark.parametrize("wait", ["queue", "poll", "cohort"])
def test_handler_in_a_cohort_that_another_thread_leads_fails_immediately(at, server, name, wait):
    """It does not ask Redis itself as long as it only follows the leader."""
    client, errors = server.client(), []
    own = RedisLock(name, client=client, wait=wait, acquire_time=PATIENCE, expire=2)
    cohort = RedisLock(name, client=client, wait="cohort", acquire_time=PATIENCE, expire=3)

    def lead():
        with cohort:
            pass

    def handler():
        with pytest.raises(LockError) as caught, cohort:
            pass
        errors.append(str(caught.value))

    leader = threading.Thread(target=lead)
    with own:
        leader.start()
        until(lambda: client.exists(queue_of(name)))
        left = at("before", ("release",), handler)
    leader.join()

    assert not left
    assert "would wait for itself" in errors[0]


@pytest.mark.parametrize("wait", ["queue", "cohort"])
def test_handler_fails_during_the_release_of_a_handed_off_lock(at, server, name, wait):
    found = []
    lock = RedisLock(name, client=server.client(), wait=wait, acquire_time=PATIENCE, expire=2)

    def handler():
        with contextlib.suppress(LockError), lock:
            found.append("acquired")

    other = RedisLock(name, client=server.client()).acquire()
    threading.Timer(0.3, other.release).start()
    with lock as lease:
        assert lease._claim.has_queued
        left = at("before", ("release",), handler)

    assert not left
    assert found == []


@pytest.mark.parametrize("other_client", [False, True])
@pytest.mark.parametrize("wait", ["queue", "cohort"])
@pytest.mark.parametrize("own_wait", ["queue", "cohort", "poll"])
def test_handler_gets_the_lock_before_the_waiter_that_it_interrupts(
    server, name, wait, other_client, own_wait
):
    client, order, times = server.client(), [], []
    own = server.client() if other_client else client
    lock = RedisLock(name, client=client, wait=wait, acquire_time=PATIENCE)
    other = RedisLock(name, client=server.client()).acquire()

    def handler(*_):
        threading.Timer(0.3, other.release).start()
        with RedisLock(name, client=own, wait=own_wait, acquire_time=1.5):  # shorter than a grant
            order.append("handler")
        times.append(time.monotonic())

    with signal_after(0.3, handler), lock:
        order.append("waiter")
        times.append(time.monotonic())

    assert order == ["handler", "waiter"]
    assert times[1] - times[0] < 1.5  # it does not wait for its recheck


def test_handler_fails_if_the_waiter_that_it_interrupts_is_granted_the_lock(
    server, name, monkeypatch
):
    """Between the request by which the handler joins the queue and its next one."""
    lock = RedisLock(name, client=server.client(), acquire_time=PATIENCE)
    other = RedisLock(name, client=server.client()).acquire()
    remove, found = entry_requests.remove, []

    def release_first(*arguments):
        other.release()
        return remove(*arguments)

    def handler(*_):
        try:
            with lock:
                found.append("acquired")
        except LockError as error:
            found.append(str(error))

    with signal_after(0.3, handler), monkeypatch.context() as patch:
        patch.setattr(entry_requests, "remove", release_first)
        with lock:
            found.append("waiter")

    assert "would wait for itself" in found[0]
    assert found[1:] == ["waiter"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_handler_gets_the_lock_before_a_waiter_that_joins_the_queue_again(
    server, name, at, moment, monkeypatch
):
    lock = RedisLock(name, client=server.client(), acquire_time=PATIENCE)
    other = RedisLock(name, client=server.client()).acquire()
    order, waits, join = [], [], ClaimEntry.__init__

    def recorded(self, port, claim, *arguments):
        waits[:] = waits or [self]
        join(self, port, claim, *arguments)

    def handler():
        threading.Timer(0.3, other.release).start()
        with RedisLock(name, client=server.client(), acquire_time=1.5):  # shorter than a grant
            order.append("handler")

    def join_again(*_):
        at(moment, ("enqueue",), handler)
        waits.pop().waiter.wakeup.notify(Signal.RETRY)

    with signal_after(0.3, join_again), monkeypatch.context() as patch:
        patch.setattr(ClaimEntry, "__init__", recorded)
        with lock:
            order.append("waiter")

    assert order == ["handler", "waiter"]


def test_handler_fails_if_the_waiter_was_granted_the_lock_and_joins_the_queue_again(
    server, direct, name, monkeypatch
):
    """Between its new identifier and the request that replaces its former entry."""
    lock = RedisLock(name, client=server.client(), acquire_time=PATIENCE)
    other = RedisLock(name, client=server.client()).acquire()
    new, found = claim_entry.QueuedWaiter, []

    def handler():
        with pytest.raises(LockError, match="would wait for itself"), lock:
            pass
        found.append("handler")

    def interrupted(key, identifier, wakeup):
        waiter = new(key, identifier, wakeup)
        if found == ["first"]:
            found.append("second")
            other.release()
            former = (None, other.identifier.encode())
            until(lambda: direct.get(other.key) not in former)
            handler()
        elif not found:
            found.append("first")
            threading.Timer(0.3, wakeup.notify, [Signal.RETRY]).start()
        return waiter

    with monkeypatch.context() as patch:
        patch.setattr(claim_entry, "QueuedWaiter", interrupted)
        with lock:
            found.append("waiter")

    assert found == ["first", "second", "handler", "waiter"]


def test_handler_in_a_cohort_gets_the_lock_before_the_waiter_that_it_interrupts(server, name):
    client, order = server.client(), []
    other = RedisLock(name, client=server.client()).acquire()

    def lead():
        time.sleep(0.1)
        with RedisLock(name, client=client, wait="cohort", acquire_time=PATIENCE):
            order.append("leader")

    def handler(*_):
        threading.Timer(0.3, other.release).start()
        with RedisLock(name, client=client, wait="cohort", acquire_time=1.5):
            order.append("handler")

    leader = threading.Thread(target=lead)
    leader.start()
    with signal_after(0.3, handler), RedisLock(name, client=client, acquire_time=PATIENCE):
        order.append("waiter")
    leader.join()

    assert order == ["leader", "handler", "waiter"]


def test_task_of_a_handler_gets_the_lock_before_the_waiter_that_it_interrupts(server, name):
    if LEGACY:
        pytest.skip("redis-py 3.5 has no asyncio")
    lock = RedisLock(name, client=server.client(), acquire_time=PATIENCE)
    other = RedisLock(name, client=server.client()).acquire()
    order = []

    async def work():
        client = aioredis.Redis(port=server.port)
        async with async_locks.RedisLock(name, client=client, acquire_time=1.5):
            order.append("handler")
        await client.aclose()

    def handler(*_):
        threading.Timer(0.3, other.release).start()
        asyncio.run(work())

    with signal_after(0.3, handler), lock:
        order.append("waiter")

    assert order == ["handler", "waiter"]


@pytest.mark.parametrize(
    "options", [{"wait": "queue"}, {"wait": "poll"}, {"wait": "cohort", "expire": 20}]
)
def test_lock_is_not_handed_to_a_waiter_that_a_waiting_handler_interrupts(server, name, options):
    client, order, held, ended = server.client(), [], threading.Event(), threading.Event()
    lock = RedisLock(name, client=client, wait="cohort", acquire_time=PATIENCE, expire=30)

    def hold():
        with lock:
            held.set()
            ended.wait(PATIENCE)

    def handler(*_):
        threading.Timer(0.05, ended.set).start()
        with RedisLock(name, client=client, **{"acquire_time": 3, **options}):
            order.append("handler")

    other = threading.Thread(target=hold)
    other.start()
    held.wait(PATIENCE)
    with signal_after(0.05, handler), lock:  # it may be handed off for 0.25 s
        order.append("waiter")
    other.join()

    assert order == ["handler", "waiter"]


def test_signals_do_not_prolong_the_wait_for_a_silent_server(server, name):
    with LocalServer() as silent:
        client = silent.client(socket_timeout=1)
        with RedisLock(name, client=client):
            pass
        silent.pause()
        with periodic_signals(), pytest.raises(redis.TimeoutError):
            RedisLock(name, client=client, acquire_time=2).acquire()
        silent.resume()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("verb", ["acquire", "release", "extend"])
def test_copy_of_an_exchange_in_a_forked_child_reads_no_reply(proxy, name, verb):
    lock = RedisLock(name, client=proxy.client(), auto_renew=False)
    lock.acquire().release()
    lease = None if verb == "acquire" else lock.acquire()
    reading, writing = os.pipe()
    main, children, ended = threading.get_ident(), [], []

    def fork(*_):
        children.append(os.fork())

    def reply_after_the_child(command, reply):
        if command[1:2] == [script(verb).sha] and not ended:
            signal.pthread_kill(main, signal.SIGALRM)
            ended.extend(select.select([reading], [], [], 2)[0])
        return reply

    plain = signal.signal(signal.SIGALRM, fork)
    proxy.rewrite = reply_after_the_child
    try:
        found = lock.acquire() if lease is None else getattr(lease, verb)()
    except BaseException as error:
        found = error
    finally:
        if children == [0]:
            os.write(writing, repr(found).encode())
            os._exit(0)
        signal.signal(signal.SIGALRM, plain)
    os.waitpid(children[0], 0)
    with os.fdopen(reading, "rb") as result:
        os.close(writing)
        assert result.read().decode().startswith(LockNotOwnedError.__name__)
    assert ended
    assert not isinstance(found, BaseException)
    assert lock.locked() is (verb != "release")
    proxy.rewrite = None
    if verb != "release":
        (lease or found).release()
