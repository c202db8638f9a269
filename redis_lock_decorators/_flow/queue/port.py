"""What waiting in a queue needs from outside, in addition to ``Port``."""

from __future__ import annotations

from typing import Protocol

from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._flow.queue.arrival_order import ArrivalOrder
from redis_lock_decorators._flow.queue.cohort import Cohort
from redis_lock_decorators._flow.queue.subscriber import Subscriber
from redis_lock_decorators._flow.queue.waiter import Wakeup


class QueuePort(Port, Protocol):
    """A client through which locks can be waited for.

    Attributes:
        arrivals: the claims that compete for keys here, in order of arrival.
    """

    arrivals: ArrivalOrder

    def subscriber(self, key: bytes) -> Subscriber:
        """The subscriber at the node of a key; created if there is none."""

    def is_subscribed(self, key: bytes) -> bool:
        """Whether an open subscriber exists at the node of a key."""

    def wakeup(self) -> Wakeup:
        """A new object that wakes the calling thread or task."""

    def cohort(self, key: bytes, expire_ms: int) -> Cohort:
        """The cohort of a key, for leases of ``expire_ms`` milliseconds."""
