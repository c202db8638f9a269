"""The errors: each carries its facts as attributes and writes its own sentence."""

from __future__ import annotations

import math
from typing import Any

import redis.exceptions

#: Why a lock is busy that nobody holds.
KEPT = "kept by the min_hold of"
#: Why a lease is lost of which Redis knows nothing any more.
KEY_GONE = "its key is gone"
#: Why a lease is lost that was to end by itself, and how all reasons begin of what was not renewed
#: in time.
RAN_OUT = "its time ran out"
#: The server refused to renew it.
UNRENEWED = f"{RAN_OUT}, as its renewal was refused"
#: The server was asked to renew it, and did not answer.
UNANSWERED = f"{RAN_OUT}, as its renewal brought no answer"
#: The server was not asked to renew it.
NEVER_SENT = f"{RAN_OUT} before a renewal was sent"
#: How the reason ends where another has the lock.
HOLDS = " holds it"
#: How the reason begins where a lease was not to live longer.
AT_MOST = "its max_hold of"

#: What helps against a loss, by how its reason begins.
_CURES = {
    UNRENEWED: "allow the renewal",
    UNANSWERED: "see to the server and the network, or make expire longer than such an outage",
    NEVER_SENT: "keep the process and its event loop from standing still, or make expire longer",
    RAN_OUT: "make the work shorter or expire longer",
    AT_MOST: "make the work shorter or max_hold longer",
}

#: How the sentences begin of what is not held.
_BEGINNINGS = ("lock '", 'lock "', "the lease of lock ")


class LockError(redis.exceptions.LockError):
    """Something is wrong with a lock: the root of this package's errors.

    Attributes:
        lock_name: what was to be locked, before the prefix; None where no lock is concerned.
    """

    def __init__(self, sentence: str = "", lock_name: str | None = None) -> None:
        super().__init__(sentence)
        self.args = (sentence,)  # redis-py 5 keeps the arguments of the subclass instead
        self.lock_name = lock_name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class LockTimeoutError(LockError, TimeoutError):
    """The lock was not free within the time the caller would wait.

    Attributes:
        waited: seconds spent waiting.
        holder: the identifier of who held it at the last try, shortened; None if not known.
        free_in: seconds after which that lease ends unless it is renewed; infinity for a key
            without a time to live, None if not known.
    """

    def __init__(
        self,
        lock_name: str,
        *,
        waited: float | None = None,
        holder: str | None = None,
        free_in: float | None = None,
        why: str = "",
    ) -> None:
        if waited is None:  # made anew from its arguments, as task queues do: the sentence alone
            self.waited, self.holder, self.free_in = 0.0, None, None
            super().__init__(lock_name)
            return
        self.waited = waited
        self.holder = shortened(holder)
        self.free_in = free_in
        super().__init__(self._sentence(lock_name, why), lock_name)

    def _sentence(self, lock_name: str, why: str) -> str:
        tried = f"within {self.waited:.3g} s" if self.waited >= 0.01 else "at the one try"
        held = why or (f"held by {self.holder}" if self.holder else "held by another")
        cure = "wait longer (acquire_time=…), or in @redis_lock choose another way (on_busy=…)"
        if self.free_in == math.inf:
            held += " without an end"
            cure = "if its holder is dead, delete the key"
        elif self.free_in is not None and held.startswith(KEPT):
            held += f" for {self.free_in:.3g} s more"
        elif self.free_in is not None:
            held += f" for at most {self.free_in:.3g} s unless renewed"
        return f"lock {shown(lock_name)} was not free {tried}: {held}; {cure}"


class LockUnconfirmedError(LockError):
    """The lock was free, but too few replicas confirmed it in time, so that it was let go.

    It is no busy lock: ``on_busy`` does not answer it.
    """

    def __init__(self, lock_name: str, *, why: str = "") -> None:
        if not why:  # made anew from its arguments, as task queues do: the sentence alone
            super().__init__(lock_name)
            return
        super().__init__(
            f"lock {shown(lock_name)} was let go again: {why}; see to the replicas and to what "
            "connects them (INFO replication), wait longer (acquire_time=…) or ask for fewer "
            "(replicas=…)",
            lock_name,
        )


class LockNotOwnedError(LockError, redis.exceptions.LockNotOwnedError):
    """The caller does not hold this lock.

    Attributes:
        holder: the identifier of who does, shortened; None if nobody does or it is not known.
    """

    def __init__(self, lock_name: str, *, holder: str | None = None, why: str = "") -> None:
        self.holder = shortened(holder)
        if not why and holder is None and lock_name.startswith(_BEGINNINGS):
            super().__init__(lock_name)  # made anew from its arguments, as task queues do
            return
        super().__init__(self._sentence(lock_name, why), lock_name)

    def _sentence(self, lock_name: str, why: str) -> str:
        return f"lock {shown(lock_name)} is not held by this caller: {why or self._now()}"

    def _now(self) -> str:
        return f"it is held by {self.holder}" if self.holder else "it is not locked"


class LockLostError(LockNotOwnedError):
    """A lease ended before its holder let it go: another may have been inside meanwhile."""

    def _sentence(self, lock_name: str, why: str) -> str:
        lost = why or self._now()
        cures = [cure for reason, cure in _CURES.items() if lost.startswith(reason)][:1]
        if not cures and (lost == KEY_GONE or self.holder or lost.endswith(HOLDS)):
            gone = "deleted, evicted, released by force, or lost by the server"
            lost = f"{lost} (the key was {gone}, or it expired)"
        cure = ", and ".join([*cures, "check what the protected code did meanwhile"])
        return f"the lease of lock {shown(lock_name)} ended before the work did: {lost}; {cure}"


class LockNameError(LockError):
    """A lock's name cannot be made, or would not name the same thing in every process.

    Or its key holds other data, no lock.
    """


class ConfigurationError(LockError):
    """An option, a client or the set-up is not usable; raised before anything is locked."""


def shown(lock_name: str) -> str:
    """A lock's name as errors and logs show it: control characters escaped, at most 80 letters."""
    text = repr(lock_name)
    return text if len(text) <= 80 else f"{text[:60]}…{text[-15:]}"


def shortened(identifier: str | None) -> str | None:
    """The first letters of an identifier: enough to compare, not enough to release with."""
    if not identifier:
        return None
    return repr(identifier[: min(8, len(identifier) // 2)])[1:-1] + "…"


def _rebuild(
    kind: type[LockError], arguments: tuple[object, ...], client_state: dict[str, object]
) -> LockError:
    # Found by name, __new__ is ValueError's, which cannot make an OSError such as TimeoutError.
    maker = OSError if issubclass(kind, OSError) else Exception
    error: LockError = maker.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(client_state)
    return error
