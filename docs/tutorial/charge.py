"""Charge an order, one process at a time: ``python charge.py ORDER NAME SECONDS``."""

import sys
import time

from redis_lock_decorators import redis_lock


@redis_lock("order:{order_id}", expire=3, owner_info=True)
def charge(order_id, name, seconds):
    print(f"{name}: charges order {order_id}", flush=True)
    time.sleep(seconds)
    print(f"{name}: done", flush=True)


if __name__ == "__main__":
    order, name, seconds = sys.argv[1:]
    charge(int(order), name, float(seconds))
