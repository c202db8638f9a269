"""Redis clients, told apart by what they can do."""

from __future__ import annotations

import inspect
import itertools
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FunctionType
from typing import Any, Generic, Protocol, TypeVar

from redis_lock_decorators._flow.held_claims import HeldClaims
from redis_lock_decorators._flow.queue.arrival_order import ArrivalOrder
from redis_lock_decorators._flow.queue.cohort import Cohort
from redis_lock_decorators._flow.queue.cohorts import Cohorts
from redis_lock_decorators._flow.queue.reachability import Reachability
from redis_lock_decorators._flow.queue.subscriber import Subscriber
from redis_lock_decorators._flow.queue.subscriber_port import SubscriberLoop, SubscriberPort
from redis_lock_decorators._flow.renewal.renewer import Renewer
from redis_lock_decorators._io.client_errors import part_of
from redis_lock_decorators._io.per_client import PerClient
from redis_lock_decorators._io.transport.encoding import encoded, words_of
from redis_lock_decorators._rules.keys import slot_of
from redis_lock_decorators._rules.permissions import CHANNEL
from redis_lock_decorators.errors import ConfigurationError

T = TypeVar("T")


class ClientLoop(SubscriberLoop, Protocol):
    """An event loop, with who looks after leases on it.

    Attributes:
        renewer: who looks after them.
        clients: what is known of the clients that are used there, for as long as these live.
    """

    renewer: Renewer
    clients: PerClient[Any]

    def check(self) -> None:
        """Refuse to work in the background where that cannot be: ConfigurationError."""

    def begin(self) -> None:
        """Have a thread for what was asked for while none could be started."""


class ClientState(Generic[T]):
    """What is known of one client in this process (or event loop), found out once.

    Attributes:
        slotted: it is a cluster's.
        transacts: it has WATCH, MULTI and EXEC; a wrapper without ``pipeline`` has not.
        plain: its unwrapped ``execute_command``; another one there means that it is traced.
        owned: connections like its pool's can be used past ``execute_command``: the library's own
            pool decides where they lead.
        named: its pool wants a command's name to give a connection (redis-py before 5.3).
        sender: the way there, shared by all who use the client.
        lease_loop: the event loop on which leases held through it are looked after.
        cohorts: who waits together, by key and length of lease in milliseconds.
        subscribers: who hears whose turn it is, by what tells the nodes of a cluster apart.
        reachabilities: whether that could be heard there.
        serials: numbers for requests; a stale reply never carries the number of a later one.
        held: the claims held through it, by key.
        arrivals: the claims that compete for keys through it, in their order.
        port: gives the port that its leases share, None while there is none.
        has_transacted: MULTI and EXEC were allowed when they were last sent through it.
    """

    __slots__ = (
        "arrivals",
        "cohorts",
        "has_transacted",
        "held",
        "lease_loop",
        "named",
        "owned",
        "plain",
        "port",
        "reachabilities",
        "sender",
        "serials",
        "slotted",
        "subscribers",
        "transacts",
    )

    def __init__(self, client: Any, sender: T, lease_loop: ClientLoop) -> None:
        pool = getattr(client, "connection_pool", None)
        self.slotted = hasattr(client, "nodes_manager") or hasattr(pool, "nodes")
        self.transacts = not self.slotted and has_pipelines(client)
        self.plain = _plain_execute(client)
        self.owned = self.plain is not None and not self.slotted and _is_plain_pool(client, pool)
        self.named = self.owned and _wants_a_name(pool)
        self.sender = sender
        self.lease_loop = lease_loop
        self.subscribers: dict[object, Subscriber] = {}
        self.reachabilities: dict[object, Reachability] = {}
        self.cohorts = Cohorts()
        self.serials: Iterator[int] = itertools.count(1)
        self.held = HeldClaims()
        self.arrivals = ArrivalOrder()
        self.port: Callable[[], Any] = no_port
        self.has_transacted = False

    def subscriber(self, port: SubscriberPort, key: bytes) -> Subscriber:
        """Who hears, at the node of a key.

        One that nobody can be told by is not kept: it refers to the client.
        """
        node = self.node(port.client, ("", key))
        found = self.subscribers.get(node)
        if found is None:
            channel = f"{CHANNEL}{secrets.token_hex(8)}"
            end = partial(self._forget, node)
            hearing = self.reachabilities.setdefault(node, Reachability())
            found = Subscriber(self.lease_loop, port, channel, key, end, hearing)
            if not found.is_unavailable:
                found = self.subscribers.setdefault(node, found)
        return found

    def is_subscribed(self, client: Any, key: bytes) -> bool:
        """Whether one hears at the node of a key already."""
        found = self.subscribers.get(self.node(client, ("", key)))
        return found is not None and found.is_open

    def _forget(self, node: object, subscriber: Subscriber) -> None:
        """Have no listener for a node any more, if that is still this one."""
        if self.subscribers.get(node) is subscriber:
            self.subscribers.pop(node, None)

    def node(self, client: Any, command: tuple[Any, ...]) -> object:
        """What tells the node apart that a command goes to; None where there is but one."""
        return node_of(client, command) if self.slotted else None

    def cohort(self, key: bytes, expire_ms: int) -> Cohort:
        """The waiters for a key with leases of one length."""
        return self.cohorts.of(key, expire_ms)

    def is_untouched(self, client: Any) -> bool:
        """Whether nobody has wrapped the client's ``execute_command`` since."""
        return self.owned and getattr(client.execute_command, "__func__", None) is self.plain


def no_port() -> None:
    """What stands for a reference to a port while there is none."""


def node_of(client: Any, command: tuple[Any, ...]) -> object:
    """What tells a cluster's nodes apart: the one that a command goes to; None if not known yet."""
    key = command[3] if command[0] in ("EVALSHA", "EVAL") else command[1]
    if hasattr(client, "nodes_manager"):
        nodes = client.nodes_manager.slots_cache.get(slot_of(key))
        return nodes[0].name if nodes else None
    nodes = client.connection_pool.nodes.slots.get(slot_of(key))
    return nodes[0]["name"] if nodes else None


def address_of(client: Any, key: bytes) -> tuple[Any, dict[str, Any]]:
    """The class and the parameters of connections to the node that a key lies on."""
    if not hasattr(client, "nodes_manager"):
        pool = client.connection_pool
        if not hasattr(pool, "nodes"):
            return pool.connection_class, dict(pool.connection_kwargs)
        node = pool.nodes.slots[slot_of(key)][0]
        place = {"host": node["host"], "port": node["port"]}
        return pool.connection_class, {**pool.connection_kwargs, **place}
    node = client.get_node_from_key(key)
    if hasattr(node, "connection_kwargs"):  # an asyncio cluster's
        return node.connection_class, dict(node.connection_kwargs)
    pool = client.get_redis_connection(node).connection_pool
    return pool.connection_class, dict(pool.connection_kwargs)


def place_of(client: Any) -> str:
    """Where the server of a client is, without a password."""
    try:
        if hasattr(client, "nodes_manager"):
            return f"a cluster of {len(client.nodes_manager.nodes_cache)} known nodes"
        pool = client.connection_pool
        if hasattr(pool, "service_name"):
            return f"the master of {pool.service_name!r:.80}"
        found = pool.connection_kwargs
        return str(found.get("path") or f"{found['host']}:{found['port']}")
    except Exception:  # a wrapper need not have any of it
        return f"the server of {type(client).__name__}"


def undecoded(client: Any) -> dict[str, bool]:
    """The option by which a client that decodes replies leaves one as it is.

    The value in a key may be no text, and that of another lock is no reason to fail.
    """
    if not hasattr(part_of(client, "client"), "NEVER_DECODE"):  # before redis-py 4
        return {}
    encoder = getattr(client, "get_encoder", None)
    return {"NEVER_DECODE": True} if encoder and encoder().decode_responses else {}


def as_sent(client: Any, text: str) -> bytes:
    """A text as the client itself would send it.

    Raises:
        UnicodeEncodeError: it cannot be written.
    """
    pool = getattr(client, "connection_pool", client)  # a cluster's client has none
    encoder, utf8 = getattr(pool, "get_encoder", None), text.encode()
    encoding = getattr(encoder(), "encoding", "utf-8") if callable(encoder) else "utf-8"
    if text.encode(encoding, "replace") == utf8:
        return utf8
    if not hasattr(pool, "connection_class"):
        return text.encode(encoding)
    # Its connections know: hiredis writes UTF-8 for blocking clients, whatever their ``encoding``.
    connection = pool.connection_class(**pool.connection_kwargs)
    return words_of(b"".join(connection.pack_command("SET", text)))[1]


def has_pipelines(client: Any) -> bool:
    """Whether commands can be sent together through a client's own methods."""
    return callable(getattr(client, "pipeline", None))


def refuse_without_pipelines(client: Any) -> None:
    """Refuse what needs several commands to travel over one connection.

    Raises:
        ConfigurationError: the client has no pipelines.
    """
    if not has_pipelines(client):
        raise ConfigurationError(
            f"{type(client).__name__} has no pipeline, which is needed to send commands over one "
            "connection (replicas=…, release_method='native'): give it one, or use the client that "
            "it wraps"
        )


def pipelined(client: Any, commands: Sequence[tuple[Any, ...]]) -> Any:
    """A pipeline of commands; in a cluster, one without a key goes to the node of the first."""
    pipeline, options = client.pipeline(transaction=False), undecoded(client)
    for command in map(encoded, commands):
        if command[0] == "WAIT" and hasattr(client, "nodes_manager"):
            node = client.get_node_from_key(commands[0][3])
            pipeline.execute_command(*command, target_nodes=node, **options)
        else:
            pipeline.execute_command(*command, **options)
    return pipeline


def disconnect(client: Any) -> None:
    """Drop the idle connections of a blocking client; some pools can only drop all."""
    drop = getattr(client, "disconnect_connection_pools", None)
    if drop is not None:
        drop()
        return
    pool = client.connection_pool
    is_choosy = "inuse_connections" in inspect.signature(pool.disconnect).parameters
    pool.disconnect(**({"inuse_connections": False} if is_choosy else {}))


async def disconnect_idle(client: Any) -> None:
    """Drop the idle connections of an asyncio client, unless it is a cluster's."""
    drop = getattr(client, "disconnect_connection_pools", None)
    if drop is not None:
        await drop()
    elif not hasattr(client, "nodes_manager"):
        await client.connection_pool.disconnect(inuse_connections=False)


def _plain_execute(client: Any) -> FunctionType | None:
    """The client library's own ``execute_command``, if nobody overrode or wrapped it."""
    function = getattr(client.execute_command, "__func__", None)
    if type(function) is not FunctionType or hasattr(function, "__wrapped__"):
        return None
    home = function.__module__.partition(".")[0]
    known = home in ("redis", "valkey") and function.__name__ == "execute_command"
    return function if known else None


def _is_plain_pool(client: Any, pool: Any) -> bool:
    if getattr(client, "connection", None) is not None or getattr(pool, "cache", None) is not None:
        return False
    decides = [getattr(pool, name, None) for name in ("make_connection", "get_connection")]
    # A pool of the program's own may choose a server, a database or a user at each connection.
    parts = [getattr(pool, "connection_class", None), *filter(None, decides)]
    return all(_home(part) in ("redis", "valkey") for part in parts)


def _home(part: Any) -> str:
    """The library that a class or a function comes from."""
    return (getattr(part, "__module__", None) or "").partition(".")[0]


def _wants_a_name(pool: Any) -> bool:
    parameters = inspect.signature(pool.get_connection).parameters.values()
    first = next(iter(parameters), None)
    return first is not None and first.default is inspect.Parameter.empty
