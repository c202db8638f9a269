"""The tokens of tasks: where a lock for redis-py's clients keeps what each task holds."""

from __future__ import annotations

import asyncio
import math
import threading
from weakref import WeakKeyDictionary, ref

from redis_lock_decorators._flow.claim_state import ENDED
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._rules.interruptions import NO_LOOP, is_from_python
from redis_lock_decorators._shared.redispy_tokens import TokenHold, TokenSlot


class _TaskTokenSlot(TokenSlot):
    """A task's cell, which is kept while it holds a claim though its task may have ended."""

    __slots__ = ("_holding", "_owner", "thread")

    def __init__(self, owner: object, kept: dict[_TaskTokenSlot, None]) -> None:
        super().__init__()
        self._owner = ref(owner)
        self._holding = kept
        self.thread = threading.get_ident()

    def put(self, hold: TokenHold | None) -> None:
        super().put(hold)
        if hold is None:
            self._holding.pop(self, None)
        else:
            self._holding[self] = None

    def is_empty(self) -> bool:
        """Whether what it held was let go."""
        return self.claim is None or self.claim.state is ENDED

    def is_over(self) -> bool:
        """Whether what it holds is known to have ended."""
        claim = self.claim
        if claim is None or claim.state is ENDED:
            return True
        if claim.deadline == -math.inf:  # of a token from elsewhere: its end is not known here
            return self._owner() is None
        return claim.deadline < monotonic()


class TaskTokenSlots:
    """The cells of a lock's tasks. Called, it finds the one to release or extend.

    A task that has acquired, or tried to, has its own: what another holds is not let go by mistake.
    """

    def __init__(self) -> None:
        self._own: WeakKeyDictionary[object, _TaskTokenSlot] = WeakKeyDictionary()
        self._holding: dict[_TaskTokenSlot, None] = {}
        #: Something ran out, was not let go, and was forgotten: it may yet be meant.
        self._forgot = False

    def __call__(self) -> TokenSlot:
        return self._own.get(current_owner()) or self._held()

    def own(self) -> TokenSlot:
        """That of the running task."""
        running = current_owner()
        token_slot = self._own.get(running)
        if token_slot is None:
            self._tidy()
            token_slot = self._own[running] = _TaskTokenSlot(running, self._holding)
        return token_slot

    def to_release(self, by_hand: bool) -> TokenHold | None:
        """What the running task releases, or as it leaves a block that it has entered by hand."""
        token_slot: TokenSlot | None = self._own.get(current_owner())
        if token_slot is None or (by_hand and token_slot.claim is None):
            token_slot = self._held()
            if token_slot.hold is None:  # it is refused once, not for ever
                self._tidy()
                self._forgot = False
        return token_slot.hold

    def _tidy(self) -> None:
        """Forget what ran out; its task keeps it, if that has not ended."""
        for token_slot in list(self._holding):
            if token_slot.is_over():
                self._forgot = self._forgot or not token_slot.is_empty()
                self._holding.pop(token_slot, None)

    def _held(self) -> TokenSlot:
        """That of the only task of this thread that holds the lock; else one that is empty.

        What ran out counts, for it may be what is meant: another's must not be let go instead.
        """
        here = threading.get_ident()
        found = [
            token_slot
            for token_slot in list(self._holding)
            if token_slot.thread == here and not token_slot.is_empty()
        ]
        if self._forgot and any(not token_slot.is_over() for token_slot in found):
            return TokenSlot()
        return found[0] if len(found) == 1 else TokenSlot()


def current_owner() -> object:
    """The running task; outside tasks, the thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError as error:
        if not is_from_python(error, NO_LOOP):
            raise
        task = None
    return task or threading.current_thread()
