"""Clients of a simulated server: the flows' port in virtual time, with injected faults."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.held_claims import HeldClaims
from redis_lock_decorators._flow.known_rights import KnownRights
from redis_lock_decorators._flow.lease_ends import Shortening
from redis_lock_decorators._flow.port import Sending
from redis_lock_decorators._flow.queue.arrival_order import ArrivalOrder
from redis_lock_decorators._io import client_errors, error_replies
from redis_lock_decorators._io.blocking_port import BlockingPort, run
from redis_lock_decorators._rules import durations, lease_times
from redis_lock_decorators._rules.keys import slot_of
from redis_lock_decorators.testing.fake.clock import Clock
from redis_lock_decorators.testing.fake.script_calls import BY_SHA, BY_TEXT
from redis_lock_decorators.testing.fake.server import (
    TOGETHER,
    ReplyParser,
    SimulatedServer,
)
from support.faults import Fate, Request, delivered, is_before_sending

__all__ = ["Clock", "SimulatedPort", "SimulatedServer", "acquired", "cluster_port", "new_claim"]

T = TypeVar("T")
PREFIX = "sys:lock:"


@dataclasses.dataclass
class Sent:
    """One entry of the log: the verb of a script, or the name of another command."""

    at: float
    verb: str
    command: tuple[Any, ...]


class SimulatedPort:
    """One client, as a ``_flow.port.Port``.

    Args:
        may_resend: the client itself repeats a command after a lost reply.
        text: the client decodes replies.

    Attributes:
        client: an object that is the same for all ports of one client.
        renewer: renews the leases held through it, if a test has one.
        runs_tasks: waiting blocks the thread of an event loop.
        latency: seconds of a round trip.
        patience: the client's socket timeout, in seconds.
        faults: the fates of the next requests; None is ``usual``.
        usual: the fate of all other requests.
        unread: unread replies on the connection.
        log: the commands that were sent.
        pauses: the sleeps of the flows in seconds, in order.
        idle_drops: how often the flows dropped idle connections.
        untidy: the errors of clean-up, which no flow raises.
    """

    def __init__(
        self,
        server: SimulatedServer | None = None,
        *,
        seed: int = 0,
        may_resend: bool = False,
        text: bool = False,
    ) -> None:
        self.server = server = server or SimulatedServer(Clock())
        self.clock = server.clock
        self.client: object = self
        self.renewer: Any = None
        self.slotted = server.cluster
        self.transacts = not server.cluster
        self.may_resend = may_resend
        self.serials: Iterator[int] = itertools.count(1)
        self.rights = KnownRights()
        self.held = HeldClaims()
        self.arrivals = ArrivalOrder()
        self.random = random.Random(seed).random
        self.runs_tasks = False
        self.cancellable = False
        self.latency = 0.001
        self.patience = 5.0
        self.faults: list[Fate | None] = []
        self.usual: Fate = delivered
        self.unread: list[Any] = []
        self.log: list[Sent] = []
        self.pauses: list[float] = []
        self.idle_drops = 0
        self.untidy: list[Exception] = []
        self.decoded = _text if text else (lambda reply: reply)

    is_unknown = staticmethod(client_errors.is_unknown)
    is_outcome = staticmethod(client_errors.is_outcome)
    was_sent = staticmethod(client_errors.was_sent)
    is_answer = staticmethod(error_replies.is_answer)
    lacks = staticmethod(error_replies.lacks)

    def now(self) -> float:
        return self.clock.now

    def place(self) -> str:
        return "a simulated server"

    def node(self, key: bytes) -> int:
        """The number of the node: there are two, each with half of the slots."""
        return slot_of(key) // 8192

    def is_subscribed(self, key: bytes) -> bool:
        return False

    async def locate(self, key: bytes, until: float) -> None:
        pass

    def interrupted(self) -> Iterator[Claim]:
        return BlockingPort.interrupted(None)  # type: ignore[arg-type]

    def would_stop_tasks(self) -> bool:
        return self.runs_tasks

    async def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.pauses.append(seconds)
        self.clock.advance(seconds)

    async def send(self, *command: Any, until: float, sending: Sending | None = None) -> Any:
        return self.exchange(command, until, sending)

    def withdraw(
        self, identifier: str, error: BaseException, sending: Sending | None = None
    ) -> None:
        """Nothing is queued."""

    def late_reply(self, sending: Sending) -> None:
        """No late reply arrives."""

    async def send_together(
        self, *commands: tuple[Any, ...], until: float, sending: Sending | None = None
    ) -> list[Any]:
        replies: list[Any] = self.exchange((TOGETHER, *commands), until, sending)
        return replies

    async def gather(self, works: list[Awaitable[T]]) -> list[T]:
        return [await work for work in works]

    async def send_urgent(self, *command: Any, until: float, sending: Sending | None = None) -> Any:
        return self.exchange(command, until, sending)

    async def send_renewal(self, *command: Any, until: float) -> Any:
        return await self.send(*command, until=until)

    def exchange(
        self, command: tuple[Any, ...], until: float, sending: Sending | None = None
    ) -> Any:
        """Send a command or a pipeline, and apply its fate."""
        self.note(command)
        request = Request(self, command, min(until, self.clock.now + self.patience))
        fate = self.next_fate()
        if sending is not None and not is_before_sending(fate):
            sending()
        return self.decoded(fate(request))

    def note(self, command: tuple[Any, ...]) -> None:
        """Record commands in the log."""
        for one in command[1:] if command[0] == TOGETHER else [command]:
            self.log.append(Sent(self.clock.now, _verb(one), one))

    def next_fate(self) -> Fate:
        """The fate of the next request."""
        return (self.faults.pop(0) if self.faults else None) or self.usual

    def received(self, reply: Any) -> Any:
        """The oldest unread reply, or as many as the pipeline has: not always its own."""
        if isinstance(reply, ReplyParser):
            self.unread += reply
            taken = self.unread[: len(reply)]
            del self.unread[: len(reply)]
            return taken
        self.unread.append(reply)
        oldest = self.unread.pop(0)
        if isinstance(oldest, Exception):
            raise oldest
        return oldest

    async def drop_idle_connections(self) -> None:
        self.idle_drops += 1
        self.unread.clear()

    async def shield(
        self, work: Callable[[], Awaitable[object]], longest: float = math.inf
    ) -> None:
        try:
            await self._tidied(work)
        except (AssertionError, GeneratorExit):  # GeneratorExit: the test has ended
            raise
        except BaseException:
            await self._tidied(work)
            raise

    async def _tidied(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except Exception as error:
            if not self.is_outcome(error):
                raise
            self.untidy.append(error)

    def watch(self, until: float) -> SimulatedWatch:
        return SimulatedWatch(self)

    @property
    def verbs(self) -> list[str]:
        """The verbs of the commands that were sent."""
        return [sent.verb for sent in self.log]


class SimulatedWatch:
    """WATCH with GET, and MULTI with EXEC, each pair as one request."""

    def __init__(self, port: SimulatedPort) -> None:
        self._port = port
        self._seen: dict[bytes, int] = {}

    async def __aenter__(self) -> SimulatedWatch:
        return self

    async def __aexit__(self, *failure: object) -> None:
        pass

    async def holder(self, key: bytes) -> Any:
        return self._port.exchange(("WATCH", key, self._seen), math.inf)

    async def execute(
        self, *commands: tuple[Any, ...], sending: Sending | None = None
    ) -> list[Any] | None:
        return self._port.exchange(("EXEC", self._seen, *commands), math.inf, sending)


def cluster_port() -> SimulatedPort:
    """A port to a cluster."""
    return SimulatedPort(SimulatedServer(Clock(), cluster=True))


def new_claim(
    *names: str,
    expire: float = 10,
    identifier: str | None = None,
    owner: object = "a thread",
    identifies_late: bool = False,
) -> Claim:
    """A claim on the names that is not acquired yet."""
    ttl = durations.milliseconds(expire)
    return Claim(
        *(names, PREFIX, expire, ttl),
        identifier=identifier,
        owner=owner,
        identifies_late=identifies_late,
    )


def acquired(
    port: SimulatedPort, *names: str, expire: float = 10, owner: object = "a thread"
) -> Claim:
    """A claim that holds the names; the log of its acquisition is cleared."""
    claim = new_claim(*names, expire=expire, owner=owner)
    assert run(acquire(port, claim, 0, 0.005)) is None
    port.log.clear()
    return claim


def _verb(command: tuple[Any, ...]) -> str:
    if command[0] == "EVALSHA":
        return BY_SHA[command[1]]
    return BY_TEXT[command[1]] if command[0] == "EVAL" else str(command[0])


def _text(reply: Any) -> Any:
    if isinstance(reply, list):
        return [_text(item) for item in reply]
    return reply.decode(errors="surrogateescape") if isinstance(reply, bytes) else reply


def shortened(claim: Claim, by: float, sent: float, seconds: float) -> Shortening:
    """Have the claim assume an earlier end, as a request is being sent that no copy of runs later.

    Args:
        claim: the claim.
        by: after this time the server runs no copy of the request.
        sent: when it was sent.
        seconds: how long the lease lasts from then on.
    """
    nearer = Shortening(lease_times.deadline(sent, seconds), seconds, sent, by)
    claim.shorten(nearer)
    return nearer
