"""In any history of three clients and two locks, with any faults, each lock has one holder.

Some leases are renewed until they are released or their holder dies.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from redis.exceptions import NoPermissionError, ReadOnlyError, RedisError
from support.faults import (
    Fate,
    delayed,
    interrupted,
    mismatched,
    paused,
    raising,
    reply_lost,
    request_lost,
    resent,
    slow,
    swallowed,
    timed_out,
)
from support.simulated_loop import BackgroundPort, HeldLease, SimulatedLoop
from support.simulation import Clock, SimulatedPort, SimulatedServer, new_claim

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._io.blocking_port import run

CLIENTS = st.integers(min_value=0, max_value=2)
NAMES = st.sampled_from([("a",), ("b",), ("a", "b")])
LEASES = st.sampled_from([10, 3, 1, 0.5, 0.05, 0.0005])
SECONDS = st.sampled_from([0.001, 0.01, 0.3, 1.0, 2.5, 7.5])
WAITS = st.sampled_from([0, 0.01, 0.7, 4])
METHODS = st.sampled_from(["script", "native", "transaction"])
EXTERNAL = "an identifier of another library"
WHICH = st.integers(min_value=0, max_value=1000)


def interrupt(reply_left: bool) -> Fate:
    return interrupted(KeyboardInterrupt(), reply_left=reply_left)


#: Fates without signal handlers.
QUIET_FATES: st.SearchStrategy[Fate | None] = st.one_of(
    st.none(),
    st.sampled_from([reply_lost, request_lost, resent, timed_out, swallowed]),
    st.builds(paused, SECONDS),
    st.builds(slow, SECONDS),
    st.builds(delayed, SECONDS),
    st.builds(mismatched, st.sampled_from([None, b"OK", 1, b"x:1", [b"x:1", b"y"]])),
    st.builds(raising, st.sampled_from([ReadOnlyError("a replica"), NoPermissionError("no")])),
)
FATES: st.SearchStrategy[Fate | None] = st.one_of(
    QUIET_FATES,
    st.builds(interrupt, st.booleans()),
    st.builds(raising, st.just(KeyboardInterrupt("before"))),
)
FAULTS = st.lists(FATES, max_size=5)
#: A shorter lease is renewed too often to be simulated for minutes.
SHORTEST_KEPT = 0.3


class CheckedServer(SimulatedServer):
    """A server that calls ``check`` before and after every command."""

    check: Callable[[], None] = staticmethod(lambda: None)

    def run(self, command: tuple[Any, ...]) -> Any:
        self.check()
        try:
            return super().run(command)
        finally:
            self.check()


class ThreeClients(RuleBasedStateMachine):
    """Clients that acquire, hold and release claims; each performs one operation at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[int, Claim]] = []
        self.extending: set[str] = set()
        self.kept: dict[str, HeldLease] = {}
        self.found: AssertionError | None = None
        self.busy: set[int] = set()

    @initialize(cluster=st.booleans(), latency=st.sampled_from([0.0, 0.001, 0.2]))
    def start(self, cluster: bool, latency: float) -> None:
        natives = ["DELEX"]
        self.server = CheckedServer(Clock(), cluster=cluster, natives=natives)
        self.server.loaded.clear()
        self.server.check = self.check  # type: ignore[method-assign]
        self.clock = self.server.clock
        self.ports = [
            SimulatedPort(self.server, seed=number, may_resend=number == 2) for number in range(3)
        ]
        # A renewer has its own connection to the client's server.
        self.lines = [SimulatedPort(self.server, seed=number) for number in range(3)]
        self.lease_loops = [SimulatedLoop(self.clock, phase=number / 3) for number in range(3)]
        for port, line, lease_loop in zip(self.ports, self.lines, self.lease_loops, strict=True):
            port.latency = line.latency = latency
            port.renewer, line.serials = lease_loop.renewer, port.serials
            background = BackgroundPort(line, lease_loop)
            lease_loop.port = lambda _, background=background: background  # type: ignore[method-assign]

    @rule(client=CLIENTS, names=NAMES, expire=LEASES, wait=WAITS, faults=FAULTS)
    def acquire(
        self, client: int, names: tuple[str, ...], expire: float, wait: float, faults: list[Any]
    ) -> None:
        with self.acting(client, faults) as free:
            if not free:
                return
            claim = new_claim(*names, expire=expire, owner=object())
            if run(acquire(self.ports[client], claim, wait, 0.1)) is None:
                self.held.append((client, claim))

    @precondition(lambda self: self.held)
    @rule(which=WHICH, method=METHODS, faults=FAULTS)
    def release_keys(self, which: int, method: Any, faults: list[Any]) -> None:
        if not self.held:  # called after a delay
            return
        client, claim = self.held[which % len(self.held)]
        if self.server.cluster and method == "transaction":
            return
        with self.acting(client, faults) as free:
            if not free:
                return
            self.held.remove((client, claim))
            if claim.identifier in self.kept:
                self.ports[client].renewer.remove(self.kept[claim.identifier].watch)
            run(release(self.ports[client], claim, method))

    @precondition(lambda self: self.held)
    @rule(which=WHICH, seconds=LEASES, faults=FAULTS)
    def give_more_time(self, which: int, seconds: float, faults: list[Any]) -> None:
        client, claim = self.held[which % len(self.held)]
        with self.acting(client, faults) as free:
            if not free:
                return
            self.extending.add(claim.identifier)
            run(extend(self.ports[client], claim, seconds))

    @precondition(lambda self: self.held)
    @rule(which=WHICH, max_hold=st.sampled_from([None, 0.7, 5]))
    def keep(self, which: int, max_hold: float | None) -> None:
        client, claim = self.held[which % len(self.held)]
        if claim.identifier not in self.kept and claim.expire >= SHORTEST_KEPT:
            self.kept[claim.identifier] = HeldLease(
                self.ports[client], claim=claim, expire=claim.expire, max_hold=max_hold
            )

    @precondition(lambda self: self.kept)
    @rule(which=WHICH)
    def stop_renewing(self, which: int) -> None:
        list(self.kept.values())[which % len(self.kept)].stop_renewal()

    @rule(client=CLIENTS, seconds=SECONDS)
    def freeze(self, client: int, seconds: float) -> None:
        self.lease_loops[client].freeze(seconds)

    @rule(client=CLIENTS, faults=st.lists(QUIET_FATES, max_size=5))
    def disturb_renewals(self, client: int, faults: list[Any]) -> None:
        self.lines[client].faults = faults

    @rule(delay=SECONDS, client=CLIENTS, names=NAMES, expire=LEASES, wait=WAITS)
    def acquire_later(
        self, delay: float, client: int, names: tuple[str, ...], expire: float, wait: float
    ) -> None:
        self.later(delay, lambda: self.acquire(client, names, expire, wait, []))

    @precondition(lambda self: self.held)
    @rule(delay=SECONDS, which=WHICH, method=METHODS)
    def release_later(self, delay: float, which: int, method: str) -> None:
        self.later(delay, lambda: self.release_keys(which, method, []))

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def forget_scripts(self) -> None:
        self.server.loaded.clear()

    @rule(name=st.sampled_from("ab"), seconds=SECONDS)
    def acquire_by_another_library(self, name: str, seconds: float) -> None:
        key = b"sys:lock:" + name.encode()
        self.server.run(("SET", key, EXTERNAL, "NX", "PX", math.ceil(seconds * 1000)))

    @invariant()
    def locks_are_exclusive(self) -> None:
        if not hasattr(self, "server"):
            return
        if self.found is not None:
            raise self.found
        now = self.clock.now
        for _, claim in self.held:
            if claim.is_live(now):
                found = {self.server.value(key) for key in claim.keys}
                assert found == {claim.identifier}, "a live claim has lost its key"
        holding = {claim.identifier for _, claim in self.held if claim.is_live(now)}
        for _, identifier in self.server.deleted:
            assert identifier != EXTERNAL, "an external key was deleted"
            assert identifier not in holding, "the key of a live claim was deleted"
        for _, identifier in self.server.extended:
            assert identifier in self.extending, "a lease was extended without a request"
        for _, identifier in self.server.renewed:
            assert identifier in self.kept, "a lease was renewed that should not be"
        for lease in self.kept.values():
            assert len(lease.notifications) <= 1, "a loss was reported twice"
        self.server.deleted.clear()

    def check(self) -> None:
        """Check the invariant and keep its error, which a flow could swallow."""
        try:
            self.locks_are_exclusive()
        except AssertionError as error:
            self.found = error
            raise

    def teardown(self) -> None:
        if not hasattr(self, "server"):
            return
        for _, claim in self.held:  # expire all leases that are still held
            if claim.identifier in self.kept:
                self.kept[claim.identifier].stop_renewal()
        self.clock.advance(60)
        if self.found is not None:
            raise self.found
        assert self.server.value(b"sys:lock:a") is None, "the lock is never free again"
        assert self.server.value(b"sys:lock:b") is None, "the lock is never free again"

    def later(self, delay: float, action: Callable[[], None]) -> None:
        self.clock.at(self.clock.now + delay, action)

    @contextlib.contextmanager
    def acting(self, client: int, faults: list[Any]) -> Iterator[bool]:
        """Yield whether the client is free; any error of its operation is accepted."""
        if client in self.busy:
            yield False
            return
        self.busy.add(client)
        self.ports[client].faults = list(faults)
        try:
            yield True
        except (RedisError, KeyboardInterrupt):
            self.ports[client].faults.clear()
        finally:
            self.busy.discard(client)


TestThreeClients = ThreeClients.TestCase
TestThreeClients.settings = settings(
    max_examples=100,
    stateful_step_count=30,
    report_multiple_bugs=False,
    deadline=None,
    phases=[
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
        Phase.shrink,
    ],  # the explain phase takes minutes
)
