"""Hearing whose turn it is, for all waiters of an event loop (or of all threads) at one node."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from redis_lock_decorators.flow.admission import Admission
from redis_lock_decorators.flow.claim import Claim, claim_on
from redis_lock_decorators.flow.handshake import Unheard, refuse_unheard
from redis_lock_decorators.flow.hearing import Hearing
from redis_lock_decorators.flow.lookout import AFTER, SILENCE, Lookout
from redis_lock_decorators.flow.loop import Alarm, Line, Loop
from redis_lock_decorators.flow.patience import Until
from redis_lock_decorators.flow.places import Ear, Entered, Left, Places
from redis_lock_decorators.flow.port import Port
from redis_lock_decorators.flow.requests import (
    Refusal,
    cancel,
    enter,
    is_forbidden,
    is_torn,
    is_unknown,
    persist,
)
from redis_lock_decorators.flow.turn import News, Turn
from redis_lock_decorators.rules import delays, words

#: Seconds between two PINGs: every grant is known not to be older than the last answered one.
PING = 0.4
#: Seconds by which it is called late if something has blocked its event loop.
LATE = 0.25
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

    Waiters join and leave from any thread; all else runs on the event loop. It ends once, when
    nobody has waited for a while, or nobody can be told: who comes then is told to follow to
    another. Each step of opening a line is limited in time, and while none is open the waiters
    look by themselves.

    Attributes:
        channel: where this listener is told.
        is_open: it can be told.
        is_failing: no line could be opened when that was tried last.
        session: which connection it hears on.
    """

    def __init__(
        self,
        bell: Bell,
        port: Port,
        channel: str,
        key: bytes,
        end: Callable[[Listener], object],
        hearing: Hearing | None = None,
    ) -> None:
        self.channel = channel
        self._end = end
        self.is_open = self.is_failing = False
        self.session = 0
        self._bell = bell
        self._port = port
        self._key = key  # any key of the node
        self._places = Places()
        self._admission = Admission(bell)
        self._lookout = Lookout(bell, port, channel)
        self._alarm: Alarm | None = None
        self._was_late = False
        self._rings_at = math.inf
        self._line: Line | None = None
        self._opens_by = math.inf
        self._hearing = hearing or Hearing()
        self._is_deaf = bell.now() < self._hearing.deaf_until
        self._is_alive = self._has_ended = self._has_opened = False
        self._run_id: bytes | None = None
        self._is_introduced = False
        self._evidence = -math.inf
        self._pinged = self._left = 0.0
        self._unanswered: float | None = None

    @property
    def is_deaf(self) -> bool:
        """Whether nobody can be told here."""
        return self._is_deaf

    @property
    def deaf_until(self) -> float:
        """When another listener may be told."""
        return self._hearing.deaf_until

    def join(self, turn: Turn) -> None:
        """Let a waiter be told. Unless this is open, it is told when it is."""
        self._places.join(turn)
        # Whoever changes one of these flags tells all who have joined, afterwards.
        if self._is_deaf:
            turn.waiter.tell(News.DEAF)
        elif self._has_ended:
            turn.waiter.tell(News.AGAIN)
        elif not self.is_open or self._admission:
            self._admission.add(turn)
            self._bell.wanted.add(self)
            self._bell.call(self.open)

    def admits(self, turn: Turn) -> bool:
        """Whether a waiter may line up now: it can be told, and nobody is to do so before it."""
        return self.is_open and not turn.is_outside

    def enter(self, identifier: str, claim: Claim, place: str | None = None) -> None:
        """Know that a claim is held by an identifier, whose turn may be told yet.

        Args:
            identifier: the identifier.
            claim: the claim.
            place: where it stood in the queue, if Redis does not know yet that it entered.
        """
        now, note_at = self._bell.now(), math.inf
        if place is not None:  # soon enough, also where little of a short grant is left
            note_at = now + min(claim.grant / 3000, max(0.0, claim.deadline - now) / 2)
        entered = Entered(claim, identifier, place or "", note_at, now + claim.grant / 1000)
        self._places.enter(entered)
        if entered.note_at < self._rings_at:
            self._bell.call(self.tick)

    def leave(self, turn: Turn) -> None:
        """Tell a waiter nothing more; its place is dead."""
        self._places.leave(turn)
        if not self._places and not self._is_alive:  # who joined was interrupted at it
            self._bell.wanted.discard(self)

    def expect(self, key: bytes, refusal: Refusal, grant: float) -> None:
        """Look at an awaited lock when its lease must be over, and once in a ``grant``."""
        if self._lookout.expect(key, refusal, grant) < self._rings_at:
            self._bell.call(self.tick)

    def open(self) -> None:
        """Begin to listen, unless that has begun; on the event loop."""
        if self._has_ended:
            self._bell.wanted.discard(self)
            self._tell_all(News.AGAIN)
            self._bell.rest()
        elif self.is_open:
            self._admission.resume()
        elif not self._is_alive and self._places:
            self._is_alive = True
            self._bell.wanted.add(self)
            self._bell.start(self._live(), self._stop)

    def tick(self) -> None:
        """Do what is due."""
        line, now, rings_at = self._line, self._bell.now(), self._rings_at
        self._rings_at = math.inf
        if line is None:
            return
        if self._is_woken_late(now, rings_at):
            return
        if not self.is_open:
            if now >= self._opens_by:
                self._close(line)  # it leads nowhere: connect anew
            return
        self._lookout.absorb()
        if self._places:
            self._left = now
        elif now >= self._left + LINGER:
            self._close(line)
            return
        if self._unanswered is not None and now >= self._unanswered + SILENCE:
            self._close(line)  # it is half open: connect anew
            return
        if now >= self._pinged + PING and self._places:
            self._pinged = now
            self._unanswered = self._unanswered or now
            self._bell.start(line.send("PING", repr(now)))
            self._admission.step()  # if what was to go on with it was lost, as by an interrupt
        for entered in self._places.to_note(now):
            self._bell.start(self._note(entered))
        for key, turns in self._lookout.due(now, self._places.waiting):
            self._bell.start(self._poke(key, [turn for turn in turns if turn.stands]))
        self._ring()

    async def _live(self) -> None:
        pauses = delays.recovering(self._bell.random)
        while self._places and not self._is_deaf:
            try:
                await self._listen()
            except Exception as error:
                self._judge(error)
            self.is_open = False
            self.is_failing = not self._has_opened
            if self._has_opened:
                pauses = delays.recovering(self._bell.random)
            self._places.forget_gone()  # no tick comes by while no line is open
            self._tell_all(News.AGAIN)  # to look by themselves meanwhile
            if self._places:
                await self._bell.sleep(next(pauses))

    def _stop(self) -> None:
        """Be over, after ``_live``, also if that was cancelled before its first step."""
        self.is_open = self._is_alive = False
        self._bell.wanted.discard(self)
        self._end(self)
        self._has_ended = True
        # Somebody may have come in the last moment.
        self._tell_all(News.DEAF if self._is_deaf else News.AGAIN)
        self._bell.rest()

    async def _listen(self) -> None:
        """Hear until the line breaks, or nobody is left."""
        self._has_opened = False
        self._line = line = await self._bell.port(self._port).line(self._key)
        self._run_id, self._is_introduced = None, False
        self._alarm = self._bell.alarm(self.tick)
        self._limit_opening()
        try:
            await line.send("INFO", "server")
            await line.send("SUBSCRIBE", self.channel)
            await line.hear(self._hear)
        except Exception:
            if self._line is line:
                raise
        finally:
            self._line = None
            self.is_open = False
            self.session += 1
            await line.close()

    def _limit_opening(self) -> float:
        """Give the next step of opening the line its time; returns when that is over."""
        self._opens_by = self._rings_at = self._bell.now() + SILENCE
        if self._alarm is not None:
            self._alarm.set(self._opens_by)
        return self._opens_by

    async def _begin(self) -> None:
        """Be open, if word can come."""
        line = self._line
        try:
            opens_by = self._limit_opening()
            until = Until(opens_by, opens_by + SILENCE)  # it may be blocked, or others may be first
            await refuse_unheard(self._bell.port(self._port), self.channel, until)
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
        self._admission.begin(self._places.turns)
        self.is_open = self._has_opened = True
        self.is_failing = False
        self._admission.step()
        self._ring()

    def _judge(self, error: Exception) -> None:
        """Heed why a line was of no use: only what the other side says is worth a pause."""
        if is_unknown(self._port, error):
            return
        if not isinstance(error, Unheard) and not self._port.is_answer(error):
            self._hearing.warn(error, self.channel)  # no thread could be started, or the like
        elif self._hearing.is_deaf(error, self.channel, self._bell.now()):
            self._be_deaf()

    def _be_deaf(self) -> None:
        """Have all who wait here look by themselves."""
        self._is_deaf = True
        self._tell_all(News.DEAF)

    def _hear(self, message: Any) -> None:
        """Heed what came on the line; what is odd about it is no reason to hear no more."""
        if not self._is_introduced:  # the reply to INFO, or that it is not allowed
            self._is_introduced = True
            self._run_id = words.run_id(message)
        elif isinstance(message, Exception):
            raise message
        elif not isinstance(message, list):
            return
        elif message[:1] == [b"subscribe"]:
            self._bell.start(self._begin())
        elif message[:1] == [b"pong"]:
            self._unanswered = None
            self._hearing.works()
            self._evidence = max(self._evidence, self._sent(message[-1]))
        elif message[:1] == [b"message"]:
            self._hear_word(message[-1])

    def _hear_word(self, data: bytes) -> None:
        """Heed a word of our channel."""
        word = words.parsed(data)
        if word is None:
            return
        if word.kind == b"turn":
            self._hearing.tells()
        ear = Ear(self.session, self._run_id, self._evidence, self._bell.now())
        left = self._places.hear(word, ear)
        if left is not None:
            self._bell.start(self._hand_on(left))

    def _sent(self, pong: Any) -> float:
        """When the PING left that this answers."""
        try:
            sent = float(pong)
        except ValueError:
            return -math.inf
        return sent if sent <= self._pinged else -math.inf

    async def _hand_on(self, left: Left) -> None:
        """Let go what was handed to a waiter that has left."""
        port, claim = self._bell.port(self._port), claim_on(left.key, 1.0, left.identifier)
        await persist(port, partial(cancel, port, claim, ""), self._bell.now() + SILENCE)

    async def _note(self, entered: Entered) -> None:
        """Let Redis know that the lock was entered: if its lease ends, that is no sign of death."""
        port = self._bell.port(self._port)
        claim = claim_on(entered.key, 1.0, entered.identifier)
        try:
            await persist(
                port, partial(enter, port, claim, entered.place, 0), self._bell.now() + SILENCE
            )
        except Exception as error:
            if not is_torn(port, error):  # while its slot is moving nobody is handed it
                raise

    def _is_woken_late(self, now: float, rings_at: float) -> bool:
        """Whether something has blocked the event loop: what came meanwhile is to be read first."""
        self._was_late = now > rings_at + LATE and not self._was_late
        if self._was_late:
            if not self.is_open:
                self._limit_opening()
            elif self._alarm is not None:
                self._rings_at = now + LATE
                self._alarm.set(self._rings_at)
        return self._was_late

    async def _poke(self, key: bytes, turns: list[Turn]) -> None:
        line = self._line
        try:
            is_heard = await self._lookout.poke(key, turns)
        except Exception as error:
            if not is_forbidden(self._port, error):
                raise
            self._give_up(error)
            return
        if not is_heard and line is not None and line is self._line:
            self._mishear(line, turns)
        self._ring()

    def _give_up(self, error: Exception) -> None:
        """Hear no more: nobody here may have a lapsed lock handed on, so no word of it may come."""
        if self._is_deaf:
            return
        self._hearing.bar(error, self._bell.now())
        self._be_deaf()
        if self._line is not None:
            self._close(self._line)

    def _mishear(self, line: Line, turns: list[Turn]) -> None:
        """Move to where the lock is: the server that has it knows of no listener here."""
        if self._port.slotted:
            for turn in turns:
                turn.waiter.tell(News.AGAIN)
        else:
            self._close(line)

    def _tell_all(self, news: News) -> None:
        for turn in self._places.turns():
            turn.waiter.tell(news)

    def _ring(self) -> None:
        if self._alarm is None:
            return
        while True:
            regular = self._pinged + PING if self._places else self._left + LINGER
            due = min(regular, self._lookout.first_due(), self._places.next_note())
            self._rings_at = due
            if not self._lookout.absorb():  # who came meanwhile may have trusted an earlier ring
                break
        self._alarm.set(max(due, self._bell.now() + AFTER))

    def _close(self, line: Line) -> None:
        """Give the line up; how long closing it takes costs no waiter anything."""
        self._line = None
        self.is_open = False
        self.session += 1
        self._tell_all(News.AGAIN)  # to look by themselves meanwhile
        self._bell.start(line.close(), line.abort)
