"""Die while an order is charged, as by ``kill -9`` or a power failure."""

import os
import signal

from redis_lock_decorators import redis_lock


@redis_lock("order:{order_id}", expire=3)
def charge(order_id):
    print(f"begins to charge order {order_id}, and dies", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    charge(42)
