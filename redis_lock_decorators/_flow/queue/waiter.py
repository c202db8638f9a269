"""A waiter in the queue of a lock, and the signals that wake it."""

from __future__ import annotations

import math
from enum import Enum
from typing import Protocol

from redis_lock_decorators._rules import messages


class Signal(Enum):
    """Why a waiter is woken."""

    ADMITTED = "it may join the queue: its subscriber is open"
    UNAVAILABLE = "no message can reach it: it must poll"
    GRANTED = "the lock is its own: by a grant, or by a hand-off in its cohort"
    VERIFY = "an unproved message says that the lock was granted to it: it must ask Redis"
    FIRST = "no claim that arrived before it competes here any longer: it may try the lock"
    RETRY = "its entry or subscription may be gone: it must join again; in a cohort: it may lead"


class Wakeup(Protocol):
    """Wakes a thread or a task; its event loop may be another one than the subscriber's."""

    def notify(self, signal: Signal) -> None:
        """Wake the waiter, or leave the signal for its next wait; from any thread."""

    async def wait(self, seconds: float) -> Signal | None:
        """The next signal; None if there is none within ``seconds``."""


class QueuedWaiter:
    """One identifier with one queue entry at one subscriber. Times are monotonic seconds.

    Attributes:
        hint: the public name of the identifier in messages.
        first_sent: when its first request to join the queue was sent. The lock cannot have been
            granted to its identifier before.
        not_before: a lower bound on when the grant was made, known when its message arrived.
        queue_entry: its entry in the queue; None until it has asked for one.
        is_queued: it is in the queue, as far as its waiter knows.
        ticket: its position in order of arrival; 0 until it has one.
        connection_number: the connection of the subscriber on which its message must arrive.
            Others may have read a message of an earlier connection and may repeat it.
        awaits_admission: other waiters are to join the queue before it.
        must_verify: it was sent ``VERIFY`` or ``RETRY``, and has not handled that yet.
        is_proved: it was sent ``GRANTED``. Only the first message counts: others may repeat it.
        wakeup: wakes its thread or task.
    """

    __slots__ = (
        "awaits_admission",
        "connection_number",
        "first_sent",
        "hint",
        "identifier",
        "is_proved",
        "is_queued",
        "key",
        "must_verify",
        "not_before",
        "queue_entry",
        "ticket",
        "wakeup",
    )

    def __init__(self, key: bytes, identifier: str, wakeup: Wakeup) -> None:
        self.key = key
        self.identifier = identifier
        self.hint = messages.hint(identifier)
        self.wakeup = wakeup
        #: written by the waiter, read by any thread
        self.first_sent = math.inf
        self.queue_entry: str | None = None
        self.connection_number = -1
        self.ticket = 0
        self.is_queued = False
        #: written by the loop, read by any thread
        self.not_before = -math.inf
        self.is_proved = False
        #: any thread
        self.awaits_admission = self.must_verify = False
