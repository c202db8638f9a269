"""Leases are renewed and losses reported though a signal handler interrupts any line."""

from __future__ import annotations

import asyncio
import linecache
import sys
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

from support.interruptions import Interrupted, Interruption, Limited, interrupt_every_line
from support.simulated_loop import HeldLease, SimulatedLoop, renewing_port
from support.simulation import Clock, SimulatedPort, SimulatedServer

from redis_lock_decorators._flow.renewal import renewer, schedule, tracked_lease
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._rules import timer_wheel
from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._shared.lease_base import claim_for
from redis_lock_decorators.asyncio._cancellation import LOST, running
from redis_lock_decorators.asyncio.lease import Lease, _report_loss

FILES = {module.__file__ for module in (tracked_lease, renewer, schedule, timer_wheel)}
#: Seconds after which the second timer of an alarm fires.
AGAIN = 0.25


class LineInterrupted:
    """Raises once, at a line of the renewer.

    Args:
        at: the number of the line, in the order of first execution.
        time: the number of its execution.
        kind: the class of the exception.
    """

    def __init__(self, at: int, time: int, kind: type[BaseException]) -> None:
        self.at, self.time, self.kind = at, time, kind
        self.seen: dict[tuple[str, int], int] = {}
        self.target: tuple[str, int] | None = None
        self.where = ""

    def call(self, frame: Any, event: str, _: object) -> Any:
        return self.line if frame.f_code.co_filename in FILES else None

    def line(self, frame: Any, event: str, _: object) -> Any:
        place = frame.f_code.co_filename, frame.f_lineno
        code = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        # No signal handler runs on a "try:", which is no instruction.
        if event == "line" and not self.where and code != "try:":
            self.seen[place] = self.seen.get(place, 0) + 1
            if len(self.seen) == self.at and self.target is None:
                self.target = place
            if self.target == place and self.seen[place] == self.time:
                self.where = f"{place[0]}:{place[1]}"
                raise self.kind
        return self.line


class Scene:
    """Several leases: one is lost to another holder, and one expires."""

    def __init__(self) -> None:
        self.lease_loop = SimulatedLoop(Clock())
        server = SimulatedServer(self.lease_loop.clock)
        self.port: SimulatedPort = renewing_port(self.lease_loop, server=server)
        self.renewed = [HeldLease(self.port, name, expire=3) for name in "abcd"]
        self.lost = [HeldLease(self.port, "lost", expire=3)]
        self.lost += [HeldLease(self.port, "ended", expire=3, auto_renew=False)]
        self.port.server.drop(self.lost[0].key)

    def run(self, interruption: LineInterrupted) -> None:
        sys.settrace(interruption.call)
        try:
            while self.port.clock.now < end_of(self):
                self.resume(interruption.kind)
        finally:
            sys.settrace(None)

    def resume(self, kind: type[BaseException]) -> None:
        try:
            self.port.clock.advance(0.1)
        except kind:
            when = self.port.clock.now + AGAIN
            self.lease_loop._at(when, self.lease_loop.renewer.tick)


def end_of(scene: Scene) -> float:
    return scene.renewed[0].claim.entered + 7


@pytest.mark.parametrize("kind", [Limited, KeyboardInterrupt])
@pytest.mark.parametrize("time", [1, 2, 5])
def test_renewals_and_reports_survive_an_interrupt_at_any_line(
    time: int, kind: type[BaseException]
) -> None:
    count = 0
    for at in range(1, 1000):
        scene, interruption = Scene(), LineInterrupted(at, time, kind)
        scene.run(interruption)

        if len(interruption.seen) < at:
            break
        count += bool(interruption.where)
        assert all(lease.is_live() for lease in scene.renewed), interruption.where
        assert all(lease.notifications == [] for lease in scene.renewed), interruption.where
        assert all(1 <= len(lease.notifications) <= 2 for lease in scene.lost), interruption.where
    assert count > 40


class LostInBlock:
    """A lease of a task in its block, which is lost."""

    def __init__(self) -> None:
        self.count = 0
        options = Options(on_lost=self.note, expire=3)
        port: Any = SimulatedPort(SimulatedServer(Clock(monotonic())))
        port.loop = asyncio.get_running_loop()
        self.lease = Lease(claim_for(("a",), options, running()), port, options)
        self.cut = 0

    def note(self, lease: Lease, why: str) -> None:
        self.count += 1

    async def body(self) -> None:
        self.lease._claim.owner = running()
        self.lease._enter()
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError as error:
                if error.args != (LOST,):
                    raise
                self.cut += 1


def test_loss_is_reported_by_the_call_after_an_interrupted_one() -> None:
    def notify(scene: LostInBlock, interruption: Interruption) -> None:
        try:
            with interruption:
                _report_loss(scene.lease)
        finally:  # as the renewer does until the report succeeds
            _report_loss(scene.lease)

    async def lose(interruption: Interruption, failures: list[BaseException]) -> None:
        scene, loop = LostInBlock(), asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: None)
        task = asyncio.ensure_future(scene.body())
        await asyncio.sleep(0)
        scene.lease._claim.lost_reason = "test"

        def step() -> None:  # outside of tasks, like the renewer
            try:
                notify(scene, interruption)
            except Interrupted as error:
                failures.append(error)

        loop.call_soon(step)
        for _ in range(3):
            await asyncio.sleep(0)
        assert scene.count in (1, 2), interruption.location
        assert scene.cut == 1, interruption.location
        task.cancel()

    def work(interruption: Interruption) -> None:
        failures: list[BaseException] = []
        asyncio.run(lose(interruption, failures))
        for error in failures:
            raise error

    assert interrupt_every_line(work) > 10
