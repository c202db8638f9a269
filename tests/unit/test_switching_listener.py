"""Whatever the order of their lines: waiters that join and leave from threads are served."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from redis.exceptions import ResponseError
from support.simulation import SimulatedPort, new_claim
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators.flow.claim import Claim
from redis_lock_decorators.flow.listener import Listener
from redis_lock_decorators.flow.turn import News, Turn
from redis_lock_decorators.rules import words

SCENES = Scenes("flow/listener", "flow/lookout", "flow/places")


class Line:
    async def send(self, *command: Any) -> None:
        pass

    async def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


class Bell:
    """An event loop that does what it is asked to later, when it is told to.

    Attributes:
        started: the names of the works that were begun, and what they were begun with.
    """

    def __init__(self) -> None:
        self.time = 1000.0
        self.rings_at = math.inf
        self.wanted: set[Any] = set()
        self.started: list[tuple[float, str, Any]] = []
        self.answer: Callable[[list[Any]], None]
        self._calls: list[Callable[[], object]] = []

    def now(self) -> float:
        return self.time

    def random(self) -> float:
        return 0.5

    def start(
        self, work: Coroutine[Any, Any, None], ended: Callable[[], object] | None = None, /
    ) -> None:
        facts = work.cr_frame.f_locals
        self.started.append((self.time, work.cr_code.co_name, facts.get("key")))
        work.close()
        if work.cr_code.co_name == "send":  # a PING, which the server answers
            self.call(lambda: self.answer([b"pong", repr(self.time).encode()]))

    def port(self, port: Any) -> Any:
        return port

    def call(self, function: Callable[[], object]) -> None:
        self._calls.append(function)

    def alarm(self, ring: Callable[[], None]) -> Bell:
        self.ring = ring
        return self

    def set(self, when: float) -> None:
        self.rings_at = min(self.rings_at, when)

    def rest(self) -> None:
        pass

    def goes_on(self, until: float) -> None:
        """Do what was asked for, and ring when it is time to."""
        while self._calls or self.rings_at <= until:
            while self._calls:
                self._calls.pop(0)()
            if self.rings_at <= until:
                self.time, self.rings_at = max(self.time, self.rings_at), math.inf
                self.ring()
        self.time = until


class Told:
    """A waiter that remembers its news."""

    def __init__(self) -> None:
        self.news: list[News] = []

    def tell(self, news: News) -> None:
        self.news.append(news)


def new_listener(*, is_open: bool = True) -> tuple[Bell, Listener]:
    """A listener; an open one has a waiter that stays."""
    bell = Bell()
    listener = Listener(bell, SimulatedPort(), "channel", b"z", lambda _: None)  # type: ignore[arg-type]
    bell.answer = listener._hear
    if is_open:
        listener.join(new_turn("z"))
        bell._calls.clear()
        listener._is_alive = listener._is_introduced = True
        listener.is_open, listener._line = True, Line()  # type: ignore[assignment]
        listener._alarm = bell.alarm(listener.tick)
        listener._left = listener._pinged = bell.time
        listener._ring()
    return bell, listener


def new_turn(name: str, identifier: str | None = None) -> Turn:
    turn = Turn(name.encode(), identifier or f"identifier of {name}", Told())  # type: ignore[arg-type]
    turn.place = f"channel|{turn.identifier}|2500"
    return turn


@SCENES.add
def a_waiter_joins_while_it_opens(switcher: Switcher) -> Scene:
    bell, listener = new_listener(is_open=False)
    turn, knows = new_turn("a"), []

    def join() -> None:
        listener.join(turn)
        knows.append(listener.admits(turn))  # as who waits does before it waits for news

    def opens() -> None:
        """What ``_begin`` does once word can come."""
        listener._is_alive = True
        listener._admission.begin(listener._places.turns)
        listener.is_open = True
        listener._admission.step()

    def check() -> None:
        bell.goes_on(1000)
        assert knows == [True] or turn.waiter.news  # type: ignore[attr-defined]

    return Scene(join, opens, check)


@SCENES.add
def the_first_waiter_joins_while_nothing_is_open(switcher: Switcher) -> Scene:
    bell, listener = new_listener(is_open=False)
    one, other = new_turn("a"), new_turn("b")

    def check() -> None:
        bell.goes_on(1000)
        assert [name for _, name, _ in bell.started] == ["_live"]

    return Scene(lambda: listener.join(one), lambda: listener.join(other), check)


@SCENES.add
def a_waiter_leaves_while_another_joins(switcher: Switcher) -> Scene:
    bell, listener = new_listener(is_open=False)
    old, new = new_turn("a"), new_turn("b")
    listener.join(old)

    def check() -> None:
        bell.goes_on(1000)
        assert [name for _, name, _ in bell.started] == ["_live"]

    return Scene(lambda: listener.leave(old), lambda: listener.join(new), check)


@SCENES.add
def a_waiter_leaves_while_it_ticks(switcher: Switcher) -> Scene:
    bell, listener = new_listener()
    turn = new_turn("a")
    listener.join(turn)
    bell.time += 0.5
    return Scene(lambda: listener.leave(turn), listener.tick, lambda: goes_on(bell, listener))


@SCENES.add
def a_holder_enters_while_it_ticks(switcher: Switcher) -> Scene:
    bell, listener = new_listener()
    over, claim = new_claim("a"), new_claim("b")
    over.ended = True
    claim.take(bell.time)
    listener.enter("over", over)
    bell.time += 0.5

    def check() -> None:
        goes_on(bell, listener)
        assert list(listener._places._entered) == [words.hint("new")]
        assert list(listener._places._left) == [words.hint("over")]

    return Scene(lambda: listener.enter("new", claim), listener.tick, check)


@SCENES.add
def a_waiter_joins_while_it_ends(switcher: Switcher) -> Scene:
    bell, listener = new_listener()
    turn = new_turn("a")
    listener.is_open, listener._line = False, None

    def check() -> None:
        bell.goes_on(1000)
        assert News.AGAIN in turn.waiter.news, "nobody tells it to follow"  # type: ignore[attr-defined]
        assert listener not in bell.wanted

    return Scene(lambda: listener.join(turn), listener._stop, check)


@SCENES.add
def a_waiter_joins_while_it_goes_deaf(switcher: Switcher) -> Scene:
    bell, listener = new_listener()
    turn = new_turn("a")
    listener.is_open = False

    def check() -> None:
        bell.goes_on(1000)
        assert News.DEAF in turn.waiter.news  # type: ignore[attr-defined]

    return Scene(lambda: listener.join(turn), lambda: listener._judge(ResponseError("no")), check)


@SCENES.add
def two_holders_enter_from_a_queue(switcher: Switcher) -> Scene:
    bell, listener = new_listener()
    claims = [new_claim("a"), new_claim("b")]
    for claim in claims:
        claim.take(bell.time)

    def check() -> None:
        bell.goes_on(1001)
        assert len([at for at, name, _ in bell.started if name == "_note"]) == 2

    one, other = [entering(listener, claim) for claim in claims]
    return Scene(one, other, check)


@SCENES.add
def a_holder_enters_from_a_queue_while_it_ticks(switcher: Switcher) -> Scene:
    bell, listener = new_listener()
    claim = new_claim("a")
    claim.take(bell.time)
    claim.grant = 300  # its note is due before anything else

    def check() -> None:
        bell.goes_on(1001)
        noted = [at for at, name, _ in bell.started if name == "_note"]
        assert len(noted) == 1
        assert noted[0] <= 1000.12, "it is noted too late"

    return Scene(entering(listener, claim), listener.tick, check)


def entering(listener: Listener, claim: Claim) -> Callable[[], None]:
    return lambda: listener.enter(claim.identifier, claim, "channel|a place|2500")


def goes_on(bell: Bell, listener: Listener) -> None:
    """It still sends PING, for the waiter that stays."""
    bell.started.clear()
    bell.goes_on(bell.time + 1)
    assert "send" in [name for _, name, _ in bell.started]


@pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
def test_waiters_are_served_whatever_the_order_of_lines(scene: Make) -> None:
    assert SCENES.explore(scene) > 10
