"""Any history of three clients and two locks, with any faults: what is held is held alone.

Some leases are renewed by a keeper until they are let go, or their holder is dead.
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
from support.simulated_loop import BackgroundPort, Kept, SimulatedLoop
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
STRANGER = "an identifier of another library"
WHICH = st.integers(min_value=0, max_value=1000)


def interrupt(reply_left: bool) -> Fate:
    return interrupted(KeyboardInterrupt(), reply_left=reply_left)


#: Fates that no signal handler has a part in.
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
    """A server that lets somebody look before and after every command."""

    look: Callable[[], None] = staticmethod(lambda: None)

    def run(self, command: tuple[Any, ...]) -> Any:
        self.look()
        try:
            return super().run(command)
        finally:
            self.look()


class ThreeClients(RuleBasedStateMachine):
    """Claims go from being acquired to held to being let go; a client does one thing at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[int, Claim]] = []
        self.extending: set[str] = set()
        self.kept: dict[str, Kept] = {}
        self.found: AssertionError | None = None
        self.busy: set[int] = set()

    @initialize(cluster=st.booleans(), latency=st.sampled_from([0.0, 0.001, 0.2]))
    def start(self, cluster: bool, latency: float) -> None:
        natives = ["DELEX"]
        self.server = CheckedServer(Clock(), cluster=cluster, natives=natives)
        self.server.loaded.clear()
        self.server.look = self.look  # type: ignore[method-assign]
        self.clock = self.server.clock
        self.ports = [
            SimulatedPort(self.server, seed=number, may_resend=number == 2) for number in range(3)
        ]
        # A keeper has a connection of its own to the client's server.
        self.lines = [SimulatedPort(self.server, seed=number) for number in range(3)]
        self.lease_loops = [SimulatedLoop(self.clock, phase=number / 3) for number in range(3)]
        for port, line, lease_loop in zip(self.ports, self.lines, self.lease_loops, strict=True):
            port.latency = line.latency = latency
            port.renewer, line.serials = lease_loop.renewer, port.serials
            background = BackgroundPort(line, lease_loop)
            lease_loop.port = lambda _, background=background: background  # type: ignore[method-assign]

    @rule(client=CLIENTS, names=NAMES, expire=LEASES, wait=WAITS, faults=FAULTS)
    def take(
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
        if not self.held:  # a while later
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
            self.kept[claim.identifier] = Kept(
                self.ports[client], claim=claim, expire=claim.expire, max_hold=max_hold
            )

    @precondition(lambda self: self.kept)
    @rule(which=WHICH)
    def renew_no_more(self, which: int) -> None:
        list(self.kept.values())[which % len(self.kept)].last_no_longer()

    @rule(client=CLIENTS, seconds=SECONDS)
    def stand_still(self, client: int, seconds: float) -> None:
        self.lease_loops[client].stand_still(seconds)

    @rule(client=CLIENTS, faults=st.lists(QUIET_FATES, max_size=5))
    def disturb_renewals(self, client: int, faults: list[Any]) -> None:
        self.lines[client].faults = faults

    @rule(delay=SECONDS, client=CLIENTS, names=NAMES, expire=LEASES, wait=WAITS)
    def soon_take(
        self, delay: float, client: int, names: tuple[str, ...], expire: float, wait: float
    ) -> None:
        self.soon(delay, lambda: self.take(client, names, expire, wait, []))

    @precondition(lambda self: self.held)
    @rule(delay=SECONDS, which=WHICH, method=METHODS)
    def soon_let_go(self, delay: float, which: int, method: str) -> None:
        self.soon(delay, lambda: self.release_keys(which, method, []))

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def forget_scripts(self) -> None:
        self.server.loaded.clear()

    @rule(name=st.sampled_from("ab"), seconds=SECONDS)
    def take_by_another_library(self, name: str, seconds: float) -> None:
        key = b"sys:lock:" + name.encode()
        self.server.run(("SET", key, STRANGER, "NX", "PX", math.ceil(seconds * 1000)))

    @invariant()
    def nobody_is_cheated(self) -> None:
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
            assert identifier != STRANGER, "a stranger's key was deleted"
            assert identifier not in holding, "the key of a live claim was deleted"
        for _, identifier in self.server.extended:
            assert identifier in self.extending, "a lease was extended that nobody asked for"
        for _, identifier in self.server.renewed:
            assert identifier in self.kept, "a lease was renewed that nobody keeps"
        for lease in self.kept.values():
            assert len(lease.told) <= 1, "a loss was told twice"
        self.server.deleted.clear()

    def look(self) -> None:
        """Look, in a flow that may take what is found for an error of its client."""
        try:
            self.nobody_is_cheated()
        except AssertionError as error:
            self.found = error
            raise

    def teardown(self) -> None:
        if not hasattr(self, "server"):
            return
        for _, claim in self.held:  # what was let go is not renewed though its holder lives
            if claim.identifier in self.kept:
                self.kept[claim.identifier].last_no_longer()
        self.clock.advance(60)
        if self.found is not None:
            raise self.found
        assert self.server.value(b"sys:lock:a") is None, "a lock that nobody can ever take"
        assert self.server.value(b"sys:lock:b") is None, "a lock that nobody can ever take"

    def soon(self, delay: float, action: Callable[[], None]) -> None:
        self.clock.at(self.clock.now + delay, action)

    @contextlib.contextmanager
    def acting(self, client: int, faults: list[Any]) -> Iterator[bool]:
        """Let a client act, if it is free; its errors are as good an end as any."""
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
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],  # to explain takes minutes
)
