"""Tasks for the tests of the Celery integration, as a project's module has them."""

from __future__ import annotations

import os
import signal
import time

import redis
from celery import Celery, Task
from celery.exceptions import SoftTimeLimitExceeded

from redis_lock_decorators import LockTimeoutError, RedisLock, current_lease
from redis_lock_decorators.contrib.celery import single_instance

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
app = Celery("program", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": int(os.environ.get("VISIBILITY", 3600)),
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
    beat_schedule={"digest": {"task": "digest", "schedule": 2.0}},
)
store = redis.Redis.from_url(URL, decode_responses=True)

if "USE_LOCK_AT_IMPORT" in os.environ:
    with RedisLock("of the parent"):
        pass


def work(name, seconds):
    """Add one to a number by reading and writing."""
    seen = int(store.get(f"count:{name}") or 0)
    time.sleep(seconds)
    store.set(f"count:{name}", seen + 1)


def is_first(what):
    return bool(store.set(f"first:{what}", 1, nx=True))


@app.task
def bare(name, seconds):
    work(name, seconds)


@app.task
@single_instance("{name}", on_busy="retry", retry_after=0.1, expire=2)
def counted(name, seconds, dies=False):
    store.rpush(f"started:{name}", os.getpid())
    seen = int(store.get(f"count:{name}") or 0)
    if dies and is_first(name):
        store.set(f"killed:{name}", os.getpid())
        if dies == "itself":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(30)
    time.sleep(seconds)
    store.set(f"count:{name}", seen + 1)


@app.task
@single_instance("{name}", on_busy="skip", expire=1)
def skipped(name, seconds):
    time.sleep(seconds)
    return current_lease().lock_name


@app.task
@single_instance("{name}", on_busy="skip", retry_after=0.2, expire=4)
def dies_once(name):
    if is_first(name):
        os.kill(os.getpid(), signal.SIGKILL)
    return current_lease().lock_name


@app.task
@single_instance("{name}", expire=60)
def refused(name, seconds):
    time.sleep(seconds)


@app.task(autoretry_for=(LockTimeoutError,), retry_kwargs={"max_retries": 40, "countdown": 0.1})
@single_instance("{name}", expire=2)
def retried_automatically(name, seconds):
    work(name, seconds)


@app.task(bind=True, max_retries=3)
@single_instance("{name}:{self.name}", on_busy="skip", retry_after=0.2, expire=60)
def retries_itself(self, name, times):
    if self.request.retries < times:
        try:
            self.retry(countdown=0)
        finally:
            time.sleep(0.3)  # the next delivery arrives while this run still holds the lock
    return self.request.retries


@app.task(bind=True, max_retries=0)
@single_instance("{name}", on_busy="retry", retry_after=0.1)
def keeps_its_retries(self, name):
    return self.request.retries


@single_instance("{name}", on_busy="retry", retry_after=0.1)
def no_task(name):
    return "called"


@app.task
def calls_what_is_no_task(name):
    store.incr(f"count:{name}")
    try:
        return no_task(name)
    except LockTimeoutError:
        return "refused"


@app.task(bind=True)
@single_instance("{name}", on_busy="retry", retry_after=0.1)
def calls_itself(self, name, depth):
    if not depth:
        return "called"
    try:
        return self.run(name, depth - 1)
    except LockTimeoutError:
        return "refused"


@app.task(soft_time_limit=1)
@single_instance("{name}", expire=60)
def limited_softly(name):
    try:
        time.sleep(30)
    except SoftTimeLimitExceeded:
        store.set(f"held:{name}", int(current_lease().owned()))
        raise


@app.task(time_limit=1, acks_late=False)
@single_instance("{name}", expire=2)
def limited(name):
    time.sleep(30)


@app.task
@single_instance("{name}", on_busy=lambda name: f"{name} is busy", retry_after=0.2)
def answers(name):
    return name


@app.task
@single_instance("{name}", on_busy="raise", retry_after=0.2)
def raises(name):
    return name


@app.task
@single_instance("{order}", on_busy="retry", retry_after=0.1)
def link(total, order):
    return total + 1


@app.task(name="digest")
@single_instance("digest", on_busy="skip", min_hold=1.5)
def digest():
    store.rpush("digests", time.time())


class Report(Task):
    name = "report"

    @single_instance("report:{user}", on_busy="skip")
    def run(self, user):
        return current_lease().lock_name


app.register_task(Report())
