"""The state of a Redis client in this process or event loop."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType
from typing import Any, Generic, Protocol, TypeVar

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.held_claims import HeldClaims
from redis_lock_decorators._flow.known_rights import KnownRights
from redis_lock_decorators._flow.queue.arrival_order import ArrivalOrder
from redis_lock_decorators._flow.queue.cohort import Cohort
from redis_lock_decorators._flow.queue.cohorts import Cohorts
from redis_lock_decorators._flow.queue.reachability import Reachability
from redis_lock_decorators._flow.queue.subscriber import Subscriber
from redis_lock_decorators._flow.queue.subscriber_port import SubscriberLoop, SubscriberPort
from redis_lock_decorators._flow.renewal.renewer import Renewer
from redis_lock_decorators._io.client_methods import watches
from redis_lock_decorators._io.client_nodes import node_of
from redis_lock_decorators._io.per_client import PerClient
from redis_lock_decorators._io.plain_pools import LIBRARIES, is_plain_pool
from redis_lock_decorators._io.transport.origins import IdleFollower
from redis_lock_decorators._rules.permissions import CHANNEL

T = TypeVar("T")


class ClientLoop(SubscriberLoop, Protocol):
    """A lease loop as the clients on it need it.

    Attributes:
        renewer: renews the leases on this loop.
        clients: the states of the clients that are used on this loop.
        start_error: why no thread could be started for its work; "" if one was, or none is needed.
    """

    renewer: Renewer
    clients: PerClient[Any]
    start_error: str

    def check(self, claim: Claim | None = None) -> None:
        """Raise ConfigurationError if no background work is possible, as for the claim."""

    def refuse_unrenewed(self, claim: Claim) -> None:
        """Raise LockError if no thread could be started that would renew the claim."""

    def begin(self) -> None:
        """Start the thread if there are calls for which none could be started."""

    def is_current(self) -> bool:
        """Whether this code runs on the event loop, or on the thread of its worker."""


class ClientState(Generic[T]):
    """The state of one client in this process or event loop.

    Attributes:
        slotted: it is a cluster client.
        transacts: it supports WATCH, MULTI and EXEC; not a wrapper without usable pipelines.
        plain: its unwrapped ``execute_command``; another one there means that it is traced.
        owned: connections like those of its pool can be used without ``execute_command``: its pool
            is the library's, with no choice of servers by the program. False from the time when the
            client is found to have another pool.
        sender: sends requests for all users of the client.
        lease_loop: the event loop on which leases held through it are renewed.
        cohorts: the cohorts of its waiters, by key and lease length in milliseconds.
        subscribers: receive the messages to waiters, by cluster node.
        reachabilities: whether messages could be received, by cluster node.
        rights: what its user is known to be allowed.
        serials: numbers of requests; a stale reply never has the number of a later request.
        held: the claims held through it, by key.
        arrivals: the claims that compete for keys through it, in order of arrival.
        port: a weak reference to the port that its leases share.
        has_transacted: MULTI and EXEC were permitted when they were last sent through it.
    """

    __slots__ = (
        "arrivals",
        "cohorts",
        "has_transacted",
        "held",
        "lease_loop",
        "owned",
        "plain",
        "port",
        "reachabilities",
        "rights",
        "sender",
        "serials",
        "slotted",
        "subscribers",
        "transacts",
    )

    def __init__(self, client: Any, sender: T, lease_loop: ClientLoop) -> None:
        pool = getattr(client, "connection_pool", None)
        self.slotted = hasattr(client, "nodes_manager") or hasattr(pool, "nodes")
        self.plain = plain_execute(client)
        self.sender = sender
        self.lease_loop = lease_loop
        #: any thread
        self.owned = has_own_connections(client)
        self.transacts = self.owned or (not self.slotted and watches(client))
        self.subscribers: dict[object, Subscriber] = {}
        self.reachabilities: dict[object, Reachability] = {}
        self.cohorts = Cohorts()
        self.serials: Iterator[int] = itertools.count(1)
        self.rights = KnownRights()  #: any thread
        self.held = HeldClaims()
        self.arrivals = ArrivalOrder()
        self.port: Callable[[], Any] = no_port
        self.has_transacted = False
        if self.owned:
            _refuse_other_pools(sender)

    def use_methods(self, client: Any) -> None:
        """Use the client's own methods from now on: its pool is no longer the library's."""
        self.owned = self.has_transacted = False
        self.transacts = not self.slotted and watches(client)

    def subscriber(self, port: SubscriberPort, key: bytes) -> Subscriber:
        """The subscriber at the node of a key.

        One that cannot receive messages is not stored: it refers to the client.
        """
        node = self.node(port.client, ("", key)) if self.slotted else None
        found = self.subscribers.get(node)
        if found is None:
            channel = f"{CHANNEL}{secrets.token_hex(8)}"
            end = partial(self._forget, node)
            reachability = self.reachabilities.setdefault(node, Reachability())
            found = Subscriber(self.lease_loop, port, channel, key, end, reachability)
            if not found.is_unavailable:
                found = self.subscribers.setdefault(node, found)
        return found

    def is_subscribed(self, client: Any, key: bytes) -> bool:
        """Whether there is an open subscriber at the node of a key."""
        found = self.subscribers.get(self.node(client, ("", key)))
        return found is not None and found.is_open

    def _forget(self, node: object, subscriber: Subscriber) -> None:
        """Remove the subscriber of a node, unless another one has replaced it."""
        if self.subscribers.get(node) is subscriber:
            self.subscribers.pop(node, None)

    def node(self, client: Any, command: tuple[Any, ...]) -> object:
        """The identity of the node that a command is sent to; None without a cluster."""
        return node_of(client, command) if self.slotted else None

    def cohort(self, key: bytes, expire_ms: int) -> Cohort:
        """The cohort of the waiters for a key with leases of one length."""
        return self.cohorts.of(key, expire_ms)

    def close_unused(self) -> None:
        """Close the connections that nothing uses; the next request opens another one."""
        for subscriber in list(self.subscribers.values()):
            subscriber.close_unused()
        idle = _idle(self.sender)
        if idle is not None:
            idle.drop()

    def is_untouched(self, client: Any) -> bool:
        """Whether the client's ``execute_command`` is still unwrapped."""
        return self.owned and getattr(client.execute_command, "__func__", None) is self.plain


def _refuse_other_pools(sender: Any) -> None:
    """Have a sender open private connections only for pools of the library."""
    idle = _idle(sender)
    if idle is not None:
        idle.is_fit = is_plain_pool


def _idle(sender: Any) -> IdleFollower | None:
    connections = getattr(sender, "idle", sender)  # the batcher of an asyncio client has them
    return connections if isinstance(connections, IdleFollower) else None


def no_port() -> None:
    """A substitute for the weak reference while there is no port."""


def has_own_connections(client: Any) -> bool:
    """Whether requests of its locks use private connections instead of ``execute_command``."""
    pool = getattr(client, "connection_pool", None)
    is_cluster = hasattr(client, "nodes_manager") or hasattr(pool, "nodes")
    return plain_execute(client) is not None and not is_cluster and is_plain_pool(pool)


def plain_execute(client: Any) -> FunctionType | None:
    """The library's own ``execute_command``; None if it is overridden or wrapped."""
    function = getattr(client.execute_command, "__func__", None)
    if type(function) is not FunctionType or hasattr(function, "__wrapped__"):
        return None
    library = function.__module__.partition(".")[0]
    is_known = library in LIBRARIES and function.__name__ == "execute_command"
    return function if is_known else None
