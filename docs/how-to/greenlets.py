"""Locks in greenlets of gevent: ``python greenlets.py``."""

from gevent import monkey

monkey.patch_all()  # first of all, with threads

import gevent  # noqa: E402

from redis_lock_decorators import current_lease, redis_lock  # noqa: E402


@redis_lock("order:{order_id}", expire=1)
def charge(order_id):
    gevent.sleep(1.5)  # longer than expire: the lock is renewed meanwhile
    current_lease().check()
    return f"order {order_id} is charged"


if __name__ == "__main__":
    jobs = [gevent.spawn(charge, order_id) for order_id in (42, 42, 43)]
    print(*[job.get() for job in jobs], sep="\n")
