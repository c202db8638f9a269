"""The same code on a cluster of three nodes: only the client in the hook differs.

Several names are acquired all or none, wherever their slots are. Names with the same hash tag share
a slot and are acquired in one step; in a template its braces are doubled: "{{acct}}:{src}".

Prints, among others::

    pay: order:7
    transfer: {acct}:A, {acct}:B in 1 slot
    move: box:A, box:B in 2 slots
    functions: acquired and released: True
"""

import pathlib
import sys

import redis.cluster

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))

from redis_lock_decorators import (
    acquire_lock,
    configure,
    current_lease,
    redis_lock,
    release_lock,
)
from redis_lock_decorators.testing import LocalCluster


@redis_lock("order:{order_id}")
def pay(order_id):
    return current_lease()


@redis_lock(["{{acct}}:{src}", "{{acct}}:{dst}"])
def transfer(src, dst):
    return current_lease()


@redis_lock(["box:{src}", "box:{dst}"])
def move(src, dst):
    return current_lease()


def slots(client: redis.cluster.RedisCluster, lease):
    number = len({client.keyslot(key) for key in lease.key.split(", ")})
    return f"{lease.lock_name} in {number} slot{'s' if number > 1 else ''}"


def main():
    with LocalCluster(nodes=3) as cluster:
        client = cluster.client()
        configure(get_redis_connection=lambda: client)
        print("pay:", pay(7).lock_name)
        print("transfer:", slots(client, transfer("B", "A")))
        print("move:", slots(client, move("B", "A")))
        identifier = acquire_lock(client, "nightly")
        print("functions: acquired and released:", release_lock(client, "nightly", identifier))


if __name__ == "__main__":
    main()
