"""Celery: @single_instance below @app.task, in two worker processes with four tasks at a time each.

A task reads the stock of an item, works, and writes it back; tasks that overlap lose updates. Of
the last tasks, the first kills its process between reading and writing: it is delivered again, and
sold as soon as the lock of the killed process has expired.

Prints, among others::

    with @single_instance: 24 of 24 sold
    with a killed process: 24 of 24 sold
"""

import os
import pathlib
import signal
import sys
import time

import redis
from celery import Celery, group

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url
from _workers import running

from redis_lock_decorators.contrib.celery import single_instance

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")  # the locks use it, too
app = Celery("shop", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)


def sell(item, dies):
    with redis.Redis.from_url(URL) as stock:
        sold = int(stock.get(f"sold:{item}") or 0)
        if dies and stock.set("died", 1, nx=True):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)
        stock.set(f"sold:{item}", sold + 1)


@app.task(name="sell_without")
def sell_without(item, dies=False):
    sell(item, dies)


@app.task(name="sell_one")
@single_instance("stock:{item}", on_busy="retry", retry_after=0.1, expire=2)
def sell_one(item, dies=False):
    sell(item, dies)


def main():
    with server_url() as url:
        app.conf.update(broker_url=url, result_backend=url)
        options = ["--loglevel=ERROR", "--concurrency=4", "--without-gossip", "--without-mingle"]
        worker = ["celery", "--app", pathlib.Path(__file__).stem, "--quiet", "worker", *options]
        names = [f"--hostname={name}@%h" for name in ("one", "two")]
        with running(*[[*worker, name] for name in names], REDIS_URL=url):
            show("without a lock", [sell_without.s("apple") for _ in range(24)], url)
            show("with @single_instance", [sell_one.s("pear") for _ in range(24)], url)
            last = [sell_one.s("plum", dies=number == 0) for number in range(24)]
            show("with a killed process", last, url)


def show(title, tasks, url):
    group(tasks).apply_async().get(timeout=60)
    with redis.Redis.from_url(url, decode_responses=True) as stock:
        sold = stock.get(f"sold:{tasks[0].args[0]}")
    print(f"{title}: {sold} of {len(tasks)} sold", flush=True)


if __name__ == "__main__":
    main()
