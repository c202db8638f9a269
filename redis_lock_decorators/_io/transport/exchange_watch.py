"""Periodic checks of an event loop's requests: for what takes too long, and for lost wake-ups."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any

from redis_lock_decorators._io.background.closing import is_unawaited
from redis_lock_decorators._io.background.supervised_task import stopped_at
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.batch import Transport
from redis_lock_decorators._io.transport.batch_sender import (
    LOOP_TURNS,
    MIN_REPLY_TIME,
    SILENT_CHECKS,
    UNFINISHED,
    BatchSender,
)
from redis_lock_decorators._io.transport.exchange import Exchange

#: Seconds between two checks. One timer serves all requests, instead of one timer each.
CHECK_INTERVAL = 0.25


class WatchedSender(BatchSender):
    """Ends exchanges that take too long, while any are under way.

    Attributes:
        under_way: the exchange under way, if its transport lets it be ended from here.
    """

    __slots__ = ("_check_by", "_check_due", "_skipped", "_stuck", "_timer", "under_way")

    def __init__(self) -> None:
        super().__init__()
        self.under_way: Exchange | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._check_by = -math.inf  # a check that has not run by then was lost
        self._check_due = math.inf  # when the next check was first due, by the event loop's clock
        self._skipped = False  # the last check ended nothing, as the event loop had been blocked
        #: Where a caller has stopped that should have been woken, and since when.
        self._stuck: tuple[object, float] = None, 0.0

    def _restart_checks(self, transport: Transport) -> None:
        """Schedule a check: either no exchange was under way, or the last check was lost."""
        self._note_reply()
        self._schedule_check(transport, self._check_due)

    def _schedule_check(self, transport: Transport, due: float = math.inf) -> None:
        """Schedule a check; ``due`` is the time of a previous one that has not run.

        A signal handler's exception may have lost that one, or the event loop is blocked.
        """
        if self._timer is not None:
            self._timer.cancel()
        when = self._loop.time() + CHECK_INTERVAL
        self._check_due = min(due, when)
        # An empty context: otherwise the timer keeps the context of one caller alive for all.
        self._timer = self._loop.call_at(when, self._check, transport, context=Context())
        self._check_by = monotonic() + (1 + SILENT_CHECKS) * CHECK_INTERVAL

    def _check(self, transport: Transport) -> None:
        now = monotonic()
        # After the event loop was blocked, replies that have arrived are read first.
        was_blocked = self._loop.time() > self._check_due + CHECK_INTERVAL
        self._skipped = was_blocked and not self._skipped
        if was_blocked:
            self._unblocked = now
        if not self._skipped:
            self._silent_checks += 1
            self._end_overdue(now)
            self._fail_overdue(now, transport)
            if self._silent_checks >= SILENT_CHECKS or self._earliest_end <= now:
                self._drop_expired(transport)
            self._abandon_stuck_caller()
        self._timer, self._check_due = None, math.inf
        self._send_if_idle(transport)
        if self.is_busy:
            self._schedule_check(transport)

    def _end_overdue(self, now: float) -> None:
        """End an exchange that takes too long, or again one that was ended and still runs."""
        exchange = self.under_way
        if exchange is None:
            return
        if exchange.is_ended or max(exchange.until, self._unblocked + MIN_REPLY_TIME) <= now:
            exchange.end()

    def _abandon_stuck_caller(self) -> None:
        """Close the exchange of a caller whose wake-up was lost.

        The package's own background tasks are restarted elsewhere (see ``supervised``). A task of
        the program cannot be restarted here, but the requests queued behind it must be sent.
        """
        runner, (former, since), self._stuck = self._runner, self._stuck, (None, 0.0)
        if not inspect.iscoroutine(runner) or inspect.getcoroutinestate(runner) not in UNFINISHED:
            return
        if is_unawaited(runner) or self._is_stuck_at_end():
            self._close_runner(runner)
            return
        if self._caller is None or self._tasks.supervises(self._caller):
            return
        at, now = stopped_at(self._caller), self._loop.time()
        self._stuck = at, since if at is former else now
        if at is not None and at is former and now >= since + CHECK_INTERVAL:
            self._close_runner(runner)

    def _is_stuck_at_end(self) -> bool:
        """Whether an exchange still runs though it was ended, also in further checks."""
        return self.under_way is not None and self.under_way.times_ended > LOOP_TURNS

    def _close_runner(self, runner: Coroutine[Any, Any, Any]) -> None:
        if inspect.getcoroutinestate(runner) == inspect.CORO_SUSPENDED:
            self._runner = None
            with suppress(Exception):  # its cleanup may await something
                runner.close()
