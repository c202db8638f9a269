"""One of several processes that bill invoices: ``python worker.py NAME``."""

import os
import sys
import time

import redis

from redis_lock_decorators import redis_lock

INVOICES = range(1, 13)
#: The set of the invoices that are billed.
BILLED = "tutorial:billed"


@redis_lock("invoice:{number}", acquire_time=0, on_busy="skip", expire=2, owner_info=True)
def bill(number, shop, name):
    if shop.sismember(BILLED, number):
        return
    time.sleep(0.3)  # the work
    shop.sadd(BILLED, number)
    print(f"{name} has billed invoice {number}", flush=True)


def main(name):
    shop = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
    while shop.scard(BILLED) < len(INVOICES):
        for number in INVOICES:
            bill(number, shop, name)
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1])
