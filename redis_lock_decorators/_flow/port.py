"""What a flow needs of the world: a clock, a pause, and one Redis client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from redis_lock_decorators._flow.arrival_order import ArrivalOrder
from redis_lock_decorators._flow.held_claims import HeldClaims

if TYPE_CHECKING:
    from redis_lock_decorators._flow.background import Subscription
    from redis_lock_decorators._flow.claim import Claim
    from redis_lock_decorators._flow.queue.cohort import Cohort
    from redis_lock_decorators._flow.queue.subscriber import Subscriber
    from redis_lock_decorators._flow.queue.waiter import Waiter

T = TypeVar("T")


class Watched(Protocol):
    """One connection that watches a key (WATCH, then MULTI and EXEC)."""

    async def __aenter__(self) -> Watched: ...

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...

    async def holder(self, key: bytes) -> Any:
        """Watch the key and return its value, None if there is none."""

    async def execute(self, *commands: tuple[Any, ...]) -> list[Any] | None:
        """Run the commands if the key has not changed since, and return their replies.

        None if it has.
        """


class Port(Protocol):
    """A client as the flows see it. The blocking one never suspends, the asyncio one may.

    Attributes:
        slotted: keys of different slots cannot go into one script (a cluster).
        may_resend: the client may send a command again by itself after a lost reply.
        transacts: the client has WATCH.
        serials: numbers for requests, each given once in this process.
        held: the claims this process holds through this client, by key.
        arrivals: who competes for keys here, in the order in which they began.
        client: the client itself; requests for one client may travel together.
    """

    client: Any

    slotted: bool
    may_resend: bool
    transacts: bool
    serials: Iterator[int]
    held: HeldClaims
    arrivals: ArrivalOrder

    def now(self) -> float:
        """Monotonic seconds."""

    def place(self) -> str:
        """Where the server is, as errors tell it: without a password."""

    def random(self) -> float:
        """A number from 0 to 1."""

    def is_unknown(self, error: Exception) -> bool:
        """Whether the command behind this error may or may not have been run."""

    def is_outcome(self, error: BaseException) -> bool:
        """Whether a request ended with this error; if not, it was raised from outside meanwhile.

        So do signal handlers, at whatever line the program is then.
        """

    def was_sent(self, error: Exception) -> bool:
        """Whether a byte of the request behind this error may have reached a server."""

    def is_answer(self, error: Exception) -> bool:
        """Whether a server said so, rather than something on this side."""

    def lacks(self, error: Exception) -> str:
        """What the server said is missing: "script", "command", "string" (in the key), "right",
        "memory", "keys" (some of several are at another node, as their slot is moving) or "".
        """

    async def sleep(self, seconds: float) -> None:
        """Pause the caller."""

    def send(self, *command: Any, until: float) -> Awaitable[Any]:
        """Send one command and return its reply; do not wait for it past ``until``.

        To be awaited at once: it may be sent when this is called.
        """

    def send_urgent(self, *command: Any, until: float) -> Awaitable[Any]:
        """The same, past requests of others that are under way."""

    async def send_together(self, *commands: tuple[Any, ...], until: float) -> list[Any]:
        """Send commands about one slot, one after the other on one connection.

        Returns their replies; an error reply is an item. The outcome is unknown if the slot moved
        meanwhile: some may have gone to its old node.
        """

    async def gather(self, works: list[Awaitable[T]]) -> list[T]:
        """Do works at the same time and return what they return, in their order."""

    async def locate(self, key: bytes, until: float) -> None:
        """Know which node of a cluster a key lies on, where the client was not used yet."""

    def subscriber(self, key: bytes) -> Subscriber:
        """Who hears whose turn it is for a key."""

    def is_subscribed(self, key: bytes) -> bool:
        """Whether a listener for a key is open already; none is begun by this."""

    def wakeup(self) -> Waiter:
        """Who waits now, to be woken."""

    def interrupted(self) -> Iterable[Claim]:
        """The claims that code of this thread acts on which a signal handler has interrupted here.

        It stands still beneath on the same stack until the caller returns.
        """

    def would_stop_tasks(self) -> bool:
        """Whether to wait here would stop an event loop of this thread, with all its tasks."""

    def cohort(self, key: bytes, ttl: int) -> Cohort:
        """The waiters of this process for a key, with leases of so many milliseconds."""

    async def subscription(self, key: bytes) -> Subscription:
        """A new connection to the node of a key, in RESP2, to hear messages.

        Fails within seconds where none comes about.
        """

    async def drop_idle_connections(self) -> None:
        """Drop idle connections: one of them gave a reply that belonged to another command."""

    async def shield(self, work: Callable[[], Awaitable[object]]) -> None:
        """Finish ``work()`` though the caller is being cancelled; its errors are logged.

        If what does it is cancelled too, it is begun anew: it may be done twice.
        """

    def watch(self) -> Watched:
        """A connection to watch a key on."""
