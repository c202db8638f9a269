"""An in-memory server behind the same locks, in virtual time."""

from redis_lock_decorators.testing.fake.double import FakeServer

__all__ = ["FakeServer"]
