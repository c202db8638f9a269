"""Processes in virtual time whose server runs some requests a second time, later."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Coroutine, Mapping
from typing import Any

from redis.exceptions import ResponseError

from redis_lock_decorators._flow.acquire import WaitStrategy, acquire
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._rules.options import ReleaseMethod
from support.simulated_loop import Kept
from support.simulated_queue import QueuePort, Waiting
from support.simulated_server import TOGETHER, Clock, SimulatedServer
from support.simulation import _verb, new_claim

#: Seconds of a lease here, and the first lease of a lock without expiry.
LEASE, LONGEST = 3.0, 10.0
#: The precision of a clock that counts in milliseconds.
TICK = 0.001


class CopyingServer(SimulatedServer):
    """A server that some requests reach twice.

    Attributes:
        copies: how many seconds later a request is run again, by its number.
        count: the number of requests, without copies.
        verbs: the verbs of the requests, in order; a pipeline is one request.
        world: checks the invariants after every change.
    """

    def __init__(self, world: World, copies: Mapping[int, float], **options: Any) -> None:
        super().__init__(Clock(), **options)
        self.world = world
        self.copies = copies
        self.count = 0
        self.verbs: list[tuple[str, ...]] = []
        self._is_inside = False

    def run(self, command: tuple[Any, ...]) -> Any:
        if self._is_inside:
            return super().run(command)
        number, self.count = self.count, self.count + 1
        parts = command[1:] if command[0] == TOGETHER else [command]
        self.verbs.append(tuple(_verb(part) for part in parts))
        if number in self.copies:
            self.clock.at(self.clock.now + self.copies[number], lambda: self._again(command))
        return self._alone(command)

    def _again(self, command: tuple[Any, ...]) -> None:
        # WATCH belongs to one connection, and no client repeats it before an EXEC.
        command = tuple([part.copy() if isinstance(part, dict) else part for part in command])
        with contextlib.suppress(ResponseError):  # no client reads the reply
            self._alone(command)

    def _alone(self, command: tuple[Any, ...]) -> Any:
        self.world.look()
        self._is_inside = True
        try:
            return super().run(command)
        finally:
            self._is_inside = False
            self.world.look()


class World:
    """Processes that acquire the same locks in turn, and what each may believe to hold.

    Attributes:
        copies: the numbers of requests that run again, and how many seconds later.
        violations: the invariants that were violated.
    """

    def __init__(self, copies: Mapping[int, float], *, cluster: bool = False) -> None:
        self.server = CopyingServer(self, copies, cluster=cluster, natives=["DELIFEQ"])
        self.clock = self.server.clock
        self.violations: list[str] = []
        self._held: list[Claim] = []
        self._kept: list[Kept] = []
        self._processes: list[Waiting] = []

    def process(self) -> Process:
        """Add a process."""
        waiting = Waiting(self.server, len(self._processes))
        waiting.port.renewer = waiting.lease_loop.renewer
        self._processes.append(waiting)
        return Process(self, waiting)

    def run(self) -> None:
        """Run until the last lease has ended."""
        self.clock.advance(20 * LEASE + 3 * LONGEST)
        self.look()
        for waiting in self._processes:
            self.violations += [f"raised {error!r}" for error in waiting.lease_loop.failures]
        for kept in self._kept:
            self.violations += [f"told lost: {why}" for _, why in kept.told]
        for key in list(self.server._stored):
            value, end = self.server._stored[key]
            is_lock = isinstance(value, bytes) and self.server.value(key) is not None
            if is_lock or end == math.inf:
                self.violations.append(f"{key!r} is left, {end - self.clock.now} s")

    def believe(self, claim: Claim) -> None:
        """Note that a claim is believed to be held, until its deadline."""
        self._held.append(claim)

    def keep(self, kept: Kept) -> None:
        """Keep a lease alive, as its holder does."""
        self._kept.append(kept)

    def look(self) -> None:
        """Check that every claim that is believed to be held is held."""
        now = self.clock.now
        for claim in self._held:
            if not claim.is_live(now):
                continue
            for key in claim.keys:
                found, left = self.server.value(key), self.server.left(key)
                if found != claim.identifier:
                    self._note(f"{claim.identifier[:6]} is believed, but {key!r} holds {found}")
                elif left < claim.deadline - now - TICK:
                    self._note(f"{key!r} ends {claim.deadline - now - left} s too early")

    def _note(self, violation: str) -> None:
        self.violations.append(f"{self.clock.now - 1000:.4f}: {violation}")


class Process:
    """One process; its work runs on its event loop."""

    def __init__(self, world: World, waiting: Waiting) -> None:
        self.world = world
        self.port: Any = QueuePort(waiting)
        self._lease_loop = waiting.lease_loop
        self.pause = waiting.lease_loop.pause

    def does(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a coroutine."""
        self._lease_loop.start(work)

    async def takes(
        self,
        *names: str,
        wait: float = 0.0,
        delta: float = 0.1,
        way: WaitStrategy = "queue",
        is_kept: bool = False,
        **attributes: Any,
    ) -> Claim | None:
        """Acquire locks and believe to hold them; None if they were not free in time."""
        claim = new_claim(*names, expire=LEASE, owner=object())
        claim.grant_ms = round(LEASE * 600)
        for attribute, value in attributes.items():
            setattr(claim, attribute, value)
        if await acquire(self.port, claim, wait, delta, way) is not None:
            return None
        self.believes(claim, is_kept=is_kept)
        return claim

    def believes(self, claim: Claim, *, is_kept: bool = False) -> None:
        """Believe to hold a claim."""
        self.world.believe(claim)
        if is_kept:
            self.world.keep(Kept(self.port, claim=claim, expire=claim.expire))

    async def ends(self, claim: Claim | None, method: ReleaseMethod = "script") -> None:
        """Release locks."""
        if claim is not None:
            await release(self.port, claim, method)
