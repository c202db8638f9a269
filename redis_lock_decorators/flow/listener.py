"""Hearing whose turn it is, for all waiters of an event loop (or of all threads) at one node."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from redis_lock_decorators.flow.claim import Claim, claim_on
from redis_lock_decorators.flow.lookout import AFTER, SILENCE, Lookout
from redis_lock_decorators.flow.loop import Alarm, Line, Loop
from redis_lock_decorators.flow.port import Port
from redis_lock_decorators.flow.requests import Refusal, cancel, is_unknown, persist
from redis_lock_decorators.flow.turn import News, Turn
from redis_lock_decorators.rules import delays

log = logging.getLogger("redis_lock_decorators")

#: Seconds between two PINGs: every grant is known not to be older than the last answered one.
PING = 0.4
#: Seconds that a listener stays when nobody waits any more.
LINGER = 1.0


class Bell(Loop, Protocol):
    """What a listener needs of the event loop that it works on.

    Attributes:
        wanted: the listeners that have something to hear.
    """

    wanted: set[Any]

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the event loop; from any thread."""

    def alarm(self, ring: Callable[[], None]) -> Alarm:
        """An alarm of the event loop."""

    async def sleep(self, seconds: float) -> None:
        """Pause a work on the event loop."""

    def rest(self) -> None:
        """End what is there for nobody."""


class Listener:
    """Hears, on one channel at one node, whose turn it is.

    Waiters join and leave from any thread; all else runs on the event loop.

    Attributes:
        channel: where this listener is told.
        is_open: it can be told.
    """

    def __init__(
        self, bell: Bell, port: Port, channel: str, key: bytes, end: Callable[[], object]
    ) -> None:
        self.channel = channel
        self._end = end
        self.is_open = False
        self._bell = bell
        self._port = port
        self._key = key  # any key of the node
        self._turns: dict[str, Turn] = {}
        self._entered: dict[str, Claim] = {}
        self._lookout = Lookout(bell, port, channel)
        self._alarm: Alarm | None = None
        self._rings_at = math.inf
        self._line: Line | None = None
        self._is_deaf = self._is_alive = False
        self._evidence = -math.inf
        self._pinged = self._left = 0.0
        self._unanswered: float | None = None

    def awaits(self, key: bytes) -> bool:
        """Whether somebody here waits for the key."""
        return key in self._lookout.awaited and self.is_open

    def join(self, turn: Turn) -> None:
        """Let a waiter be told. Unless this is open, it is told when it is."""
        self._turns[turn.identifier] = turn
        if self._is_deaf:
            turn.waiter.tell(News.DEAF)
        elif not self.is_open:
            self._bell.wanted.add(self)
            self._bell.call(self.open)

    def enter(self, identifier: str, claim: Claim) -> None:
        """Know that a claim is held by an identifier, whose turn may be told yet."""
        self._entered[identifier] = claim

    def leave(self, turn: Turn) -> None:
        """Tell a waiter nothing more."""
        if self._turns.get(turn.identifier) is turn:
            self._turns.pop(turn.identifier, None)
        if not self._turns and not self._is_alive:  # who joined was interrupted at it
            self._bell.wanted.discard(self)

    def expect(self, key: bytes, refusal: Refusal, grant: float) -> None:
        """Look at an awaited lock when its lease must be over, and once in a ``grant``."""
        if self._lookout.expect(key, refusal, grant) < self._rings_at:
            self._bell.call(self.tick)

    def open(self) -> None:
        """Begin to listen, unless that has begun; on the event loop."""
        if self.is_open:
            self._tell_all(News.OPEN)
        elif not self._is_alive and self._turns:
            self._is_alive = True
            self._bell.wanted.add(self)
            self._bell.start(self._live(), self._stop)

    def tick(self) -> None:
        """Do what is due."""
        self._rings_at = math.inf
        line = self._line
        if line is None:
            return
        now = self._bell.now()
        keys = {turn.key for turn in list(self._turns.values())}
        if keys:
            self._left = now
        elif now >= self._left + LINGER:
            self._close(line)
            return
        if self._unanswered is not None and now >= self._unanswered + SILENCE:
            self._close(line)  # it is half open: connect anew
            return
        if now >= self._pinged + PING and keys:
            self._pinged = now
            self._unanswered = self._unanswered or now
            self._bell.start(line.send("PING", repr(now)))
        for identifier, claim in list(self._entered.items()):
            # In this order: who passes a lock on lets its heir enter before its own claim ends.
            if (claim.ended or now >= claim.deadline) and self._entered[identifier] is claim:
                del self._entered[identifier]
        for key in self._lookout.due(now, keys):
            self._bell.start(self._poke(key))
        self._ring()

    async def _live(self) -> None:
        pauses = delays.recovering(self._bell.random)
        while self._turns and not self._is_deaf:
            try:
                await self._listen()
                pauses = delays.recovering(self._bell.random)
            except Exception as error:
                self._judge(error)
            self.is_open = False
            self._tell_all(News.AGAIN)  # to look by themselves meanwhile
            if self._turns:
                await self._bell.sleep(next(pauses))

    def _stop(self) -> None:
        """Be over, after ``_live``, also if that was cancelled before its first step."""
        self.is_open = self._is_alive = False
        self._bell.wanted.discard(self)
        if not self._is_deaf:
            self._end()
        if self._turns and not self._is_deaf:  # somebody came in the last moment
            self._bell.wanted.add(self)
            self._bell.call(self.open)
        self._bell.rest()

    async def _listen(self) -> None:
        """Hear until the line breaks, or nobody is left."""
        self._line = line = await self._bell.port(self._port).line(self._key)
        try:
            await line.send("SUBSCRIBE", self.channel)
            await line.hear(self._hear)
        except Exception:
            if self._line is line:
                raise
        finally:
            self._line = None
            await line.close()

    async def _begin(self) -> None:
        """Be open, if word can come."""
        line = self._line
        try:
            await self._refuse_unheard(self._bell.port(self._port))
        except Exception as error:
            if line is not None and line is self._line:
                self._judge(error)
                self._close(line)
            return
        if line is None or line is not self._line:  # it was cut meanwhile
            return
        now = self._bell.now()
        self._evidence, self._unanswered = -math.inf, None
        self._pinged = self._left = now
        self.is_open = True
        self._tell_all(News.OPEN)
        self._alarm = self._bell.alarm(self.tick)
        self._ring()

    async def _refuse_unheard(self, port: Port) -> None:
        """Make sure that publishing is allowed, and that the number of hearers is not hidden."""
        command = ("PUBLISH", self.channel.encode(), "hello")
        heard = await port.send(*command, until=self._bell.now() + SILENCE)
        if heard == 0 and not port.slotted:
            raise Unheard("PUBLISH counts no hearer")

    def _judge(self, error: Exception) -> None:
        if is_unknown(self._port, error):
            return
        self._is_deaf = True
        log.warning(
            "waiters of locks look for them from time to time instead of being told: "
            "channel %s cannot be used (%s: %s)",
            *(self.channel, type(error).__name__, error),
        )
        self._tell_all(News.DEAF)

    def _hear(self, message: list[Any]) -> None:
        kind, *facts = message
        if kind == b"pong":
            self._evidence = max(self._evidence, float(facts[0]))
            self._unanswered = None
        elif kind == b"subscribe":
            self._bell.start(self._begin())
        elif kind == b"message" and facts[1].count(b"|") >= 2:
            word, name, key = facts[1].split(b"|", 2)
            identifier = name.decode()
            turn = self._turns.get(identifier)
            if turn is not None:
                self._pass(turn, word)
            elif word == b"turn" and not self._is_held(identifier):
                self._bell.start(self._hand_on(key, identifier))

    def _is_held(self, identifier: str) -> bool:
        claim = self._entered.get(identifier)
        return claim is not None and not claim.ended

    def _pass(self, turn: Turn, word: bytes) -> None:
        if word == b"turn":
            turn.evidence = self._evidence
            turn.waiter.tell(News.TURN)
        else:
            turn.waiter.tell(News.AGAIN)

    async def _hand_on(self, key: bytes, identifier: str) -> None:
        """Let go what was handed to a waiter that has left."""
        port, claim = self._bell.port(self._port), claim_on(key, 1.0, identifier)
        await persist(port, partial(cancel, port, claim, ""), self._bell.now() + SILENCE)

    async def _poke(self, key: bytes) -> None:
        turns = [turn for turn in list(self._turns.values()) if turn.key == key and turn.place]
        await self._lookout.poke(key, turns)
        self._ring()

    def _tell_all(self, news: News) -> None:
        for turn in list(self._turns.values()):
            turn.waiter.tell(news)

    def _ring(self) -> None:
        if self._alarm is not None:
            self._rings_at = min(self._pinged + PING, self._lookout.first_due())
            self._alarm.set(max(self._rings_at, self._bell.now() + AFTER))

    def _close(self, line: Line) -> None:
        self._line = None
        self.is_open = False
        self._bell.start(line.close())


class Unheard(Exception):
    """Something between us and the server hides who hears."""
