"""Two operations in two real threads, switched from one to the other at every line.

A scene is two operations on a shared structure, and a check of its state. Only one of the two
threads runs at a time; control is switched before a chosen line of the modules under
test. All schedules with one switch are tried (one thread runs some lines, the other runs to its
end, the first continues), starting with either thread, and a limited number of schedules with two
switches. The schedules are deterministic: a failure is reproducible and reports where it switched.

Some code relies on the interpreter, which switches threads (and runs signal handlers) only after a
call or a backward jump: with ``only_at_calls`` control is switched only there.

Locks that the threads wait for must be made by ``Switcher.lock``: waiting then switches threads.

    SCENES = Scenes("_flow/renewal/renewer", "_rules/timer_wheel")

    @SCENES.add
    def keep_and_tick(switcher: Switcher) -> Scene: ...

    @pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
    def test_...(scene): SCENES.explore(scene)
"""

from __future__ import annotations

import dis
import math
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

#: Real seconds after which a schedule counts as stuck; a correct schedule never waits for them.
STUCK = 20.0
#: The number of schedules with two switches that are tried for one scene, from either side.
MOST_DOUBLE = 250


class Scene(NamedTuple):
    """Two operations, and an invariant that must hold after any interleaving.

    Attributes:
        first: one operation.
        second: the other operation.
        check: raises AssertionError if the invariant does not hold after both.
    """

    first: Callable[[], object]
    second: Callable[[], object]
    check: Callable[[], object] = lambda: None


Make = Callable[["Switcher"], Scene]


class Stuck(AssertionError):
    """A deadlock: a thread waits for something that will not happen."""


class Switcher:
    """Switches between two threads after given numbers of lines.

    Args:
        plan: how many lines run before each switch, alternating between the threads; after the
            last one the running thread runs to its end.
        modules: the modules whose lines count, as parts of their paths.
        only_at_calls: switch only before lines that come after a call or a backward jump.
    """

    def __init__(
        self, plan: list[float], modules: tuple[str, ...], *, only_at_calls: bool = False
    ) -> None:
        self.places: list[str] = []
        self.actors: list[_Actor] = []
        self._plan = plan
        self._left = math.inf
        self._modules = modules
        self._known: dict[CodeType, bool] = {}
        self._only_at_calls = only_at_calls

    def run(self, scene: Scene, *, mirrored: bool) -> list[int]:
        """Run both operations to their end; returns how many lines each ran.

        Raises:
            BaseException: what an operation raised, or its check.
        """
        works = (scene.second, scene.first) if mirrored else (scene.first, scene.second)
        self.actors = [_Actor(self, work) for work in works]
        for actor in self.actors:
            actor.start()
        self._next_part()
        self.actors[0].waiter.release()
        for actor in self.actors:
            actor.join(STUCK)
            if actor.is_alive():
                raise Stuck(f"a thread does not end, switched at {self.places}")
        for actor in self.actors:
            if actor.error is not None:
                raise actor.error
        scene.check()
        return [actor.lines for actor in self.actors]

    def lock(self, *, taken: bool = False) -> Lock:
        """A lock for the structure under test."""
        return Lock(self, taken=taken)

    def counts(self, code: CodeType) -> bool:
        """Whether lines of this code count."""
        found = self._known.get(code)
        if found is None:
            path = code.co_filename.replace("\\", "/")
            found = self._known[code] = any(f"/{part}.py" in path for part in self._modules)
        return found

    def step(self, actor: _Actor, frame: FrameType) -> None:
        """Called before a line: switch threads if it is time to."""
        can_switch = not self._only_at_calls or actor.can_be_switched(frame)
        if self._left <= 0 and can_switch and not self.other(actor).is_over:
            self.places.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
            self._next_part()
            self.hand_over(actor)
        self._left -= 1
        actor.lines += 1

    def hand_over(self, actor: _Actor) -> None:
        """Let the other thread run, and wait until it switches back."""
        self.other(actor).waiter.release()
        actor.waiter.acquire()

    def give_way(self) -> None:
        """Let the other thread run because the current one waits for it."""
        actor = threading.current_thread()
        assert isinstance(actor, _Actor)
        other = self.other(actor)
        if other.is_over or other.is_waiting:
            raise Stuck("a thread waits endlessly")
        actor.is_waiting = True
        try:
            self.hand_over(actor)
        finally:
            actor.is_waiting = False

    def pause(self) -> None:
        """Simulate a short sleep, in which the other thread may run."""
        actor = threading.current_thread()
        assert isinstance(actor, _Actor)
        if not self.other(actor).is_over:
            self.hand_over(actor)

    def other(self, actor: _Actor) -> _Actor:
        """The other thread."""
        return self.actors[self.actors[0] is actor]

    def _next_part(self) -> None:
        self._left = self._plan.pop(0) if self._plan else math.inf


class _Actor(threading.Thread):
    """A thread that runs an operation, one part at a time."""

    def __init__(self, switcher: Switcher, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.waiter = threading.Lock()
        self.waiter.acquire()
        self.is_over = False
        self.is_waiting = False
        self.error: BaseException | None = None
        self.lines = 0
        self._switcher = switcher
        self._work = work
        self._last: dict[FrameType, int] = {}

    def can_be_switched(self, frame: FrameType) -> bool:
        """Whether the interpreter may switch threads before the next line of this frame."""
        last = self._last.get(frame)
        self._last[frame] = frame.f_lineno
        return last is None or last in checked_lines(frame.f_code)

    def run(self) -> None:
        self.waiter.acquire()
        sys.settrace(self._enter)
        try:
            self._work()
        except BaseException as error:
            self.error = error
        finally:
            sys.settrace(None)
            self.is_over = True
            other = self._switcher.other(self)
            if not other.is_over:
                other.waiter.release()

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._step if self._switcher.counts(frame.f_code) else None

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._switcher.step(self, frame)
        return self._step


class Lock:
    """A lock whose waiters switch threads instead of waiting in real time."""

    def __init__(self, switcher: Switcher, *, taken: bool = False) -> None:
        self._switcher = switcher
        self._is_taken = taken

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it, or wait as long as the other thread can release it."""
        while self._is_taken:
            if not blocking:
                return False
            self._switcher.give_way()
        self._is_taken = True
        return True

    def locked(self) -> bool:
        """Whether it is held."""
        return self._is_taken

    def release(self) -> None:
        """Release it."""
        if not self._is_taken:
            raise RuntimeError("release unlocked lock")
        self._is_taken = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *failure: object) -> None:
        self.release()


class Scenes:
    """The scenes of one structure: each has two operations that two threads may run concurrently.

    Args:
        modules: the modules between whose lines threads are switched, as parts of their paths.
        only_at_calls: switch only before lines that come after a call or a backward jump.
    """

    def __init__(self, *modules: str, only_at_calls: bool = False) -> None:
        self._modules = modules
        self._only_at_calls = only_at_calls
        self._makes: list[Make] = []

    def add(self, make: Make) -> Make:
        """Add a scene; it is created again for each schedule."""
        self._makes.append(make)
        return make

    def __iter__(self) -> Iterator[Make]:
        return iter(self._makes)

    def explore(self, make: Make) -> int:
        """Run every schedule of a scene; returns their number.

        Raises:
            AssertionError: an operation raised, or the check failed after a schedule.
        """
        count = 0
        for mirrored in (False, True):
            lines = self._try(make, [], mirrored)
            singles = [[switch] for switch in range(lines[0] + 1)]
            doubles = [[one, two] for one in range(lines[0] + 1) for two in range(1, lines[1] + 1)]
            stride = 1 + len(doubles) // MOST_DOUBLE
            for plan in [*singles, *doubles[::stride]]:
                self._try(make, list(plan), mirrored)
                count += 1
        return count

    def _try(self, make: Make, plan: list[float] | list[int], mirrored: bool) -> list[int]:
        shown = list(plan)
        switcher = Switcher(list(plan), self._modules, only_at_calls=self._only_at_calls)
        scene = make(switcher)
        try:
            return switcher.run(scene, mirrored=mirrored)
        except BaseException as error:
            begins = "second" if mirrored else "first"
            raise AssertionError(
                f"{name_of(make)}: {type(error).__name__}: {error}; the {begins} began, "
                f"switched before {' and '.join(switcher.places) or 'no line'} (lines {shown})"
            ) from error


@cache
def checked_lines(code: CodeType) -> frozenset[int]:
    """The lines after which the interpreter may switch threads."""
    lines = {
        offset: line
        for start, end, line in code.co_lines()
        if line is not None
        for offset in range(start, end)
    }
    words = ("CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "RESUME", "SEND")
    return frozenset(
        lines[found.offset]
        for found in dis.get_instructions(code)
        if found.offset in lines and any(word in found.opname for word in words)
    )


def name_of(make: Make) -> str:
    """The name of a scene, for test ids."""
    return make.__name__
