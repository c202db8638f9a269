"""Celery tasks under ``single_instance``, in real worker processes."""

from __future__ import annotations

import itertools
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.fronts import LEGACY
from support.installed import skip_without

pytest.importorskip("celery", reason="celery is in the extra frameworks")
pytestmark = [
    pytest.mark.skipif(LEGACY, reason="Celery needs a newer redis-py"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # connections of Celery's result backend
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
sys.path.append(str(pathlib.Path(__file__).parents[2] / "examples"))

import celery  # noqa: E402
from _workers import running  # noqa: E402

from redis_lock_decorators import ConfigurationError, Locks, LockTimeoutError, RedisLock  # noqa: E402
from redis_lock_decorators.contrib.celery import single_instance  # noqa: E402
from redis_lock_decorators.testing import LocalServer  # noqa: E402

TESTS = str(pathlib.Path(__file__).parents[1])
PATIENCE = 40
BASE = "celery --app support.celery_program --quiet worker --without-gossip --without-mingle"


def worker(name: str, *options: str) -> list[str]:
    return [*BASE.split(), f"--hostname={name}@%h", "--loglevel=CRITICAL", *options]


class Program:
    """The program's tasks as a client sees them."""

    def __init__(self, server: Any, app: Any) -> None:
        self.url = server.url
        self.app = app
        self.store = server.client(decode_responses=True)

    def send(self, task: str, *args: Any, **kwargs: Any) -> Any:
        name = task if task in ("digest", "report") else f"support.celery_program.{task}"
        return self.app.send_task(name, args, kwargs)

    def results(self, task: str, *args: Any, times: int = 1) -> list[Any]:
        sent = [self.send(task, *args) for _ in range(times)]
        return [one.get(timeout=PATIENCE) for one in sent]

    def lock(self, name: str, **options: Any) -> RedisLock:
        return RedisLock(name, client=self.store, **options)

    def locked(self, name: str) -> bool:
        return bool(self.store.exists(f"sys:lock:{name}"))

    def count(self, name: str) -> int:
        return int(self.store.get(f"count:{name}") or 0)


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with LocalServer() as server:
        yield server


@pytest.fixture(scope="module")
def program(broker: Any) -> Iterator[Program]:
    app = celery.Celery(broker=broker.url, backend=broker.url, set_as_current=False)
    yield Program(broker, app)
    app.close()


@pytest.fixture(scope="module")
def prefork(broker: Any) -> Iterator[Any]:
    """Two workers with four processes each, whose parents used a lock before they forked."""
    workers = [worker(name, "--pool=prefork", "--concurrency=4") for name in ("one", "two")]
    environment = {"REDIS_URL": broker.url, "PYTHONPATH": TESTS, "USE_LOCK_AT_IMPORT": "1"}
    with running(*workers, **environment) as processes:
        yield processes


@pytest.fixture
def workers(prefork: Any, program: Program) -> Program:
    return program


def test_counter_is_wrong_without_the_lock_and_exact_with_it(workers, name):
    workers.results("bare", f"{name}:bare", 0.02, times=40)
    workers.results("counted", name, 0.02, times=40)

    assert workers.count(f"{name}:bare") < 40
    assert workers.count(name) == 40


def test_counter_is_exact_with_a_killed_process(workers, name):
    sent = [
        workers.send("counted", name, 0.02, dies="itself" if n == 3 else False) for n in range(12)
    ]
    for one in sent:
        one.get(timeout=PATIENCE)

    assert workers.store.get(f"killed:{name}")
    assert workers.count(name) == 12


def test_second_task_is_skipped_while_the_first_renews_its_lock(workers, name):
    first = workers.send("skipped", name, 2.5)
    until(lambda: workers.locked(name))
    others = workers.results("skipped", name, 0, times=8)

    assert others == [None] * 8
    assert first.get(timeout=PATIENCE) == name


def test_killed_task_is_delivered_again_and_not_skipped(workers, name):
    assert workers.results("dies_once", name) == [name]


@pytest.mark.parametrize("task", ["dies_once", "answers", "raises"])
def test_task_is_sent_again_while_its_own_earlier_run_holds_the_lock(workers, name, task):
    workers.store.set(f"first:{name}", 1)
    with workers.lock(name, owner_info=lambda: {"job": name}):
        sent = workers.app.send_task(f"support.celery_program.{task}", (name,), task_id=name)
        until(lambda: sent.state != "PENDING")
        assert sent.state == "RETRY"

    assert sent.get(timeout=PATIENCE) == name


def test_busy_task_fails_with_the_packages_error(workers, name):
    first = workers.send("refused", name, 1.5)
    until(lambda: workers.locked(name))

    with pytest.raises(LockTimeoutError, match="was not free when tried once"):
        workers.send("refused", seconds=0, name=name).get(timeout=PATIENCE)
    first.get(timeout=PATIENCE)
    assert not workers.locked(name)


def test_autoretry_handles_busy_tasks(workers, name):
    workers.results("retried_automatically", name, 0.02, times=10)

    assert workers.count(name) == 10


def test_retry_that_arrives_before_its_lock_is_released_is_not_skipped(workers, name):
    assert workers.results("retries_itself", name, 2) == [2]
    assert not workers.locked(f"{name}:support.celery_program.retries_itself")


def test_busy_runs_do_not_use_up_the_tasks_retries(workers, name):
    with workers.lock(name):
        sent = workers.send("keeps_its_retries", name)
        until(lambda: sent.state == "RETRY")
        time.sleep(0.5)

    assert sent.get(timeout=PATIENCE) == 0


def test_task_that_runs_itself_under_its_own_lock_is_refused_not_repeated(workers, name):
    assert workers.results("calls_itself", name, 1) == ["refused"]


def test_busy_function_within_another_task_raises(workers, name):
    with workers.lock(name):
        assert workers.results("calls_what_is_no_task", name) == ["refused"]
    assert workers.count(name) == 1


def test_soft_time_limit_releases_the_lock(workers, name):
    with pytest.raises(celery.exceptions.SoftTimeLimitExceeded):
        workers.results("limited_softly", name)

    assert workers.store.get(f"held:{name}") == "1"
    assert not workers.locked(name)


def test_lock_of_a_task_that_was_killed_at_its_time_limit_expires(workers, name):
    sent = workers.send("limited", name)
    until(lambda: workers.locked(name))

    with pytest.raises(celery.exceptions.TimeLimitExceeded):
        sent.get(timeout=30)
    until(lambda: not workers.locked(name))


def test_lock_of_a_terminated_task_expires(workers, name):
    sent = workers.send("counted", name, 30)
    until(lambda: workers.locked(name))
    sent.revoke(terminate=True, signal="SIGKILL")

    until(lambda: not workers.locked(name))


def test_function_answers_for_a_busy_task(workers, name):
    with workers.lock(name):
        assert workers.results("answers", name) == [f"{name} is busy"]


def test_class_based_task_is_locked_by_its_arguments(workers):
    assert workers.results("report", "ada") == ["report:ada"]
    with workers.lock("report:ada"):
        assert workers.results("report", "ada") == [None]


def test_chain_acquires_the_lock_for_each_link(workers, name):
    link = workers.app.signature("support.celery_program.link", args=(name,))
    chain = celery.chain(link.clone(args=(0,)), link, link, app=workers.app)
    with workers.lock(name):
        sent = chain.apply_async()
        time.sleep(0.3)

    assert sent.get(timeout=PATIENCE) == 3
    assert not workers.locked(name)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["threads", "gevent"])
def test_counter_is_exact_in_other_pools(program, broker, name, pool):
    if pool == "gevent":
        skip_without("gevent")
    two = [
        worker(f"{pool}-{n}", f"--pool={pool}", "--concurrency=8", f"--queues={pool}") for n in "12"
    ]
    with running(*two, REDIS_URL=broker.url, PYTHONPATH=TESTS):
        tasks = ["bare"] * 30 + ["counted"] * 30
        sent = [
            program.app.send_task(
                f"support.celery_program.{task}", (f"{name}:{task}", 0.02), queue=pool
            )
            for task in tasks
        ]
        for one in sent:
            one.get(timeout=PATIENCE)

    assert program.count(f"{name}:bare") < 30
    assert program.count(f"{name}:counted") == 30


def test_warm_shutdown_completes_the_task_and_releases_the_lock(program, broker, name):
    lone = worker("lone", "--pool=prefork", "--concurrency=1", "--queues=lone")
    task = "support.celery_program.skipped"
    with running(lone, REDIS_URL=broker.url, PYTHONPATH=TESTS) as [process]:
        sent = program.app.send_task(task, (name, 2.5), queue="lone")
        until(lambda: program.locked(name))
        process.terminate()

        assert sent.get(timeout=PATIENCE) == name
        process.wait(PATIENCE)
    assert not program.locked(name)


@pytest.mark.slow
def test_task_of_a_killed_worker_enters_when_the_lease_ends(program, broker, name):
    environment = {"REDIS_URL": broker.url, "PYTHONPATH": TESTS, "VISIBILITY": "2"}
    task = "support.celery_program.counted"
    first = worker("first", "--pool=solo", "--queues=killed")
    with running(first, **environment) as [process]:
        sent = program.app.send_task(task, (name, 0), {"dies": "later"}, queue="killed")
        until(lambda: program.store.get(f"killed:{name}"))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    second = worker("second", "--pool=solo", "--queues=killed")
    with running(second, **environment):
        sent.get(timeout=PATIENCE)

    assert program.count(name) == 1
    assert program.store.llen(f"started:{name}") == 2


@pytest.mark.slow
def test_two_beats_start_a_task_once_per_period(prefork, program, broker, tmp_path):
    beat = ["celery", "--app", "support.celery_program", "--quiet", "beat", "--schedule"]
    beats = [[*beat, str(tmp_path / name)] for name in ("one", "two")]
    with running(*beats, REDIS_URL=broker.url, PYTHONPATH=TESTS):
        until(lambda: program.store.llen("digests") >= 4)

    times = [float(one) for one in program.store.lrange("digests", 0, -1)]
    assert all(later - earlier > 1.4 for earlier, later in itertools.pairwise(times))


@pytest.fixture
def app(broker: Any) -> Iterator[Any]:
    app = celery.Celery("here", broker=broker.url, set_as_current=False)
    yield app
    app.close()


@pytest.fixture
def locks(broker: Any) -> Locks:
    return Locks(client=broker.client())


def test_task_keeps_its_name_and_the_check_of_its_arguments(app, locks):
    @app.task
    @single_instance("order:{order}", locks=locks)
    def ship(order, express=False):
        """Ship an order."""

    assert (ship.name, ship.__doc__) == (f"{__name__}.ship", "Ship an order.")
    assert ship.run.lock_for(7).owner() is None
    with pytest.raises(TypeError, match="order"):
        ship.delay()


@pytest.mark.parametrize("on_busy", ["raise", "retry"])
def test_direct_and_eager_calls_that_are_busy_raise(app, locks, name, on_busy):
    app.conf.task_always_eager = True

    @app.task
    @single_instance("{name}", locks=locks, on_busy=on_busy)
    def ship(name):
        return current()

    with locks.lock(name):
        with pytest.raises(LockTimeoutError):
            ship(name)
        assert isinstance(ship.delay(name).result, LockTimeoutError)
    assert ship(name) == ship.delay(name).get() == name


def test_one_run_of_the_task_is_the_default(app, locks):
    @app.task(bind=True)
    @single_instance(locks=locks)
    def ship(self, order):
        return current()

    assert ship(7).endswith("<locals>.ship")


def current() -> str:
    from redis_lock_decorators import current_lease

    lease = current_lease()
    assert lease is not None
    return lease.lock_name


def test_task_is_refused_as_it_would_run_without_the_lock(app):
    with pytest.raises(ConfigurationError, match=r"below @app\.task"):

        @single_instance("order:{order}")
        @app.task
        def ship(order):
            pass


@pytest.mark.parametrize(
    "options", [{"on_busy": "wait"}, {"retry_after": 0}, {"retry_after": -1}, {"expires": 3}]
)
def test_wrong_options_are_refused(options):
    with pytest.raises(ConfigurationError):
        single_instance("order", **options)(lambda: None)


def test_decorator_without_parentheses_is_refused():
    with pytest.raises(ConfigurationError, match="parentheses"):
        single_instance(lambda: None)
