"""Jobs of RQ, Dramatiq and Taskiq under a lock that another run holds.

Programs with several processes are in ``examples``, which ``tests/examples`` runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from support.job_runs import MARKS, held_by, ran, used_by_default

from redis_lock_decorators import (
    ConfigurationError,
    Locks,
    LockTimeoutError,
    RedisLock,
    redis_lock,
)
from redis_lock_decorators.contrib._jobs import JobLock
from redis_lock_decorators.testing import LocalServer

pytestmark = MARKS
PATIENCE = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with LocalServer() as server:
        yield server


@pytest.fixture
def url(broker: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with used_by_default(broker, monkeypatch):
        yield str(broker.url)


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.02)


def raises() -> Any:
    raise RuntimeError("no request here")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (raises, {}),
        (lambda: None, {}),
        (lambda: {"text": "x" * 3000}, {}),
        (lambda: {"job": "another", "site": "berlin"}, {"site": "berlin"}),
        (None, {"site": "configured"}),
    ],
    ids=["raises", "none", "long", "job", "configured"],
)
def test_lock_of_a_job_has_its_identifier(url: str, given: Any, found: dict[str, Any]) -> None:
    """Whatever happens to further fields: a job delivered again would count as another one."""
    locks = Locks(owner_info=lambda: {"site": "configured"})
    options = {} if given is None else {"owner_info": given}
    job = SimpleNamespace(job_id="a", function=None)
    lock: Any = JobLock(lambda: job, "shop", "skip", 1.0, locks, options)

    info = lock(lambda: RedisLock("shop").owner_info())()

    assert {name: info[name] for name in ("job", "site") if name in info} == {"job": "a", **found}


class TestRQ:
    @pytest.fixture
    def queue(self, url: str) -> Any:
        rq = pytest.importorskip("rq")
        return rq.Queue(connection=redis.Redis.from_url(url))

    def work(self, queue: Any) -> None:
        import rq

        rq.SimpleWorker([queue], connection=queue.connection).work(burst=True)

    @pytest.mark.parametrize("kind", ["rq_retry", "rq_async"])
    def test_busy_job_is_scheduled_again_without_using_up_retries(
        self, queue: Any, kind: str
    ) -> None:
        job = queue.enqueue(f"{__name__}.{kind}", "a")
        with held_by("another"):
            self.work(queue)
            assert (job.get_status(), ran) == ("scheduled", [])
            queue.scheduled_job_registry.remove(job)
            queue.enqueue_job(job)
            self.work(queue)
            assert job.get_status(refresh=True) == "scheduled"
        queue.enqueue_job(job)
        self.work(queue)

        assert ran == ["a"]

    def test_busy_job_is_skipped_but_not_after_a_crash(self, queue: Any) -> None:
        skipped, crashed = queue.enqueue(rq_skip, "a"), queue.enqueue(rq_skip, "b", job_id="b")
        with held_by("b"):
            self.work(queue)

        assert (skipped.get_status(), crashed.get_status()) == ("finished", "scheduled")
        assert ran == []

    def test_job_whose_lock_expires_meanwhile_is_not_skipped(
        self, queue: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lease = RedisLock("shop", owner_info=lambda: {"job": "a"}).acquire()
        job = queue.enqueue(rq_skip, "a", job_id="a")
        read = RedisLock.owner_info
        monkeypatch.setattr(RedisLock, "owner_info", lambda lock: (lease.release(), read(lock))[1])
        self.work(queue)

        assert (job.get_status(), ran) == ("finished", ["a"])

    @pytest.mark.parametrize("kind", ["rq_plain", "rq_recursive"])
    def test_busy_call_within_a_job_raises(self, queue: Any, kind: str) -> None:
        job = queue.enqueue(f"{__name__}.{kind}", "a")
        with held_by("another"):
            self.work(queue)

        assert (job.get_status(), ran) == ("failed", [])
        assert "LockTimeoutError" in job.latest_result().exc_string

    def test_decorated_and_wrapped_job_is_scheduled_again(self, queue: Any) -> None:
        job = queue.enqueue(f"{__name__}.rq_wrapped", "a")
        with held_by("another"):
            self.work(queue)

        assert job.get_status() == "scheduled"

    def test_job_that_is_run_without_a_worker_raises(self, url: str) -> None:
        rq = pytest.importorskip("rq")
        queue = rq.Queue(connection=redis.Redis.from_url(url), is_async=False)
        with held_by("another"):
            job = queue.enqueue(rq_retry, "a")
            with pytest.raises(LockTimeoutError):
                rq_retry("a")

        assert job.get_status() == "failed"
        assert "LockTimeoutError" in job.latest_result().exc_string


class TestDramatiq:
    @pytest.fixture
    def stub(self, url: str) -> Iterator[Any]:
        dramatiq = pytest.importorskip("dramatiq")
        from dramatiq.brokers.stub import StubBroker
        from dramatiq.middleware import CurrentMessage

        broker = StubBroker()
        broker.add_middleware(CurrentMessage())
        broker.emit_after("process_boot")
        worker = dramatiq.Worker(broker, worker_timeout=50)
        worker.start()
        yield broker
        worker.stop()
        broker.close()

    def actor(self, stub: Any, on_busy: Any, **options: Any) -> Any:
        import dramatiq

        from redis_lock_decorators.contrib.dramatiq import single_instance

        @dramatiq.actor(broker=stub, **options)
        @single_instance("shop", on_busy=on_busy, retry_after=0.1)
        def sell(item):
            ran.append(item)

        return sell

    def test_busy_message_is_enqueued_again_without_using_up_retries(self, stub: Any) -> None:
        sell = self.actor(stub, "retry", max_retries=0)
        with held_by("another"):
            sell.send("a")
            time.sleep(0.5)
            assert ran == []

        until(lambda: ran == ["a"])
        assert stub.dead_letters == []

    def test_busy_message_of_an_actor_with_a_name_of_its_own_is_enqueued_again(
        self, stub: Any
    ) -> None:
        sell = self.actor(stub, "retry", max_retries=0, actor_name="sale")
        with held_by("another"):
            sell.send("a")
            time.sleep(0.3)

        until(lambda: ran == ["a"])

    def test_busy_call_within_another_actor_raises(self, stub: Any) -> None:
        import dramatiq

        sell = self.actor(stub, "retry")

        @dramatiq.actor(broker=stub, max_retries=0)
        def order(item):
            ran.append("order")
            sell(item)

        with held_by("another"):
            order.send("a")
            until(lambda: stub.dead_letters)

        assert ran == ["order"]

    def test_busy_message_is_skipped_but_not_after_a_crash(self, stub: Any) -> None:
        sell = self.actor(stub, "skip")
        crashed = sell.message("b")
        with held_by(crashed.message_id):
            sell.send("a")
            stub.enqueue(crashed)
            time.sleep(0.3)

        until(lambda: ran == ["b"])

    # The event loop of Dramatiq leaves connections to the garbage collector.
    @pytest.mark.filterwarnings("ignore::ResourceWarning")
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @pytest.mark.parametrize("is_global", [True, False])
    def test_busy_message_of_an_async_actor_is_enqueued_again(
        self, stub: Any, monkeypatch: pytest.MonkeyPatch, is_global: bool
    ) -> None:
        import dramatiq
        from dramatiq.middleware import AsyncIO

        from redis_lock_decorators.contrib.dramatiq import single_instance

        monkeypatch.setattr("dramatiq.broker.global_broker", stub if is_global else None)
        loop = AsyncIO()
        stub.add_middleware(loop)
        loop.before_worker_boot(stub, None)

        @dramatiq.actor(broker=stub, max_retries=0)
        @single_instance("shop", on_busy="retry", retry_after=0.1)
        async def sell(item):
            ran.append(item)

        with held_by("another"):
            sell.send("a")
            time.sleep(0.4)
            assert ran == []

        until(lambda: ran == ["a"])
        stub.join("default", timeout=10_000)  # the lock is released: a loop that ends would not
        loop.after_worker_shutdown(stub, None)

    def test_direct_call_raises(self, stub: Any) -> None:
        with held_by("another"), pytest.raises(LockTimeoutError):
            self.actor(stub, "retry")("a")

    def test_actor_is_refused(self, stub: Any) -> None:
        from redis_lock_decorators.contrib.dramatiq import single_instance

        with pytest.raises(ConfigurationError, match=r"below @dramatiq\.actor"):
            single_instance("shop")(self.actor(stub, "skip"))


class TestTaskiq:
    @pytest.fixture
    def memory(self, url: str) -> Any:
        taskiq = pytest.importorskip("taskiq")
        from redis_lock_decorators.contrib.taskiq import SingleInstanceMiddleware

        return taskiq.InMemoryBroker().with_middlewares(SingleInstanceMiddleware())

    def tasks(self, memory: Any, on_busy: Any) -> list[Any]:
        from redis_lock_decorators.contrib.taskiq import single_instance

        @memory.task("awaited")
        @single_instance("shop", on_busy=on_busy, retry_after=0.1)
        async def awaited(item):
            ran.append(item)
            return item

        @memory.task("threaded")
        @single_instance("shop", on_busy=on_busy, retry_after=0.1)
        def threaded(item):
            ran.append(item)
            return item

        return [awaited, threaded]

    @pytest.mark.parametrize("kind", [0, 1], ids=["async", "thread"])
    def test_busy_task_is_sent_again(self, memory: Any, kind: int) -> None:
        task = self.tasks(memory, "retry")[kind]

        async def main() -> Any:
            with held_by("another"):
                sent = await task.kiq("a")
                await asyncio.sleep(0.5)
                assert ran == []
            return (await sent.wait_result(timeout=PATIENCE)).return_value

        assert asyncio.run(main()) == "a"
        assert ran == ["a"]

    @pytest.mark.parametrize("kind", [0, 1], ids=["async", "thread"])
    def test_busy_task_is_skipped_but_not_after_a_crash(self, memory: Any, kind: int) -> None:
        task = self.tasks(memory, "skip")[kind]

        async def main() -> list[Any]:
            with held_by("b"):
                skipped = await task.kiq("a")
                crashed = await task.kicker().with_task_id("b").kiq("b")
                await asyncio.sleep(0.3)
            results = [await one.wait_result(timeout=PATIENCE) for one in (skipped, crashed)]
            return [result.return_value for result in results]

        assert asyncio.run(main()) == [None, "b"]

    def test_calls_within_another_task_are_skipped(self, memory: Any) -> None:
        from redis_lock_decorators.contrib.taskiq import single_instance

        @single_instance("shop", on_busy="skip", retry_after=0.1)
        async def sell(item):
            await asyncio.sleep(0.3)
            ran.append(item)

        @memory.task("order")
        async def order():
            ran.append("order")
            await asyncio.gather(sell("a"), sell("b"))

        async def main() -> bool:
            sent = await order.kiq()
            return (await sent.wait_result(timeout=PATIENCE)).is_err

        assert asyncio.run(main()) is False
        assert ran[0] == "order"
        assert sorted(ran[1:]) in (["a"], ["b"])

    def test_dependencies_are_injected(self, memory: Any) -> None:
        import taskiq

        from redis_lock_decorators.contrib.taskiq import single_instance

        depends: Any = taskiq.TaskiqDepends(taskiq.Context)

        @memory.task("injected")
        @single_instance("{item}")
        async def injected(item, context=depends):
            return f"{item} {context.message.task_name}"

        async def main() -> Any:
            sent = await injected.kiq("a")
            return (await sent.wait_result(timeout=PATIENCE)).return_value

        assert asyncio.run(main()) == "a injected"

    def test_direct_call_raises(self, memory: Any) -> None:
        async def main() -> None:
            with held_by("another"), pytest.raises(LockTimeoutError):
                await self.tasks(memory, "retry")[0]("a")

        asyncio.run(main())


with contextlib.suppress(ImportError):
    from redis_lock_decorators.contrib.rq import single_instance as rq_single_instance

    @rq_single_instance("shop", on_busy="retry")
    def rq_retry(item):
        ran.append(item)

    @rq_single_instance("shop", on_busy="retry")
    async def rq_async(item):
        ran.append(item)

    @rq_single_instance("shop", on_busy="skip")
    def rq_skip(item):
        ran.append(item)

    def rq_plain(item):
        return rq_retry(item)

    @rq_single_instance("{name}", on_busy="retry")
    def rq_recursive(name):
        return rq_recursive("shop")

    @redis_lock("another-lock")
    @rq_single_instance("shop", on_busy="retry")
    def rq_wrapped(item):
        ran.append(item)
