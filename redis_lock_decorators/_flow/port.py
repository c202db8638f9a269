"""What a flow needs from outside: a clock, pauses, and one Redis client."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol, TypeVar

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.held_claims import HeldClaims
from redis_lock_decorators._flow.known_rights import KnownRights

T = TypeVar("T")


class Sending(partial[object]):
    """Called before the first byte of a request that releases keys may reach a server.

    The request may then still fail with an error that is marked as unsent.

    Attributes:
        late: reads the replies by a time, if the thread that sent the request was interrupted.
    """

    late: Callable[[float], list[Any]] | None = None


#: Returns the reply to a request whose caller was interrupted, or raises an error, by a time.
LateReply = Callable[[float], Awaitable[Any]]


class Watched(Protocol):
    """One connection that watches a key (WATCH, then MULTI and EXEC)."""

    async def __aenter__(self) -> Watched: ...

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...

    async def holder(self, key: bytes) -> Any:
        """Watch the key and return its value; None if the key does not exist."""

    async def execute(
        self, *commands: tuple[Any, ...], sending: Sending | None = None
    ) -> list[Any] | None:
        """Run the commands in a transaction and return their replies; ``sending`` as of ``Port``.

        An error reply is an item: the other commands were run all the same. None if the key has
        changed since it was watched: then none of them was run.
        """


class Port(Protocol):
    """A client as the flows see it. The blocking port never suspends; the asyncio port may.

    Attributes:
        client: the Redis client; requests for one client may share a round trip.
        slotted: the client is a cluster's: keys of different slots cannot share a script.
        may_resend: the client may repeat a command on its own after a lost reply.
        transacts: the client supports WATCH.
        cancellable: flows run in tasks, which may be cancelled.
        serials: request numbers; each is used once in this process.
        rights: what the client's user is known to be allowed.
        held: the claims that this process holds through the client, by key.
    """

    client: Any

    slotted: bool
    may_resend: bool
    transacts: bool
    cancellable: bool
    serials: Iterator[int]
    rights: KnownRights
    held: HeldClaims

    def now(self) -> float:
        """Monotonic seconds."""

    def place(self) -> str:
        """The server's address for error messages, without a password."""

    def node(self, key: bytes) -> object:
        """The identity of the cluster node of a key; None if it is not known, or no cluster."""

    def random(self) -> float:
        """A number from 0 to 1."""

    def is_unknown(self, error: Exception) -> bool:
        """Whether the command that failed with this error has perhaps been run."""

    def is_outcome(self, error: BaseException) -> bool:
        """Whether this error is how a request ended.

        Otherwise it was raised from outside, as by a signal handler, at an arbitrary line.
        """

    def was_sent(self, error: BaseException) -> bool:
        """Whether a byte of the request that failed with this error may have reached a server."""

    def is_answer(self, error: Exception) -> bool:
        """Whether this error is the reply of a server, and not raised by the client."""

    def lacks(self, error: Exception) -> str:
        """What the server's error reply reports as missing, or "".

        One of "script", "command", "string" (in the key), "right", "memory", "keys": some of the
        keys are at another node, as their slot is being moved, and "moved key": one was emptied by
        the script itself then.
        """

    async def sleep(self, seconds: float) -> None:
        """Pause the caller."""

    def send(self, *command: Any, until: float, sending: Sending | None = None) -> Awaitable[Any]:
        """Send one command and return its reply; wait for it until ``until`` at most.

        Must be awaited immediately: the command may be sent by the call itself. ``sending`` is
        called before the first byte is sent, but not while a connection is opened for it.
        """

    def send_urgent(
        self, *command: Any, until: float, sending: Sending | None = None
    ) -> Awaitable[Any]:
        """Like ``send``, without waiting for other requests that are under way."""

    def send_renewal(self, *command: Any, until: float) -> Awaitable[Any]:
        """Like ``send``; waits for no requests but other renewals at the same node.

        Where the client itself repeats requests, one request may take seconds. On a plain server,
        where none does, it is only sent before the others.
        """

    def withdraw(
        self, identifier: str, error: BaseException, sending: Sending | None = None
    ) -> None:
        """Send no queued request that has ``sending``, or acquires with this identifier.

        Does nothing if ``error`` is how the request ended: otherwise it has interrupted the caller.
        What then releases the lock would be sent before the acquisition; a release is repeated.
        """

    def late_reply(self, sending: Sending) -> LateReply | None:
        """Find the reply to a request that was sent, and whose caller was interrupted then.

        None if it cannot be read. Call it immediately: the port keeps the reply while ``sending``
        exists.
        """

    async def send_together(
        self, *commands: tuple[Any, ...], until: float, sending: Sending | None = None
    ) -> list[Any]:
        """Send commands for keys of one slot as a pipeline on one connection.

        Returns their replies; an error reply is an item of the list. The outcome is unknown if the
        slot is moved at that time: some commands may have been sent to its old node.
        """

    async def gather(self, works: list[Awaitable[T]]) -> list[T]:
        """Run awaitables concurrently and return their results in order."""

    async def locate(self, key: bytes, until: float) -> None:
        """Find the cluster node of a key, for a client that has not connected yet."""

    def interrupted(self) -> Iterable[Claim]:
        """The claims that interrupted code of this thread is acquiring or releasing.

        That code is suspended further up this call stack until the caller, a signal handler or a
        finalizer, returns.
        """

    def would_stop_tasks(self) -> bool:
        """Whether waiting here would block an event loop of this thread with all its tasks."""

    async def drop_idle_connections(self) -> None:
        """Drop idle connections.

        One of them returned the reply to another command, or may lead to another server.
        """

    async def shield(
        self, work: Callable[[], Awaitable[object]], longest: float = math.inf
    ) -> None:
        """Complete ``work()`` even if the caller is cancelled; its errors are logged.

        A task waits for it ``longest`` seconds at most, and then lets it continue; a thread waits
        until it has ended.

        If the task that runs it is cancelled too, ``work()`` is started again: it may run twice.
        If the caller is a coroutine that is being closed, ``work()`` is only started, and not even
        that if the event loop of the port has ended.
        """

    def watch(self, until: float) -> Watched:
        """A connection on which to watch a key, until ``until`` at most.

        Only a blocking client's own methods may take longer: their time limits are the client's.
        """
