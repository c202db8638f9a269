"""A loss is reported although an exception from outside interrupts the exit, at any line."""

from __future__ import annotations

import asyncio
import contextlib
import linecache
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis.asyncio as aioredis
from support.interruptions import RAISED, Interruption, interrupt_every_line, raise_by_turns

from redis_lock_decorators import LockNotOwnedError, RedisLock, redis_lock
from redis_lock_decorators import asyncio as async_locks
from redis_lock_decorators.lock import Lock

# A coroutine that is interrupted before its first step is never awaited.
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
with_and_without_on_lost = pytest.mark.parametrize("calls", [True, False], ids=["on_lost", "log"])


class Scene:
    """A lock that another client acquires in its block, and what is reported of the loss."""

    def __init__(self, client, name, log, calls):
        self.client, self.name, self.log = client, name, log
        self.calls = []
        self.is_gone = False  # a release that was run before leaves no key either
        self.options = {"on_lost": lambda lease, why: self.calls.append(why)} if calls else {}
        self.options |= {"expire": 20, "prefix": ""}
        self._tracing = contextlib.ExitStack()

    def lose(self, interruption):
        """Let another client hold the lock, or nobody; interrupt the lines that follow."""
        if self.is_gone:
            self.client.delete(self.name)
        else:
            self.client.set(self.name, "another", px=20_000)
        self._tracing.enter_context(interruption)

    def run(self, work):
        """Interrupt ``work`` at each of its lines after ``lose``; the number of lines.

        If a trace function raises at a ``with`` statement while an exception is passed to
        ``__exit__``, Python 3.11 to 3.13 leave that exception in ``sys.exc_info()``. It would be
        the context of errors of later runs, so each run has a thread of its own.
        """

        def check(interruption):
            with ThreadPoolExecutor(1) as thread:
                thread.submit(self._check, work, interruption).result()

        return interrupt_every_line(check)

    def _check(self, work, interruption):
        self.client.delete(self.name)
        self.log.clear()
        self.calls.clear()
        try:
            with self._tracing:
                work(interruption)
        except interruption.kind as error:
            self._check_reported(error, interruption.location)
            raise
        except LockNotOwnedError:
            assert not interruption.happened or self.calls or self.log.records
        assert len(self.calls) <= 1, interruption.location

    def _check_reported(self, error, location):
        if "on_lost" in self.options or not _is_at_with(location):
            assert self._is_reported(error), location

    def _is_reported(self, error):
        if "on_lost" not in self.options and _is_chained(error):
            return True
        by = time.monotonic() + 10
        while time.monotonic() < by:  # by the background, if the exit never reached its first line
            if self.calls or ("on_lost" not in self.options and self._is_logged()):
                return True
            if self._is_unknown():  # the reply had been read, and was dropped
                return True
            time.sleep(0.01)
        return False

    def _is_logged(self):
        return self._is_text_logged("ended before")

    def _is_unknown(self):
        return self.is_gone and self._is_text_logged("is not known")

    def _is_text_logged(self, text):
        return any(text in record.getMessage() for record in self.log.records)


def _is_chained(error):
    while error is not None:
        if isinstance(error, LockNotOwnedError) and type(error) is not Interruption.kind:
            return True
        error = error.__context__
    return False


def _is_at_with(location):
    """Whether a location is a ``with`` statement; those do not chain trace functions' exceptions.

    No signal handler runs while an exception is passed to ``__exit__``.
    """
    file, line = location.rsplit(":", 1)
    return linecache.getline(file, int(line)).lstrip().startswith("with ")


@pytest.fixture(params=RAISED, autouse=True)
def kind(request, monkeypatch):
    """The class of the exception that is raised."""
    raise_by_turns(monkeypatch, request.param)


@pytest.fixture
def make(server, name, caplog):
    return lambda calls: Scene(server.client(), name, caplog, calls)


@with_and_without_on_lost
@pytest.mark.parametrize("wait", ["queue", "cohort"])
def test_interrupted_block_reports_its_loss(make, wait, calls):
    scene = make(calls)
    lock = RedisLock(scene.name, client=scene.client, wait=wait, **scene.options)

    def work(interruption):
        with lock:
            scene.lose(interruption)

    assert scene.run(work) > 50


@with_and_without_on_lost
@pytest.mark.parametrize("method", ["script", "transaction", "native"])
def test_interrupted_block_reports_that_its_key_is_gone(make, calls, method):
    """The reply to the first request is read, as the next one finds no key in any case."""
    scene = make(calls)
    scene.is_gone = True
    lock = RedisLock(scene.name, client=scene.client, release_method=method, **scene.options)

    def work(interruption):
        with lock:
            scene.lose(interruption)

    assert scene.run(work) > 50


@with_and_without_on_lost
def test_interrupted_call_reports_its_loss(make, calls):
    scene = make(calls)

    @redis_lock(scene.name, client=scene.client, **scene.options)
    def work(interruption):
        scene.lose(interruption)

    assert scene.run(work) > 50


@with_and_without_on_lost
def test_interrupted_generator_reports_its_loss(make, calls):
    scene = make(calls)

    @redis_lock(scene.name, client=scene.client, **scene.options)
    def steps(interruption):
        yield 1
        scene.lose(interruption)

    assert scene.run(lambda interruption: list(steps(interruption))) > 50


@with_and_without_on_lost
def test_interrupted_release_by_hand_reports_its_loss(make, calls):
    scene = make(calls)
    lock = RedisLock(scene.name, client=scene.client, **scene.options)

    def work(interruption):
        lease = lock.acquire()
        scene.lose(interruption)
        lease.release()

    assert scene.run(work) > 20


@pytest.mark.parametrize("renews", [False, True])
def test_interrupted_block_of_the_redispy_lock_reports_its_loss(make, renews):
    scene = make(False)
    lock = Lock(scene.client, scene.name, timeout=20, auto_renew=renews)

    def work(interruption):
        with lock:
            scene.lose(interruption)

    assert scene.run(work) > 50


def _cancel_after(steps, task):
    """Cancel a task after so many steps of its event loop."""
    if steps == 0:
        task.cancel()
    else:
        asyncio.get_running_loop().call_soon(_cancel_after, steps - 1, task)


@with_and_without_on_lost
@pytest.mark.parametrize("now_in_key", ["another", None])
def test_cancelled_block_of_a_task_reports_its_loss(server, make, calls, now_in_key):
    scene = make(calls)

    async def block(client, steps, left):
        options = {"client": client, "cancel_on_lost": False, **scene.options}
        async with async_locks.RedisLock(scene.name, **options) as lease:
            left.append(lease)
            scene.client.delete(scene.name)
            if now_in_key is not None:
                scene.client.set(scene.name, now_in_key, px=20_000)
            _cancel_after(steps, asyncio.current_task())

    async def check(steps):
        scene.client.delete(scene.name)
        scene.calls.clear()
        scene.log.clear()
        left = []
        async with aioredis.Redis(host=server.host, port=server.port) as client:
            work = asyncio.create_task(block(client, steps, left))
            (outcome,) = await asyncio.gather(work, return_exceptions=True)
        assert left[0].lost
        assert len(scene.calls) == int(calls)
        assert calls or _is_chained(outcome) or scene._is_logged()

    for steps in range(16):
        asyncio.run(check(steps))


@with_and_without_on_lost
def test_cancelled_blocks_of_tasks_that_share_an_exchange_report_their_losses(server, make, calls):
    """All tasks are cancelled, also the one that sends their requests."""
    scene = make(calls)
    left = []

    async def block(client, number, go):
        options = {"client": client, "cancel_on_lost": False, **scene.options}
        async with async_locks.RedisLock(f"{scene.name}:{number}", **options) as lease:
            left.append(lease)
            await go.wait()

    def cancel_others_after(steps, task):
        if steps:
            asyncio.get_running_loop().call_soon(cancel_others_after, steps - 1, task)
            return
        for other in asyncio.all_tasks() - {task}:
            other.cancel()

    async def check(steps):
        left.clear()
        go = asyncio.Event()
        async with aioredis.Redis(host=server.host, port=server.port) as client:
            works = [asyncio.create_task(block(client, number, go)) for number in range(5)]
            while len(left) < 5:
                await asyncio.sleep(0)
            scene.client.delete(*[lease.lock_name for lease in left])
            go.set()
            await asyncio.sleep(0)
            cancel_others_after(steps, asyncio.current_task())
            await asyncio.gather(*works, return_exceptions=True)
        assert all(lease.lost for lease in left), steps

    for steps in range(8):
        asyncio.run(check(steps))
