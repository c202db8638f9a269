"""RQ: @single_instance on jobs that three workers run; a worker's process is killed in a job.

A job reads the stock of an item, works, and writes it back; jobs that overlap lose updates. The
first of the last jobs kills its process between reading and writing: it is run again as soon as the
lock of the killed process has expired.

Prints, among others::

    without a lock: wrong, ...
    with @single_instance: exact, 6 of 6
    with a killed process: exact, 6 of 6
"""

import importlib
import os
import pathlib
import signal
import sys
import time

import redis
from rq import Queue, Retry

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url
from _workers import running

from redis_lock_decorators.contrib.rq import single_instance

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")  # the locks use it, too


def sell(item, dies=False):
    with redis.Redis.from_url(URL) as stock:
        sold = int(stock.get(f"sold:{item}") or 0)
        if dies and stock.set("died", 1, nx=True):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.2)
        stock.set(f"sold:{item}", sold + 1)


@single_instance("stock:{item}", on_busy="retry", retry_after=1, acquire_time=1, expire=2)
def sell_one(item, dies=False):
    sell(item, dies)


def main():
    shop = importlib.import_module(pathlib.Path(__file__).stem)  # as the workers name it
    with server_url() as url, redis.Redis.from_url(url) as connection:
        queue = Queue(connection=connection)
        worker = ["rq.cli", "worker", "--quiet", "--with-scheduler", "--url", url]
        with running(*[worker] * 3, REDIS_URL=url):
            show("without a lock", queue, [(shop.sell, "apple", False)] * 6)
            show("with @single_instance", queue, [(shop.sell_one, "pear", False)] * 6)
            dying = [(shop.sell_one, "plum", number == 0) for number in range(6)]
            show("with a killed process", queue, dying)


def show(title, queue, calls):
    jobs = [queue.enqueue(*call, retry=Retry(max=3)) for call in calls]
    end = time.monotonic() + 30
    while time.monotonic() < end and not all(job.get_status() == "finished" for job in jobs):
        time.sleep(0.05)
    sold = int(queue.connection.get(f"sold:{calls[0][1]}"))
    print(f"{title}: {'exact' if sold == len(calls) else 'wrong'}, {sold} of {len(calls)}")


if __name__ == "__main__":
    main()
