"""Tests of code with locks, without a server and in virtual time; pytest has it as a fixture.

Prints, among others::

    given up after an hour: True
    held for an hour: charged 42
    loss noticed: True
    two workers for 30 minutes each: 60 minutes
"""

import asyncio

from redis_lock_decorators import LockLostError, LockTimeoutError, current_lease, redis_lock
from redis_lock_decorators.testing.fake import FakeServer


@redis_lock("order:{order_id}", acquire_time=3600)
def charge(order_id, work=lambda: None):
    work()
    current_lease().check()
    return f"charged {order_id}"


@redis_lock("report", acquire_time=None)
async def report():
    await asyncio.sleep(1800)


async def two_workers():
    await asyncio.gather(report(), report())


def is_given_up(order_id):
    try:
        charge(order_id)
    except LockTimeoutError:
        return True
    return False


def is_loss_noticed(order_id, double):
    try:
        charge(order_id, lambda: double.lose(f"order:{order_id}"))
    except LockLostError:
        return True
    return False


def main():
    with FakeServer() as double:
        double.keep_busy("order:7")
        print("given up after an hour:", is_given_up(7))
        print("held for an hour:", charge(42, lambda: double.sleep(3600)))
        print("loss noticed:", is_loss_noticed(42, double))

        before = double.now
        asyncio.run(two_workers())
        print(f"two workers for 30 minutes each: {(double.now - before) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
