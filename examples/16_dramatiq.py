"""Dramatiq: @single_instance below @dramatiq.actor, two workers of four threads, one is killed.

A message reads the stock of an item, works, and writes it back; messages that overlap lose updates.
The first of the last messages kills its worker between reading and writing: the other worker gets
it and sells as soon as the lock of the killed process has expired.

Prints, among others::

    without a lock: wrong, ...
    with @single_instance: exact, 24 of 24
    with a killed worker: exact, 24 of 24
"""

import os
import pathlib
import signal
import sys
import time

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import CurrentMessage

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url
from _workers import running

from redis_lock_decorators.contrib.dramatiq import single_instance

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")  # the locks use it, too


def broker_of(url):
    # By default the messages of a dead worker are delivered again after a minute or more.
    return RedisBroker(url=url, heartbeat_timeout=4000, maintenance_chance=1_000_000)


broker = broker_of(URL)
broker.add_middleware(CurrentMessage())
dramatiq.set_broker(broker)


def sell(item, dies):
    with redis.Redis.from_url(URL) as stock:
        sold = int(stock.get(f"sold:{item}") or 0)
        if dies and stock.set("died", 1, nx=True):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)
        stock.set(f"sold:{item}", sold + 1)
        stock.incr(f"ended:{item}")


@dramatiq.actor
def sell_without(item, dies=False):
    sell(item, dies)


@dramatiq.actor
@single_instance("stock:{item}", on_busy="retry", retry_after=0.1, expire=2)
def sell_one(item, dies=False):
    sell(item, dies)


def main():
    with server_url() as url, redis.Redis.from_url(url) as stock:
        worker = ["dramatiq", pathlib.Path(__file__).stem, "--processes=1", "--threads=4"]
        sender = broker_of(url)
        with running(worker, worker, REDIS_URL=url):
            show("without a lock", sender, stock, sell_without, "apple")
            show("with @single_instance", sender, stock, sell_one, "pear")
            sender.enqueue(sell_one.message("plum", dies=True))
            wait_until(lambda: stock.exists("died"))
            show("with a killed worker", sender, stock, sell_one, "plum", sent=1)
        sender.close()


def show(title, sender, stock, actor, item, sent=0):
    for _ in range(24 - sent):
        sender.enqueue(actor.message(item))
    wait_until(lambda: int(stock.get(f"ended:{item}") or 0) >= 24)
    sold = int(stock.get(f"sold:{item}"))
    print(f"{title}: {'exact' if sold == 24 else 'wrong'}, {sold} of {24}")


def wait_until(condition):
    end = time.monotonic() + 30
    while time.monotonic() < end and not condition():
        time.sleep(0.05)


if __name__ == "__main__":
    main()
