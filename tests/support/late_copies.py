"""A small world in virtual time whose server runs some requests once more, later."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Coroutine, Mapping
from typing import Any

from redis.exceptions import ResponseError

from redis_lock_decorators._flow.acquire import Way, acquire
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._rules.options import ReleaseMethod
from support.simulated_loop import Kept
from support.simulated_queue import QueuePort, Waiting
from support.simulated_server import TOGETHER, Clock, SimulatedServer
from support.simulation import _verb, new_claim

#: Seconds that a lease lasts here, and that a lock without an end is taken for at first.
LEASE, LONGEST = 3.0, 10.0
#: A clock that counts in milliseconds may be so far off.
TICK = 0.001


class CopyingServer(SimulatedServer):
    """A server that some requests reach twice.

    Attributes:
        copies: how many seconds later a request is run again, by its number.
        count: how many requests came, without copies.
        verbs: what was asked for, in order; several that travel together are one request.
        world: looks after every change.
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
        # What a connection watches is its own, and no client repeats WATCH before an EXEC.
        command = tuple([part.copy() if isinstance(part, dict) else part for part in command])
        with contextlib.suppress(ResponseError):  # nobody hears of it
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
    """Processes that take the same locks one after the other, and what each may believe.

    Attributes:
        copies: which requests are run again, by their numbers, and how many seconds later.
        violations: what must not happen, and did.
    """

    def __init__(self, copies: Mapping[int, float], *, cluster: bool = False) -> None:
        self.server = CopyingServer(self, copies, cluster=cluster, natives=["DELIFEQ"])
        self.clock = self.server.clock
        self.violations: list[str] = []
        self._held: list[Claim] = []
        self._kept: list[Kept] = []
        self._processes: list[Waiting] = []

    def process(self) -> Process:
        """One more process."""
        waiting = Waiting(self.server, len(self._processes))
        waiting.port.renewer = waiting.lease_loop.renewer
        self._processes.append(waiting)
        return Process(self, waiting)

    def run(self) -> None:
        """Let everything happen, and the last lease end."""
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
        """Somebody is inside, until its deadline."""
        self._held.append(claim)

    def keep(self, kept: Kept) -> None:
        """Keep a lease alive, as its holder does."""
        self._kept.append(kept)

    def look(self) -> None:
        """See that everybody is right who believes to be inside."""
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
    """What one process does, as works on its event loop."""

    def __init__(self, world: World, waiting: Waiting) -> None:
        self.world = world
        self.port: Any = QueuePort(waiting)
        self._lease_loop = waiting.lease_loop
        self.pause = waiting.lease_loop.pause

    def does(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin a work."""
        self._lease_loop.start(work)

    async def takes(
        self,
        *names: str,
        wait: float = 0.0,
        delta: float = 0.1,
        way: Way = "queue",
        is_kept: bool = False,
        **client_state: Any,
    ) -> Claim | None:
        """Take locks and believe in it; None if they were not free in time."""
        claim = new_claim(*names, expire=LEASE, owner=object())
        claim.grant = round(LEASE * 600)
        for attribute, value in client_state.items():
            setattr(claim, attribute, value)
        if await acquire(self.port, claim, wait, delta, way) is not None:
            return None
        self.believes(claim, is_kept=is_kept)
        return claim

    def believes(self, claim: Claim, *, is_kept: bool = False) -> None:
        """Be inside."""
        self.world.believe(claim)
        if is_kept:
            self.world.keep(Kept(self.port, claim=claim, expire=claim.expire))

    async def ends(self, claim: Claim | None, method: ReleaseMethod = "script") -> None:
        """Let locks go."""
        if claim is not None:
            await release(self.port, claim, method)
