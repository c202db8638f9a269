"""APScheduler 3: @once_per on a job that the schedulers of three nodes start every two seconds.

One node kills itself in its first run: the others go on when its lock has expired.

Prints, among others::

    bare: several runs in a period: True
    locked: several runs in a period: False
    locked: runs of several nodes at a time: False
    locked: goes on after a node was killed: True
"""

import os
import pathlib
import signal
import sys
import time
from collections import Counter

import redis
from apscheduler.schedulers.blocking import BlockingScheduler

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url
from _workers import running

from redis_lock_decorators.contrib.apscheduler import once_per

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")  # the locks use it, too
PERIOD = 2.0


def digest(runs):
    with redis.Redis.from_url(URL) as store:
        store.rpush(runs, time.time())
        if store.incr(f"inside:{runs}") > 1:
            store.set(f"overlap:{runs}", 1)
        if runs == "locked" and store.set("killed", 1, nx=True):
            store.decr(f"inside:{runs}")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
        store.decr(f"inside:{runs}")


@once_per(PERIOD, "digest", slack=0.5, expire=1)
def locked_digest():
    digest("locked")


def node():
    scheduler = BlockingScheduler()
    scheduler.add_job(digest, "cron", second="*/2", args=["bare"])
    scheduler.add_job(locked_digest, "cron", second="*/2")
    scheduler.start()


def main():
    with server_url() as url, redis.Redis.from_url(url) as store:
        program = [pathlib.Path(__file__).stem, "node"]  # python -m 18_apscheduler node
        with running(*[program] * 3, REDIS_URL=url):
            end = time.monotonic() + 30
            while store.llen("locked") < 4 and time.monotonic() < end:
                time.sleep(0.1)
        for runs in ("bare", "locked"):
            times = [float(one) for one in store.lrange(runs, 0, -1)]
            periods = Counter(int(one // PERIOD) for one in times)
            print(f"{runs}: several runs in a period: {max(periods.values()) > 1}")
            print(f"{runs}: runs of several nodes at a time: {bool(store.get(f'overlap:{runs}'))}")
        print(f"locked: goes on after a node was killed: {len(times) >= 4}")


if __name__ == "__main__":
    node() if sys.argv[1:] == ["node"] else main()
