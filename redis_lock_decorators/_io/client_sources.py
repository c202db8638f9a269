"""Clients made by the factories of programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from redis_lock_decorators import _lua
from redis_lock_decorators._flow import fork
from redis_lock_decorators._io.background.loop_ends import at_end
from redis_lock_decorators._io.client_checks import refuse_unfit_client
from redis_lock_decorators._io.client_closing import close_clients
from redis_lock_decorators._io.client_errors import own_copy
from redis_lock_decorators._io.client_state import ClientLoop, ClientState
from redis_lock_decorators._io.hook_errors import is_of_handler
from redis_lock_decorators._io.per_client import PerClient
from redis_lock_decorators._io.per_factory import PerFactory
from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.errors import ConfigurationError

#: Returns the Redis client of a project; called at the first use of a lock, once per process (where
#: threads are greenlets, once per native thread: hubs cannot share sockets).
ConnectionFactory = Callable[[], Any]

#: Seconds to wait while another thread calls a factory; after that, this thread calls it too.
PATIENCE = 30.0
#: A factory that is called recursively so often uses a lock that needs this factory.
MOST_NESTED = 4

T = TypeVar("T")


class WaitingThread:
    """A thread that waits for the client that another thread's call of the factory makes.

    Attributes:
        failure: how a call failed meanwhile: otherwise all threads that waited for it would call a
            factory that fails slowly, one after another.
    """

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure: Exception | None = None  #: any thread


class FactoryCalls:
    """The running calls of one factory.

    A signal handler or a finalizer may interrupt the factory at any line. If it needs the same
    client, it calls the factory once more, as it cannot wait for the code that it interrupts.

    Attributes:
        lock: makes other threads wait for the client, with a time-out: the factory may wait for
            them.
        callers: the identifiers of the threads inside the factory, once for each call.
        waiting: the threads that wait for the client.
    """

    __slots__ = ("__weakref__", "callers", "lock", "waiting")

    def __init__(self) -> None:
        self.lock = threading.RLock()  #: any thread
        self.callers: list[int] = []  #: any thread
        self.waiting: set[WaitingThread] = set()  #: any thread

    @contextmanager
    def exclusive(self) -> Iterator[WaitingThread]:
        """Exclude other threads, for at most ``PATIENCE`` seconds of their waiting."""
        thread = WaitingThread()
        self.waiting.add(thread)
        try:
            is_locked = self.lock.acquire(timeout=PATIENCE)
        finally:
            self.waiting.discard(thread)
        try:
            yield thread
        finally:
            if is_locked:
                self.lock.release()

    def call(self, factory: ConnectionFactory) -> Any:
        """Call the factory.

        Raises:
            ConfigurationError: the factory uses a lock that needs the factory.
        """
        caller = threading.get_ident()
        if self.callers.count(caller) >= MOST_NESTED:
            raise ConfigurationError(
                f"the function {shown_value(factory)} uses a lock that needs the client it is to "
                "make: give that lock a separate client"
            )
        try:
            self.callers.append(caller)
            return factory()
        except Exception as error:
            if not is_of_handler(error):
                for thread in tuple(self.waiting):
                    thread.failure = error
            raise
        finally:
            with suppress(ValueError):  # a signal handler raised an exception before the append
                self.callers.remove(caller)


class GivenClient:
    """A factory that returns a given client, which the program closes."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __call__(self) -> Any:
        return self._client


def unproxied(client: Any) -> Any:
    """The client that a proxy such as werkzeug's ``LocalProxy`` refers to here.

    On the thread that renews leases, the proxy refers to another client, or to none.
    """
    while hasattr(type(client), "_get_current_object"):
        client = client._get_current_object()
    return client


class ClientSource(Generic[T]):
    """The clients of one project in one process or event loop, and their states.

    Args:
        sender: makes the object that sends requests to a client.
        lease_loop: the event loop on which leases are renewed.
        awaited: the clients are asyncio's.
    """

    def __init__(self, sender: Callable[[], T], lease_loop: ClientLoop, *, awaited: bool) -> None:
        self.process = fork.process_id
        self._sender = sender
        self._lease_loop = lease_loop
        self._awaited = awaited
        #: any thread
        self._clients: PerFactory[Any] = PerFactory()
        self._calls: PerFactory[FactoryCalls] = PerFactory()
        self._made: PerFactory[Any] = PerFactory()
        self._end: object = None  #: loop only

    def client(self, factory: ConnectionFactory) -> Any:
        """The factory's client, which the first call makes.

        Raises:
            ConfigurationError: the factory returned no Redis client, or one of the wrong kind, or
                uses a lock that needs it.
            Exception: what the factory raised, also to another thread meanwhile.
        """
        clients = self._clients
        client = clients.get(factory)
        if client is None:
            calls = self._calls.setdefault(factory, FactoryCalls())
            with calls.exclusive() as thread:
                client = clients.get(factory)
                if client is None:
                    if thread.failure is not None:
                        raise own_copy(thread.failure)
                    client = calls.call(factory)
                    if not isinstance(factory, GivenClient):
                        client = unproxied(client)
                    self._refuse_unfit(client, factory)
                    # Another call may have made a client meanwhile, which is already in use.
                    client = clients.setdefault(factory, client)
            if self._awaited and not isinstance(factory, GivenClient):
                self._close_at_end(factory, client)
        return client

    def _refuse_unfit(self, client: Any, factory: ConnectionFactory) -> None:
        try:
            refuse_unfit_client(client, self._awaited)
        except ConfigurationError as error:
            if isinstance(factory, GivenClient):
                raise
            made = f"the function {shown_value(factory)} returned {shown_value(client)}"
            raise ConfigurationError(f"{made}: {error.args[0]}") from None

    def known_state(self, client: Any) -> ClientState[T] | None:
        """The state of a client that is in use; None for others, and for a proxy of a client."""
        known: PerClient[ClientState[T]] = self._lease_loop.clients
        return known.get(client)

    def client_state(self, client: Any) -> ClientState[T]:
        """The state of a client.

        All projects share it: it has connections, which would otherwise remain when a project ends.
        """
        known: PerClient[ClientState[T]] = self._lease_loop.clients
        client_state = known.get(client)
        if client_state is None:
            refuse_unfit_client(client, self._awaited)
            _lua.load()
            client_state = known.setdefault(
                client, ClientState(client, self._sender(), self._lease_loop)
            )
        return client_state

    def _close_at_end(self, factory: ConnectionFactory, client: Any) -> None:
        """Close a client at the end of this event loop, for which it was made."""
        made, known = self._made, self._lease_loop.clients
        made.setdefault(factory, client)

        async def close() -> None:
            await close_clients([(client, known.get(client)) for client in made.values()])

        if self._end is None:
            self._end = at_end(close)
