"""@redis_lock: how to name the lock of a call, and what a call does when the lock is busy.

Inside a decorated function ``current_lease()`` returns its lease; elsewhere
``function.lock_for(...)`` returns the lock that a call with these arguments would acquire.

Prints, among others::

    close_account: lock A-17
    pay: lock order:7
    refund: lock order:7
    transfer: lock account:A-17, account:B-2
    order 7 locked while no payment runs: False
    order 7 locked while another process pays: True
    tidy_up: skipped
    warm_cache: another process does it
"""

import pathlib
import sys

import redis

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url

from redis_lock_decorators import acquire_lock, configure, current_lease, redis_lock


@redis_lock  # named by the first argument
def close_account(account):
    print("close_account: lock", current_lease().lock_name)


@redis_lock("order:{order_id}")  # a template over the arguments
def pay(order_id, amount=0):
    print("pay: lock", current_lease().lock_name)


@redis_lock(get_lock_name=lambda payment: f"order:{payment['order']}")
def refund(payment):
    print("refund: lock", current_lease().lock_name)


@redis_lock(["account:{source}", "account:{target}"])  # both or none, without deadlocks
def transfer(source, target):
    print("transfer: lock", current_lease().lock_name)


@redis_lock("tidy-up", acquire_time=0, on_busy="skip")  # a busy call returns None at once
def tidy_up():
    return "done"


@redis_lock("cache", acquire_time=0.1, on_busy=lambda: "another process does it")
def warm_cache():
    return "done"


def main():
    with server_url() as url, redis.Redis.from_url(url) as another_process:
        configure(get_redis_connection=lambda: redis.Redis.from_url(url))
        close_account("A-17")
        pay(7, amount=5)
        refund({"order": 7})
        transfer("B-2", "A-17")
        print("order 7 locked while no payment runs:", pay.lock_for(7).locked())
        for lock_name in ("order:7", "tidy-up", "cache"):
            acquire_lock(another_process, lock_name, expire=2)
        print("order 7 locked while another process pays:", pay.lock_for(order_id=7).locked())
        print("tidy_up:", tidy_up() or "skipped")
        print("warm_cache:", warm_cache())


if __name__ == "__main__":
    main()
