"""Taskiq: @single_instance below @broker.task, two worker processes, one of them is killed.

A task reads the stock of an item, works, and writes it back; tasks that overlap lose updates. The
first of the last tasks kills its process between reading and writing: another process gets it and
sells as soon as the lock of the killed process has expired.

Prints, among others::

    without a lock: wrong, ...
    with @single_instance: exact, 24 of 24
    with a killed worker: exact, 24 of 24
"""

import asyncio
import os
import pathlib
import signal
import sys
import time

from redis.asyncio import Redis
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url
from _workers import running

from redis_lock_decorators.contrib.taskiq import SingleInstanceMiddleware, single_instance

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")  # the locks use it, too


def broker_of(url):
    # By default the messages of a dead worker are delivered again after ten minutes. This broker
    # looks for them only as long as others arrive: here, until the lock expires.
    broker = RedisStreamBroker(url, idle_timeout=2500)
    results = RedisAsyncResultBackend(url)
    return broker.with_middlewares(SingleInstanceMiddleware()).with_result_backend(results)


broker = broker_of(URL)


async def sell(item, dies):
    async with Redis.from_url(URL) as stock:
        sold = int(await stock.get(f"sold:{item}") or 0)
        if dies and await stock.set("died", 1, nx=True):
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(0.02)
        await stock.set(f"sold:{item}", sold + 1)


@broker.task("sell_without")
async def sell_without(item, dies=False):
    await sell(item, dies)


@broker.task("sell_one")
@single_instance("stock:{item}", on_busy="retry", retry_after=0.1, expire=6)
async def sell_one(item, dies=False):
    await sell(item, dies)


async def send_all(url):
    sender = broker_of(url)
    await sender.startup()
    async with Redis.from_url(url) as stock:
        await show("without a lock", sender, stock, sell_without, "apple")
        await show("with @single_instance", sender, stock, sell_one, "pear")
        dying = await sell_one.kicker().with_broker(sender).kiq("plum", dies=True)
        end = time.monotonic() + 10
        while time.monotonic() < end and not await stock.exists("died"):
            await asyncio.sleep(0.05)
        await show("with a killed worker", sender, stock, sell_one, "plum", [dying])
    await sender.shutdown()


async def show(title, sender, stock, task, item, sent=()):
    kicker = task.kicker().with_broker(sender)
    tasks = [*sent, *[await kicker.kiq(item) for _ in range(24 - len(sent))]]
    for one in tasks:
        await one.wait_result(timeout=30)
    sold = int(await stock.get(f"sold:{item}"))
    print(f"{title}: {'exact' if sold == 24 else 'wrong'}, {sold} of {24}")


def main():
    with server_url() as url:
        worker = ["taskiq", "worker", f"{pathlib.Path(__file__).stem}:broker", "--workers=1"]
        with running(worker, worker, REDIS_URL=url):
            asyncio.run(send_all(url))


if __name__ == "__main__":
    main()
