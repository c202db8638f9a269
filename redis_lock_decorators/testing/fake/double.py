"""The double of a Redis server, for tests of programs that use locks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from redis_lock_decorators._flow.identifiers import GRANTS
from redis_lock_decorators._flow.queue import session
from redis_lock_decorators._io.background.hubs import are_threads_green
from redis_lock_decorators._io.client_checks import refuse_unfit_client
from redis_lock_decorators._io.client_sources import GivenClient
from redis_lock_decorators._io.client_state import ClientState
from redis_lock_decorators._rules.keys import checked_name, key_of
from redis_lock_decorators._shared.settings import DEFAULT, Settings
from redis_lock_decorators.errors import ConfigurationError
from redis_lock_decorators.testing.fake.lease_loop import BackgroundThread, FakeLeaseLoop
from redis_lock_decorators.testing.fake.ports import Exchanges, FakeAsyncioPort, FakeBlockingPort
from redis_lock_decorators.testing.fake.server import SimulatedServer
from redis_lock_decorators.testing.fake.virtual_time import VirtualTime

#: The holder of a lock that is kept busy: a process that hands locks off.
OTHER = f"another-process{GRANTS}"
#: Seconds between two checks of subscriptions, which cannot break here.
PING = 60.0
#: As many replicas as a lock can want.
REPLICAS = 1000


class FakeServer:
    """An in-memory server that all locks of the process use in a ``with`` block.

    Whatever client a lock, a ``Locks`` object or ``configure`` has, no connection is made. Locks
    wait, expire, are renewed, lost and numbered as with Redis, in virtual time: while all threads
    and tasks of the test wait, time jumps to the end of the first wait. Event loops that use locks
    are in virtual time, too: so are ``asyncio.sleep`` and ``asyncio.wait_for``.

    One may be active at a time in a process; other processes do not see it.

    Args:
        replicas: the number of replicas that confirm locks.
    """

    def __init__(self, *, replicas: int = REPLICAS) -> None:
        self._replicas = replicas
        self._time = VirtualTime()
        self._server = self._new_server()
        self._exchanges = Exchanges(self._time, self._server)
        self._states: dict[tuple[int, object], tuple[Any, ClientState[Any]]] = {}
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, FakeLeaseLoop]
        self._loops = WeakKeyDictionary()
        self._background: BackgroundThread | None = None
        self._replaced: list[tuple[Any, str, Any]] = []
        self._is_on = True

    def __enter__(self) -> FakeServer:
        """Have all locks use this server.

        Raises:
            ConfigurationError: threads are greenlets here (gevent, eventlet).
        """
        if are_threads_green():
            raise ConfigurationError("the in-memory server needs native threads: use LocalServer")
        double = self

        def port(settings: Settings, client: Any, factory: Any) -> FakeBlockingPort:
            return double._port(_client(client, factory, settings._factory, False))

        def async_port(settings: Settings, client: Any, factory: Any) -> FakeAsyncioPort:
            return double._async_port(_client(client, factory, settings._async_factory, True))

        self._replace(Settings, port=port, async_port=async_port)
        self._replace(session, PING=PING)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        while self._replaced:
            setattr(*self._replaced.pop())
        if self._background is not None:
            self._background.end()
        for lease_loop in list(self._loops.values()):
            lease_loop.loop_time.end()

    @property
    def now(self) -> float:
        """The virtual time, in monotonic seconds."""
        return self._time.now

    def sleep(self, seconds: float) -> None:
        """Pause this thread in virtual time, for ``time.sleep``; not on an event loop."""
        self._time.wait(self.now + seconds)

    def turn_off(self) -> None:
        """Have each acquisition succeed from now on, whoever holds the lock."""
        self._is_on = False

    def turn_on(self) -> None:
        """Have locks exclude each other again."""
        self._is_on = True

    def keep_busy(
        self, lock_name: str, seconds: float = math.inf, *, prefix: str | None = None
    ) -> None:
        """Give a lock to another process for some seconds, by default until ``force_release``."""
        with self._time.lock:
            self._server.put(_key(lock_name, prefix), OTHER, seconds)

    def lose(self, lock_name: str, *, prefix: str | None = None) -> None:
        """Delete a lock from the server, as a failover does.

        Its holder is notified at its next renewal, within a third of ``expire``. A thread that
        calls this waits for that time; a task goes on, and is notified while it awaits.
        """
        with self._time.lock:
            key = _key(lock_name, prefix)
            left = self._server.left(key)
            self._server.drop(key)
        if asyncio._get_running_loop() is None and 0 < left < math.inf:
            self.sleep(left)

    def stall_renewals(self, seconds: float) -> None:
        """Have renewals get no answer for some seconds, from now on.

        A lease whose ``expire`` ends meanwhile is lost.
        """
        self._exchanges.stalled_until = self.now + seconds

    def _replace(self, thing: Any, **attributes: Any) -> None:
        for name, value in attributes.items():
            self._replaced.append((thing, name, getattr(thing, name)))
            setattr(thing, name, value)

    def _new_server(self) -> SimulatedServer:
        server = SimulatedServer(self._time, natives=("DELIFEQ", "DELEX"))
        server.replicas = self._replicas
        return server

    def _port(self, client: Any) -> FakeBlockingPort:
        self._time.use()
        with self._time.lock:
            if self._background is None:
                self._background = BackgroundThread(self._time, self._background_port)
            return FakeBlockingPort(*self._state(client, self._background.lease_loop))

    def _background_port(self, port: Any) -> FakeAsyncioPort:
        return FakeAsyncioPort(port.client, port._client_state, asyncio.get_running_loop())

    def _async_port(self, client: Any) -> FakeAsyncioPort:
        self._time.use()
        loop = asyncio.get_running_loop()
        lease_loop = self._loops.get(loop)
        if lease_loop is None:
            lease_loop = FakeLeaseLoop(self._time, loop, lambda port: port)
            self._loops[loop] = lease_loop
        return FakeAsyncioPort(*self._state(client, lease_loop), loop)

    def _state(self, client: Any, lease_loop: Any) -> tuple[Any, ClientState[Any]]:
        """A client and its state; without locking, each acquisition has a server of its own."""
        if not self._is_on:
            exchanges = Exchanges(self._time, self._new_server())
            return NoClient(), _new_state(exchanges, lease_loop)
        key = id(client), lease_loop
        if key not in self._states:
            self._states[key] = client, _new_state(self._exchanges, lease_loop)
        return self._states[key]


class NoClient:
    """The client of a double, which no request is sent to."""

    def execute_command(self) -> None:
        """Do nothing: no request gets here."""


def _new_state(exchanges: Exchanges, lease_loop: Any) -> ClientState[Any]:
    state = ClientState[Any](NoClient(), exchanges, lease_loop)
    state.transacts = True
    return state


def _client(client: Any, factory: Any, default: Callable[[], Any], awaited: bool) -> object:
    """The given client; the factory in its place if there is none."""
    if client is None:
        factory = factory or default()
        if not isinstance(factory, GivenClient):
            return factory
        client = factory._client
    refuse_unfit_client(client, awaited)
    return client


def _key(lock_name: str, prefix: str | None) -> bytes:
    return key_of(DEFAULT.options.prefix if prefix is None else prefix, checked_name(lock_name))
