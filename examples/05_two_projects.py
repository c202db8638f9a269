"""Two projects in one process, each with its own connection hook, prefix and defaults.

Both lock "order:7" at the same time without conflict: one Locks per project, nothing shared.
(With REDIS_URL set both use that one server, and the prefixes separate them.)

Prints, among others::

    shop holds shop:lock:order:7 for 30 s
    billing holds billing:lock:order:7 for 5 s
    both hold order:7
    the hooks were called: billing once, shop once
"""

import collections
import pathlib
import sys

import redis

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url

from redis_lock_decorators import Locks, current_lease

urls = {}
calls = collections.Counter()


def connect(project):
    calls[project] += 1
    return redis.Redis.from_url(urls[project])


# Each project creates its Locks once, in its own module; no hook is called yet.
shop = Locks(get_redis_connection=lambda: connect("shop"), prefix="shop:lock:", expire=30)
billing = Locks(get_redis_connection=lambda: connect("billing"), prefix="billing:lock:", expire=5)


@shop.redis_lock("order:{order_id}")
def ship(order_id):
    lease = current_lease()
    print(f"shop holds {lease.key} for {lease.expire} s")
    send_invoice(order_id)


@billing.redis_lock("order:{order_id}")
def send_invoice(order_id):
    lease = current_lease()
    print(f"billing holds {lease.key} for {lease.expire} s")
    held = shop.lock(f"order:{order_id}").locked(), billing.lock(f"order:{order_id}").locked()
    print(f"both hold order:{order_id}" if all(held) else "something is wrong")


def main():
    with server_url() as urls["shop"], server_url() as urls["billing"]:
        ship(7)
        ship(8)
        times = ", ".join(f"{name} once" for name in sorted(calls) if calls[name] == 1)
        print("the hooks were called:", times)


if __name__ == "__main__":
    main()
