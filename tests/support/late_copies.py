"""Processes in virtual time whose server executes some requests again, later."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Coroutine, Mapping
from typing import Any

from redis.exceptions import ResponseError

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.owner_info import OwnerInfo
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._flow.wait_strategies import WaitStrategy
from redis_lock_decorators._rules.keys import companion
from redis_lock_decorators._rules.options import ReleaseMethod
from redis_lock_decorators._rules.owner_info import KIND, is_of, parsed
from redis_lock_decorators.testing.fake.clock import Clock
from redis_lock_decorators.testing.fake.server import TOGETHER, SimulatedServer
from support.simulated_loop import HeldLease
from support.simulated_queue import QueuePort, SimulatedProcess
from support.simulation import _verb, new_claim

#: Seconds of a lease here, and the first lease of a lock without expiry.
LEASE, LONGEST = 3.0, 10.0
#: The precision of a clock that counts in milliseconds.
TICK = 0.001


def own_of(key: bytes) -> bytes:
    """The companion key with the information about the holder."""
    return companion(key, KIND)


class CopyingServer(SimulatedServer):
    """A server that executes some requests twice.

    Attributes:
        copies: after how many seconds a request is executed again, by its number.
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
        self.world.check()
        self._is_inside = True
        try:
            return super().run(command)
        finally:
            self._is_inside = False
            self.world.check()


class World:
    """Processes that acquire the same locks in turn, and the claims that they regard as held.

    Attributes:
        copies: after how many seconds a request is executed again, by its number.
        violations: the invariants that were violated.
    """

    def __init__(self, copies: Mapping[int, float], *, cluster: bool = False) -> None:
        self.server = CopyingServer(self, copies, cluster=cluster, natives=["DELIFEQ"])
        self.clock = self.server.clock
        self.violations: list[str] = []
        self._held: list[Claim] = []
        self._renewed: list[HeldLease] = []
        self._processes: list[SimulatedProcess] = []

    def process(self) -> Process:
        """Add a process."""
        waiting = SimulatedProcess(self.server, len(self._processes))
        waiting.port.renewer = waiting.lease_loop.renewer
        self._processes.append(waiting)
        return Process(self, waiting)

    def run(self) -> None:
        """Run until the last lease has ended."""
        self.clock.advance(20 * LEASE + 3 * LONGEST)
        self.check()
        for waiting in self._processes:
            self.violations += [f"raised {error!r}" for error in waiting.lease_loop.failures]
        for lease in self._renewed:
            self.violations += [f"reported as lost: {why}" for _, why in lease.notifications]
        for key in list(self.server._stored):
            value, end = self.server._stored[key]
            is_lock = isinstance(value, bytes) and self.server.value(key) is not None
            if is_lock or end == math.inf:
                self.violations.append(f"{key!r} remains for {end - self.clock.now} s")

    def assume_held(self, claim: Claim) -> None:
        """Record that a process regards a claim as held until its deadline."""
        self._held.append(claim)

    def renew(self, lease: HeldLease) -> None:
        """Renew a lease until its end."""
        self._renewed.append(lease)

    def check(self) -> None:
        """Check that every claim that is regarded as held is held."""
        now = self.clock.now
        for claim in self._held:
            if not claim.is_live(now):
                continue
            for key in claim.keys:
                found, left = self.server.value(key), self.server.left(key)
                if found != claim.identifier:
                    self._note(
                        f"{claim.identifier[:6]} is regarded as held, but {key!r} holds {found}"
                    )
                elif left < claim.deadline - now - TICK:
                    self._note(f"{key!r} ends {claim.deadline - now - left} s too early")
                elif claim.owner_info is not None:
                    self._check_owner_info(claim, key)

    def _check_owner_info(self, claim: Claim, key: bytes) -> None:
        """Check that no other claim is shown as the holder, and that the information has an end."""
        value, left = self.server.value(own_of(key)), self.server.left(own_of(key))
        if value is None or not is_of(value, claim.identifier):
            return
        if parsed(value).get("holder", id(claim)) != id(claim):
            self._note(f"{key!r} shows the information of another holder")
        if not 0 < left <= self.server.left(key) + TICK:
            self._note(f"the information about {key!r} has {left} s left")

    def _note(self, violation: str) -> None:
        self.violations.append(f"{self.clock.now - 1000:.4f}: {violation}")


class Process:
    """One process; its work runs on its event loop."""

    def __init__(self, world: World, waiting: SimulatedProcess) -> None:
        self.world = world
        self.port: Any = QueuePort(waiting)
        self._lease_loop = waiting.lease_loop
        self.pause = waiting.lease_loop.pause

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a coroutine."""
        self._lease_loop.start(work)

    async def acquire(
        self,
        *names: str,
        wait: float = 0.0,
        delta: float = 0.1,
        strategy: WaitStrategy = "queue",
        is_renewed: bool = False,
        is_informed: bool = False,
        **attributes: Any,
    ) -> Claim | None:
        """Acquire locks; None if they were not free in time."""
        claim = new_claim(*names, expire=LEASE, owner=object())
        if is_informed:
            claim.owner_info = OwnerInfo(0.0, f'"holder":{id(claim)}', '"pid":1')
        claim.grant_ms = round(LEASE * 600)
        for attribute, value in attributes.items():
            setattr(claim, attribute, value)
        if await acquire(self.port, claim, wait, delta, strategy) is not None:
            return None
        self.assume_held(claim, is_renewed=is_renewed)
        return claim

    def assume_held(self, claim: Claim, *, is_renewed: bool = False) -> None:
        """Regard a claim as held, and have it renewed if ``is_renewed``."""
        self.world.assume_held(claim)
        if is_renewed:
            self.world.renew(HeldLease(self.port, claim=claim, expire=claim.expire))

    async def release(self, claim: Claim | None, method: ReleaseMethod = "script") -> None:
        """Release locks."""
        if claim is not None:
            await release(self.port, claim, method)
