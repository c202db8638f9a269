"""@redis_lock on methods: the template may read attributes of self.

So every instance has its own locks, and instances with the same attributes in other processes
share them. Class methods, static methods and inherited methods work the same; a generator
holds its lock while it runs.

Prints, among others::

    take: stock:north:bolt
    take (inherited): stock:south:bolt
    audit: audit:Warehouse
    audit (inherited): audit:ColdWarehouse
    price: price:bolt
    row 1, export locked: True
    row 2, export locked: True
    after the last row, export locked: False
"""

import pathlib
import sys

import redis

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url

from redis_lock_decorators import configure, current_lease, redis_lock


class Warehouse:
    def __init__(self, warehouse):
        self.warehouse = warehouse

    @redis_lock("stock:{self.warehouse}:{sku}", expire=30)
    def take(self, sku, pieces=1):
        return current_lease().lock_name

    @classmethod
    @redis_lock("audit:{cls.__name__}")
    def audit(cls):
        return current_lease().lock_name

    @staticmethod
    @redis_lock("price:{sku}")
    def price(sku):
        return current_lease().lock_name

    @redis_lock("export:{self.warehouse}")
    def export(self):
        yield 1
        yield 2


class ColdWarehouse(Warehouse):
    """Inherits the locked methods; the lock names use the attributes of its instances."""


def main():
    with server_url() as url:
        configure(get_redis_connection=lambda: redis.Redis.from_url(url))
        north, south = Warehouse("north"), ColdWarehouse("south")
        print("take:", north.take("bolt"))
        print("take (inherited):", south.take("bolt", pieces=2))
        print("audit:", Warehouse.audit())
        print("audit (inherited):", ColdWarehouse.audit())
        print("price:", Warehouse.price("bolt"))
        lock = Warehouse.export.lock_for(north)  # called on the class, so self is an argument
        for row in north.export():
            print(f"row {row}, export locked:", lock.locked())
        print("after the last row, export locked:", lock.locked())


if __name__ == "__main__":
    main()
